// Watching a replay: an observer sees what one machine's arrays looked up and lost, in order, and can ask of
// each miss where it came from. A machine without one costs nothing but the question whether it has one, once
// per batch.
//
// Observers are told of whole lists of keys rather than called for each miss: a shadow array (explain/causes)
// must see every key, and most lists have few misses.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "addrspace/asids.h"
#include "core/types.h"
#include "machine/tlb.h"
#include "recording/batch.h"
#include "recording/dictionary.h"
#include "replay/touches.h"

namespace tlbscope::replay {

// Keys that one array looked up at one go, and those that missed.
struct Lookups {
    CpuId cpu;
    std::uint32_t array = 0;                  // of the machine
    Kind kind = Kind::kInstruction;           // of all of them, when `kinds` is empty
    std::span<const Kind> kinds;              // of each key otherwise
    PageShift shift;                          // of the touched pages: the smallest size in use
    std::span<const PageShift> sizes;         // of entries: what machine::size_of(key) numbers
    std::span<const std::uint64_t> keys;      // repeats of the key before are left out (replay/touches.h)
    std::span<const std::uint64_t> touched;   // the same as keys of touched pages
    std::span<const std::uint32_t> missed;    // indexes into `keys`, ascending
    std::span<const std::uint32_t> walked;    // of these, those that no later level answered and a refill did
    std::span<const std::uint32_t> ordinals;  // of `keys`
    // Of `keys`, the instruction of the block that made the touch, where that is not the first that could
    // have.
    std::span<const std::uint16_t> instructions;
    std::span<const ModeRun> modes;
    SpaceId space;     // that user-side keys belong to, as addrspace::Spaces names it
    SpaceId recorded;  // the same as the recording names it

    [[nodiscard]] Kind kind_of(std::size_t index) const { return kinds.empty() ? kind : kinds[index]; }

    // Where the keys come from; no batch at granularity page, where the ordinals count touches.
    const recording::Dictionary* dictionary = nullptr;
    const recording::Batch* batch = nullptr;
    std::span<const std::uint32_t> first_access;  // by block of the batch
    std::uint32_t begin = 0;                      // blocks [begin, end) of the batch
    std::uint32_t end = 0;
    std::uint64_t executions_before = 0;  // of all CPUs, before the batch
    std::uint64_t kernel_base = 0;
};

inline constexpr std::uint32_t kNoBlock = ~std::uint32_t{0};

struct Miss {
    Kind kind = Kind::kInstruction;
    Mode mode = Mode::kUser;
    Side side = Side::kUser;
    std::uint16_t instruction = 0;   // of the block: the one fetched, or the one that made the access
    std::uint32_t block = kNoBlock;  // dictionary entry; kNoBlock at granularity page
    std::uint64_t page = 0;          // in pages of Lookups::shift; of a larger entry, where it starts
    std::uint64_t address = 0;       // first byte of the reference on that page
    std::uint64_t position = 0;      // block executions of all CPUs that had begun before this one
};

// Replaces `misses` by what is known about each of lookups.walked: the misses that the ledger counts.
void locate(const Lookups& lookups, std::vector<Miss>& misses);

// A CPU changes to another space.
struct SpaceSwitch {
    CpuId cpu;
    SpaceId space;
    SpaceId recorded;
    addrspace::Asids::Switch to;
    std::span<const machine::Tlb* const> tlbs;  // by array, before they drop anything
};

// Software removes entries.
struct Removal {
    CpuId cpu;
    std::span<const machine::Tlb* const> tlbs;  // by array, before they drop anything
    std::function<bool(std::uint64_t key, bool reserved)> doomed;
    std::optional<std::uint32_t> array;  // only from this one
};

class Observer {
  public:
    virtual ~Observer() = default;
    virtual void looked_up(const Lookups& lookups) = 0;
    virtual void switching(const SpaceSwitch& to) = 0;
    virtual void removing(const Removal&) {}
};

}  // namespace tlbscope::replay
