// Which identifier a space's TLB entries carry on one CPU.
//
// A machine with N identifiers gives them out in turn; when all are taken, the space that got its identifier
// the longest ago loses it, and its entries with it, as Linux does on processors with few
// (arch/powerpc/mm/nohash/ mmu_context.c, steal_context_up). A machine with one identifier therefore drops
// user entries at every switch and keeps the kernel's, which match every identifier; a machine with none
// flushes everything.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/types.h"

namespace tlbscope::addrspace {

// Tags tell the entries of different spaces apart within a TLB key. Kernel-side pages carry kGlobalTag,
// user-side pages the tag of their space's identifier: identifier 0 has tag 1.
inline constexpr std::uint16_t kGlobalTag = 0;
inline constexpr std::uint16_t kFirstUserTag = 1;
// Most identifiers a replay tells apart; tags have 10 bits and one value means "no entry".
inline constexpr std::uint32_t kMostAsids = 1022;

class Asids {
  public:
    explicit Asids(std::uint32_t count);

    struct Switch {
        std::uint16_t tag = kFirstUserTag;  // of the space switched to
        bool drop = false;                  // entries that carry `tag` belong to another space: drop them
        bool flush = false;                 // the machine has no identifiers: drop every entry
    };
    // The CPU runs `space` from here on.
    Switch switch_to(SpaceId space);

    [[nodiscard]] std::uint64_t switches() const { return switches_; }
    [[nodiscard]] std::uint64_t reuses() const { return reuses_; }

  private:
    std::uint32_t count_;
    std::uint32_t next_ = 0;
    std::vector<SpaceId> owners_;  // by identifier; as many as were given out
    std::unordered_map<std::uint32_t, std::uint32_t> identifiers_;  // space -> identifier
    bool running_ = false;
    SpaceId current_;
    std::uint64_t switches_ = 0;
    std::uint64_t reuses_ = 0;
};

}  // namespace tlbscope::addrspace
