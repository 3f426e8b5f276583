#include "explain/attribution.h"

#include <utility>

namespace tlbscope::explain {

namespace {
constexpr unsigned kRegionShift = 12;  // regions begin and end on pages of 4 KiB
}

Attribution::Attribution(const machine::Machine& machine, const recording::Dictionary& dictionary,
                         std::uint64_t kernel_base, Naming naming, const Question& question)
    : dictionary_(&dictionary),
      kernel_base_(kernel_base),
      naming_(std::move(naming)),
      wants_function_(question.instructions || question.needs(Dimension::kFunction) ||
                      question.needs(Dimension::kObject)),
      wants_page_(question.needs(Dimension::kPage)),
      wants_space_(question.needs(Dimension::kSpace)),
      wants_mode_(question.needs(Dimension::kMode)),
      wants_kind_(question.instructions || question.needs(Dimension::kKind)),
      wants_side_(question.needs(Dimension::kSide)),
      wants_region_(question.needs(Dimension::kRegion)),
      wants_cause_(question.instructions || question.needs(Dimension::kCause)),
      wants_instruction_(question.instructions),
      shift_(machine.pages.base),
      causes_(machine),
      block_functions_(dictionary.size()) {
    function_numbers_.emplace(std::pair(kUnknown, kUnknown), 0);
}

void Attribution::looked_up(const replay::Lookups& lookups) {
    shift_ = lookups.shift;
    causes_.looked_up(lookups, batch_causes_);
    if (lookups.walked.empty()) return;
    replay::locate(lookups, batch_misses_);
    for (std::size_t i = 0; i < batch_misses_.size(); ++i) {
        const replay::Miss& miss = batch_misses_[i];
        ++misses_.at(miss.kind, miss.mode, miss.side);
        Cell cell;
        if (wants_page_) cell.page = miss.page;
        if (wants_function_) cell.function = function_of(miss, lookups.recorded);
        if (wants_instruction_) cell.instruction = instruction_address(miss);
        if (wants_space_) cell.space = miss.side == Side::kKernel ? kKernelSpace : lookups.space.value();
        if (wants_mode_) cell.mode = miss.mode;
        if (wants_kind_) cell.kind = miss.kind;
        if (wants_side_) cell.side = miss.side;
        if (wants_region_) cell.region = region_of(miss, lookups.recorded);
        if (wants_cause_) cell.cause = batch_causes_[i];
        ++cells_[cell];
    }
}

std::uint64_t Attribution::instruction_address(const replay::Miss& miss) const {
    if (miss.block == replay::kNoBlock) return 0;
    const recording::Block& block = (*dictionary_)[miss.block];
    return dictionary_->instruction_address(block, miss.instruction).value();
}

std::uint32_t Attribution::function_of(const replay::Miss& miss, SpaceId recorded) {
    if (miss.block == replay::kNoBlock) return 0;
    const recording::Block& block = (*dictionary_)[miss.block];
    // The kernel's code has the same names in every space.
    const std::uint32_t space = block.address.value() >= kernel_base_ ? kKernelSpace : recorded.value();
    BlockFunction& cached = block_functions_[miss.block];
    if (!cached.known || cached.space != space) {
        // A smaller symbol may lie within a larger one, so the ends do not speak for what is between.
        cached = {.space = space, .function = 0, .known = true, .uniform = true};
        std::uint64_t address = block.address.value();
        const auto lengths = dictionary_->lengths(block);
        for (std::size_t i = 0; i < lengths.size(); ++i) {
            const std::uint32_t function = function_at(recorded, address);
            if (i == 0) cached.function = function;
            cached.uniform = cached.uniform && function == cached.function;
            address += lengths[i];
        }
    }
    if (cached.uniform || miss.instruction == 0) return cached.function;
    return function_at(recorded, instruction_address(miss));
}

std::string object_of(const Name& name) { return name.object.empty() ? kUnknown : std::string(name.object); }

std::uint32_t Attribution::function_at(SpaceId recorded, std::uint64_t address) {
    const Name name = naming_.function_at(recorded, VirtAddr(address));
    // Texts of the same place are the same: strings are compared only where a text is new.
    std::uint32_t& number = text_numbers_[{.function = name.function.data(),
                                           .object = name.object.data(),
                                           .function_size = name.function.size(),
                                           .object_size = name.object.size()}];
    if (number == 0) {
        const auto [place, fresh] = function_numbers_.try_emplace(
            {std::string(name.function), object_of(name)}, static_cast<std::uint32_t>(functions_.size()));
        if (fresh) functions_.push_back({.name = place->first.first, .object = place->first.second});
        number = place->second + 1;
    }
    return number - 1;
}

Region Attribution::region_of(const replay::Miss& miss, SpaceId recorded) {
    const std::uint64_t page = miss.address >> kRegionShift;
    std::uint8_t& region =
        regions_[{.page = page, .space = miss.side == Side::kKernel ? kKernelSpace : recorded.value()}];
    if (region == 0)
        region = static_cast<std::uint8_t>(
            1 + static_cast<unsigned>(naming_.region_of(recorded, VirtAddr(page << kRegionShift))));
    return static_cast<Region>(region - 1);
}

}  // namespace tlbscope::explain
