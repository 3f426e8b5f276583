// What the dictionary says about each block, boiled down for one page size: 16 bytes that the loop over
// executions reads per block, and a list of page runs for the few blocks that lie on more than one page.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/types.h"
#include "recording/dictionary.h"

namespace tlbscope::replay {

// Fetches of one execution on one page, in program order.
struct PageRun {
    std::uint64_t page = 0;
    std::uint16_t fetches = 0;  // instructions that begin here
    std::uint16_t lookups = 0;  // the same and those that end here
    Side side = Side::kUser;
};

struct BlockEntry {
    std::uint64_t page = 0;          // of a block with one run
    std::uint16_t instructions = 0;  // fetches and, with one run, lookups
    std::uint16_t accesses = 0;
    std::uint32_t flags =
        0;  // kKernelMode | kRepeat | index of the first run, when there are several, << kRunsShift
};

inline constexpr std::uint32_t kKernelMode = 1;  // the block's address is on the kernel's side
inline constexpr std::uint32_t kRepeat = 2;      // it starts with a repeated string instruction
inline constexpr std::uint32_t kSeveralRuns = 4;
inline constexpr unsigned kRunsShift = 3;

class BlockTable {
  public:
    BlockTable(const recording::Dictionary& dictionary, PageShift shift, std::uint64_t kernel_base);

    [[nodiscard]] const BlockEntry* entries() const { return entries_.data(); }
    // Of an entry with kSeveralRuns.
    [[nodiscard]] std::span<const PageRun> runs(const BlockEntry& entry) const;
    // Of an execution in which only the first `instructions` of the block began.
    void runs_of(std::uint32_t block, std::uint16_t instructions, std::vector<PageRun>& runs) const;

  private:
    const recording::Dictionary* dictionary_;
    PageShift shift_;
    std::uint64_t kernel_base_;
    std::vector<BlockEntry> entries_;
    std::vector<std::uint32_t> first_run_;  // by number of the list; one past the last as well
    std::vector<PageRun> runs_;
};

}  // namespace tlbscope::replay
