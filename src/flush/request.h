// What the kernel's memory management asks of its flush code, and what the flush code asks of the hardware.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/tlb_operation.h"
#include "core/types.h"
#include "flush/cpus.h"

namespace tlbscope::flush {

// The kernel's entry points.
enum class RequestKind : std::uint8_t {
    kGather,     // tlb_finish_mmu: what one operation collected
    kRange,      // flush_tlb_range
    kPage,       // flush_tlb_page: an entry that was replaced
    kSpace,      // flush_tlb_mm
    kRelax,      // ptep_set_access_flags: an entry that got more rights
    kSpurious,   // flush_tlb_fix_spurious_fault: an entry that was good already
    kInstalled,  // update_mmu_cache: an entry where none was; only RISC-V flushes for it
};

// Why memory management asked.
enum class Reason : std::uint8_t {
    kUnmap,
    kDiscard,
    kProtect,
    kMove,
    kCopyOnWrite,
    kFault,
    kFork,
    kExec,
    kExit,
    kCollapse,  // pages became one huge page (khugepaged)
};
inline constexpr std::size_t kReasons = 10;

[[nodiscard]] constexpr std::string_view name_of(Reason reason) {
    constexpr std::string_view kNames[] = {"unmap", "discard", "protect", "move", "copy-on-write",
                                           "fault", "fork",    "exec",    "exit", "collapse"};
    return kNames[static_cast<std::size_t>(reason)];
}

struct Request {
    RequestKind kind = RequestKind::kGather;
    Reason reason = Reason::kUnmap;
    SpaceId space;
    std::uint32_t cpu = 0;         // that asks
    std::uint32_t users = 1;       // threads that use the space (mm_users)
    bool current = true;           // the asking task runs in the space
    bool whole = false;            // the space is being taken down (fullmm)
    bool freed_tables = false;     // tables were taken out of the tree: the walk cache must forget them
    std::uint64_t start = 0;       // translations removed or restricted: [start, end)
    std::uint64_t end = 0;         // equal to start: none were
    std::uint64_t wide_start = 0;  // what a kernel before 5.19 flushed for mprotect: the whole range
    std::uint64_t wide_end = 0;
    std::uint64_t resident = 0;  // pages of the space that have an entry
};

// One flush that the hardware is told, between two barriers.
struct Operation {
    TlbScope scope = TlbScope::kPage;
    bool global = false;      // by broadcast; otherwise each of `cpus` does it for itself
    bool walk_cache = false;  // empties the page-walk cache of the space too
    SpaceId space;
    std::uint64_t start = 0;  // page and range
    std::uint64_t end = 0;
    CpuSet cpus;  // that execute it
    Reason reason = Reason::kUnmap;
};

// What flushes cost, in counts. An operation that n CPUs execute for themselves is n local operations.
struct Tally {
    using ByScope = std::array<std::uint64_t, kTlbScopes>;
    std::uint64_t requests = 0;
    std::uint64_t skipped = 0;  // requests for which nothing had to be done
    ByScope local{};            // operations
    ByScope global{};
    ByScope local_instructions{};  // invalidating instructions, by what one instruction names
    ByScope global_instructions{};
    std::uint64_t local_barriers = 0;  // pairs: one before the instructions and one after
    std::uint64_t global_barriers = 0;
    std::uint64_t fences = 0;        // barrier instructions: ptesync, dsb
    std::uint64_t syncs = 0;         // tlbsync
    std::uint64_t ipis = 0;          // rounds of interrupting others
    std::uint64_t interrupted = 0;   // CPUs interrupted, summed over the rounds
    std::uint64_t dropped = 0;       // translations that flushes removed
    std::uint64_t live_dropped = 0;  // those of them whose page had not changed
    std::uint64_t refills = 0;       // misses on translations that were dropped alive

    [[nodiscard]] std::uint64_t instructions(bool of_global) const {
        std::uint64_t sum = 0;
        for (const std::uint64_t n : of_global ? global_instructions : local_instructions) sum += n;
        return sum;
    }
    [[nodiscard]] std::uint64_t operations() const {
        std::uint64_t sum = 0;
        for (std::size_t scope = 0; scope < kTlbScopes; ++scope) sum += local[scope] + global[scope];
        return sum;
    }
    [[nodiscard]] std::uint64_t barriers() const { return local_barriers + global_barriers; }
    Tally& operator+=(const Tally& other);
    friend bool operator==(const Tally&, const Tally&) = default;
};

// How many pages the flushes had that could go by page or by space: the ground on which a ceiling is chosen.
struct FlushSizes {
    static constexpr std::size_t kLargest = 1024;  // the last counts this many and more
    std::array<std::uint64_t, kLargest + 1> local{};
    std::array<std::uint64_t, kLargest + 1> global{};  // that concern other CPUs too
    std::uint64_t requests = 0;
    std::uint64_t resident =
        0;  // pages with an entry in the space, summed over the requests, each counted up
    std::uint64_t most = ~std::uint64_t{0};  // to what a TLB holds
    void add(std::uint64_t pages, bool others, std::uint64_t in_space) {
        ++(others ? global : local)[pages < kLargest ? pages : kLargest];
        ++requests;
        resident += in_space < most ? in_space : most;
    }
};

struct Account {
    std::array<Tally, kReasons> by_reason{};
    [[nodiscard]] Tally& of(Reason reason) { return by_reason[static_cast<std::size_t>(reason)]; }
    [[nodiscard]] const Tally& of(Reason reason) const { return by_reason[static_cast<std::size_t>(reason)]; }
    [[nodiscard]] Tally total() const;
};

}  // namespace tlbscope::flush
