#include "replay/block_table.h"

namespace tlbscope::replay {

BlockTable::BlockTable(const recording::Dictionary& dictionary, PageShift shift, std::uint64_t kernel_base)
    : dictionary_(&dictionary), shift_(shift), kernel_base_(kernel_base) {
    entries_.reserve(dictionary.size());
    first_run_.push_back(0);
    std::vector<PageRun> runs;
    for (std::uint32_t id = 0; id < dictionary.size(); ++id) {
        const recording::Block& block = dictionary[id];
        BlockEntry entry{.page = block.address.page(shift).value(),
                         .instructions = block.instructions,
                         .accesses = block.slot_count};
        const bool kernel = block.address.value() >= kernel_base;
        if (kernel) entry.flags |= kKernelMode;
        if (block.starts_with_repeat) entry.flags |= kRepeat;
        runs_of(id, block.instructions, runs);
        if (runs.size() != 1) {
            entry.flags |= kSeveralRuns | static_cast<std::uint32_t>(first_run_.size() - 1) << kRunsShift;
            runs_.insert(runs_.end(), runs.begin(), runs.end());
            first_run_.push_back(static_cast<std::uint32_t>(runs_.size()));
        }
        entries_.push_back(entry);
    }
}

std::span<const PageRun> BlockTable::runs(const BlockEntry& entry) const {
    const std::uint32_t list = entry.flags >> kRunsShift;
    return std::span(runs_).subspan(first_run_[list], first_run_[list + 1] - first_run_[list]);
}

void BlockTable::runs_of(std::uint32_t block, std::uint16_t instructions, std::vector<PageRun>& runs) const {
    runs.clear();
    const recording::Block& entry = (*dictionary_)[block];
    const auto lengths = dictionary_->lengths(entry);
    std::uint64_t address = entry.address.value();
    const auto touch = [&](std::uint64_t at, bool begins) {
        const std::uint64_t page = at >> shift_.value();
        const Side side = at >= kernel_base_ ? Side::kKernel : Side::kUser;
        if (runs.empty() || runs.back().page != page || runs.back().side != side)
            runs.push_back({.page = page, .fetches = 0, .lookups = 0, .side = side});
        runs.back().fetches = static_cast<std::uint16_t>(runs.back().fetches + (begins ? 1 : 0));
        ++runs.back().lookups;
    };
    for (std::size_t i = 0; i < instructions; ++i) {
        touch(address, true);
        const std::uint64_t last_byte = address + lengths[i] - (lengths[i] == 0 ? 0 : 1);
        // An instruction is far shorter than a page, so it lies on two at most.
        if (last_byte >> shift_.value() != address >> shift_.value())
            touch(last_byte >> shift_.value() << shift_.value(), false);
        address += lengths[i];
    }
}

}  // namespace tlbscope::replay
