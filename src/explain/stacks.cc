#include "explain/stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "explain/operands.h"
#include "replay/pipeline.h"

namespace tlbscope::explain {

namespace {

using recording::Batch;
using recording::Block;

constexpr unsigned kPageBits = 12;
// Pages of a per-CPU unit that are this close together belong to it: a unit's static part is some 200 KiB.
constexpr std::uint64_t kPercpuGapPages = 64;

bool is_wide(std::string_view target) { return target != "i386" && target != "ppc" && target != "riscv32"; }

// Pages, with the last one at hand: accesses of a class seldom change page.
class PageSet {
  public:
    void add(std::uint64_t page) {
        if (page == last_) return;
        last_ = page;
        pages_.insert(page);
    }
    [[nodiscard]] const std::unordered_set<std::uint64_t>& pages() const { return pages_; }

  private:
    std::uint64_t last_ = ~std::uint64_t{0};
    std::unordered_set<std::uint64_t> pages_;
};

}  // namespace

class StackFinder {
  public:
    StackFinder(const recording::Recording& recording, const KernelLayout& layout)
        : dictionary_(recording.dictionary()),
          layout_(layout),
          kernel_base_(recording.metadata().kernel_base) {
        const recording::Metadata& metadata = recording.metadata();
        const recording::Isa isa = recording::isa_of(metadata.target);
        const bool wide = is_wide(metadata.target);
        classes_.resize(dictionary_.slots().size(), OperandClass::kOther);
        worth_.resize(dictionary_.size());
        for (std::uint32_t id = 0; id < dictionary_.size(); ++id) {
            const Block& block = dictionary_[id];
            const Mode mode = mode_of(block);
            const auto lengths = dictionary_.lengths(block);
            const auto code = dictionary_.code(block);
            const auto shape = dictionary_.shape(block);
            std::size_t offset = 0;
            std::size_t instruction = 0;
            for (std::size_t i = 0; i < shape.size(); ++i) {
                while (instruction < shape[i].instruction) offset += lengths[instruction++];
                const OperandClass found = operand_class(
                    isa, wide, mode, code.subspan(offset, lengths[instruction]), shape[i].store);
                classes_[block.first_slot + i] = found;
                if (found != OperandClass::kOther) worth_[id] = true;
            }
        }
    }

    Result<void> consume(const Batch& batch) {
        SpaceId& space = spaces_[batch.cpu.value()];
        auto event = batch.events.begin();
        auto odd = batch.odd.begin();
        PageSet* user = &user_[space];
        std::size_t access = 0;
        for (std::uint32_t i = 0; i < batch.blocks.size(); ++i) {
            for (; event != batch.events.end() && event->position <= i; ++event)
                if (event->type == recording::EventType::kSwitchSpace) {
                    space = SpaceId(static_cast<std::uint32_t>(event->a));
                    user = &user_[space];
                }
            // An odd execution is a fault or a string instruction; its accesses do not matter here.
            if (odd != batch.odd.end() && odd->ordinal == i) {
                access += odd->slot_count;
                ++odd;
                continue;
            }
            const std::uint32_t id = batch.blocks[i];
            const Block& block = dictionary_[id];
            if (worth_[id]) {
                const Mode mode = mode_of(block);
                for (std::size_t slot = 0; slot < block.slot_count; ++slot) {
                    const OperandClass found = classes_[block.first_slot + slot];
                    if (found == OperandClass::kOther) continue;
                    const std::uint64_t address = batch.addresses[access + slot];
                    if ((address >= kernel_base_) != (mode == Mode::kKernel)) continue;
                    PageSet& set = mode == Mode::kUser              ? *user
                                   : found == OperandClass::kPercpu ? percpu_
                                                                    : stacks_;
                    set.add(address >> kPageBits);
                }
            }
            access += block.slot_count;
        }
        for (; event != batch.events.end(); ++event)
            if (event->type == recording::EventType::kSwitchSpace)
                space = SpaceId(static_cast<std::uint32_t>(event->a));
        return {};
    }

    StackPages take() {
        StackPages result;
        result.stack_bytes_ = layout_.stack_bytes();
        // Per-CPU data first: where both are certain (interrupt stacks are per CPU) the stack counts.
        std::vector<std::uint64_t> percpu(percpu_.pages().begin(), percpu_.pages().end());
        std::sort(percpu.begin(), percpu.end());
        for (std::size_t i = 0; i < percpu.size(); ++i) {
            result.kernel_[percpu[i]] = Region::kKernelPercpu;
            if (i == 0 || percpu[i] - percpu[i - 1] > kPercpuGapPages ||
                layout_.at(percpu[i] << kPageBits) != Region::kKernelLinear)
                continue;
            for (std::uint64_t page = percpu[i - 1] + 1; page < percpu[i]; ++page) {
                result.kernel_[page] = Region::kKernelPercpu;
                ++result.percpu_.inferred;
            }
        }
        result.percpu_.certain = percpu.size();
        const std::uint64_t stack_pages = layout_.stack_bytes() >> kPageBits;
        std::unordered_set<std::uint64_t> inferred;
        for (const std::uint64_t page : stacks_.pages()) {
            result.kernel_[page] = Region::kKernelStack;
            ++result.stacks_.certain;
            if (stack_pages == 0 || layout_.at(page << kPageBits) != Region::kKernelVmalloc) continue;
            const std::uint64_t first = page / stack_pages * stack_pages;
            for (std::uint64_t other = first; other < first + stack_pages; ++other)
                if (!stacks_.pages().contains(other)) inferred.insert(other);
        }
        for (const std::uint64_t page : inferred) result.kernel_[page] = Region::kKernelStack;
        result.stacks_.inferred = inferred.size();
        for (const auto& [space, set] : user_)
            if (!set.pages().empty()) result.user_[space] = set.pages();
        return result;
    }

  private:
    [[nodiscard]] Mode mode_of(const Block& block) const {
        return block.address.value() >= kernel_base_ ? Mode::kKernel : Mode::kUser;
    }

    const recording::Dictionary& dictionary_;
    const KernelLayout& layout_;
    std::uint64_t kernel_base_;
    std::vector<OperandClass> classes_;        // by slot of the dictionary
    std::vector<bool> worth_;                  // by entry: some slot is of a class
    std::map<std::uint32_t, SpaceId> spaces_;  // by CPU
    PageSet stacks_;
    PageSet percpu_;
    std::map<SpaceId, PageSet> user_;
};

Region StackPages::kernel_region(std::uint64_t page) const {
    const auto found = kernel_.find(page);
    return found == kernel_.end() ? Region::kUnknown : found->second;
}

bool StackPages::is_user_stack(SpaceId space, std::uint64_t page) const {
    const auto set = user_.find(space);
    return set != user_.end() && set->second.contains(page);
}

std::string StackPages::note() const {
    if (stacks_.certain + percpu_.certain == 0) return {};
    std::string text = fmt::format(
        "kernel stacks: {} pages were addressed through the stack pointer (certain)", stacks_.certain);
    if (stacks_.inferred > 0)
        text += fmt::format(", {} more lie in the same aligned {} KiB (inferred)", stacks_.inferred,
                            stack_bytes_ / 1024);
    if (percpu_.certain > 0) {
        text += fmt::format("; per-CPU data: {} pages were addressed through the per-CPU register (certain)",
                            percpu_.certain);
        if (percpu_.inferred > 0) text += fmt::format(", {} lie between those (inferred)", percpu_.inferred);
    }
    return text;
}

Result<StackPages> find_stacks(const recording::Recording& recording, const KernelLayout& layout,
                               unsigned threads) {
    StackFinder finder(recording, layout);
    auto done = replay::for_each_batch(
        recording, std::min(threads - 1, 3U), [&](const Batch& batch) { return finder.consume(batch); },
        [](std::size_t) {});
    if (!done) {
        Error error = done.error();
        if (error.where.empty()) error.where = recording.path().string();
        return std::unexpected(error);
    }
    return finder.take();
}

}  // namespace tlbscope::explain
