// From executions to touches: a batch of one CPU becomes two lists of TLB keys, fetches and accesses, in
// which no key repeats the one before it, with the counts that the left-out repeats would have given.
//
// A repeat of the last key hits in every array and changes the state of none (FIFO and random ignore hits,
// LRU's most recent entry stays it), so leaving repeats out is exact. Fetches and accesses can be separate
// lists because they go to separate arrays; the ordinals tell where in the batch each touch happened, for
// whoever must merge them.
//
// The loop over blocks reads one BlockEntry each and keeps a key only when it differs, without a branch on
// it; what is rare (a change of mode, a block on several pages, a repeated string instruction, an odd
// execution, an access that may lie on two pages) leaves the loop.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/error.h"
#include "machine/tlb.h"
#include "recording/batch.h"
#include "recording/dictionary.h"
#include "recording/recording.h"
#include "replay/block_table.h"
#include "replay/counts.h"

namespace tlbscope::replay {

struct TouchList {
    std::vector<std::uint64_t> keys;  // the first `count` are valid
    std::vector<std::uint32_t>
        ordinals;  // fetches: block within the batch; accesses: address within the batch
    std::size_t count = 0;

    // Room for `more` keys behind the present ones, and for what vector stores may overwrite.
    void make_room(std::size_t more);
    void push(std::uint64_t key, std::uint32_t ordinal) {
        keys[count] = key;
        ordinals[count] = ordinal;
        ++count;
    }
    [[nodiscard]] std::span<const std::uint64_t> valid() const { return std::span(keys).first(count); }
};

// From this block and this access of the batch on, code runs in this mode.
struct ModeRun {
    std::uint32_t first_block = 0;
    std::uint32_t first_access = 0;
    Mode mode = Mode::kUser;
};

// Working memory of a collector, and its result; can be shared by collectors that take turns.
struct Touches {
    TouchList fetches;
    TouchList accesses;
    std::vector<ModeRun> modes;
    std::vector<std::uint32_t> first_access;  // by block of the batch
    std::vector<std::uint32_t> candidates;    // accesses that may lie on two pages
    std::vector<PageRun> runs;
};

// What has been collected from one CPU so far.
struct Collected {
    Counts references;
    Counts lookups;
    std::array<std::uint64_t, 2> iterations{};  // by side
    std::array<std::uint64_t, 2> presented{};   // by kind: keys that went into the lists
};

class TouchCollector {
  public:
    TouchCollector(const recording::Dictionary& dictionary, std::shared_ptr<const BlockTable> blocks,
                   PageShift shift, std::uint64_t kernel_base);

    // User-side addresses belong to the space with this tag from here on.
    void set_tag(std::uint16_t tag) { user_tag_ = std::uint64_t{tag} << machine::kTagShift; }
    // Entries were dropped from the arrays: the last keys may be gone.
    void forget_last() { last_fetch_ = last_access_ = machine::kNoKey; }

    // Blocks [begin, end) of a batch, the first of which makes the batch's access `first_access` next.
    // Returns the number of the access that follows them. Block numbers must be the dictionary's.
    Result<std::uint32_t> collect(const recording::Batch& batch, std::uint32_t begin, std::uint32_t end,
                                  std::uint32_t first_access, Touches& touches);

    // The same from a chunk of a page-granularity recording, whose touches begin a run of references to their
    // page. Ordinals are positions among the touches.
    void collect(const recording::PageTouches& pages, Touches& touches);

    [[nodiscard]] const Collected& collected() const { return collected_; }
    [[nodiscard]] std::uint64_t key(std::uint64_t page, Side side) const {
        return page | (side == Side::kKernel ? 0 : user_tag_);
    }

  private:
    class Pass;

    void remember_last(const recording::Batch& batch, std::uint32_t at);

    [[nodiscard]] std::uint8_t size_log2(const recording::Batch& batch, const Touches& touches,
                                         std::uint32_t begin, std::uint32_t end, std::uint32_t access) const;
    void collect_accesses(const recording::Batch& batch, std::uint32_t begin, std::uint32_t end,
                          std::uint32_t first, std::uint32_t last, Touches& touches);
    // Accesses [first, last), none of which but the last lies on more than one page, all made in `mode`.
    void collapse(const recording::Batch& batch, std::uint32_t first, std::uint32_t last, Mode mode,
                  Touches& touches);
    // The further pages of an access that lies on several.
    void straddle(std::uint64_t address, std::uint64_t bytes, std::uint32_t ordinal, Mode mode,
                  Touches& touches);

    const recording::Dictionary* dictionary_;
    std::shared_ptr<const BlockTable> blocks_;
    PageShift shift_;
    std::uint64_t kernel_base_;
    std::uint8_t largest_access_log2_ = 0;  // in any shape

    std::uint64_t user_tag_ = 0;
    std::uint64_t last_fetch_ = machine::kNoKey;
    std::uint64_t last_access_ = machine::kNoKey;
    Mode mode_ = Mode::kUser;
    std::uint64_t last_instruction_ = 0;  // address of the last instruction that began
    bool any_instruction_ = false;
    Collected collected_;
};

}  // namespace tlbscope::replay
