#include "replay/program_order.h"

#include <algorithm>

namespace tlbscope::replay {

namespace {

class Order {
  public:
    Order(const TouchCollector& collector, PageShift shift, std::uint64_t kernel_base,
          std::vector<Touch>& touches)
        : collector_(collector), shift_(shift.value()), kernel_base_(kernel_base), touches_(touches) {}

    // A reference of `bytes` from `address`; every page it lies on is a touch. Addresses wrap at the top.
    void reference(std::uint64_t address, std::uint64_t bytes, Touch touch) {
        const std::uint64_t offset = address & ((std::uint64_t{1} << shift_) - 1);
        const std::uint64_t further = (offset + bytes - (bytes == 0 ? 0 : 1)) >> shift_;
        for (std::uint64_t i = 0; i <= further; ++i) {
            const std::uint64_t start = i == 0 ? address : ((address >> shift_) + i) << shift_;
            const Side side = start >= kernel_base_ ? Side::kKernel : Side::kUser;
            touch.key = collector_.key(start >> shift_, side);
            if (!touches_.empty() && touches_.back().key == touch.key && touches_.back().kind == touch.kind &&
                touches_.back().mode == touch.mode)
                ++touches_.back().lookups;
            else
                touches_.push_back(touch);
        }
    }

  private:
    const TouchCollector& collector_;
    unsigned shift_;
    std::uint64_t kernel_base_;
    std::vector<Touch>& touches_;
};

}  // namespace

void in_program_order(const recording::Dictionary& dictionary, const TouchCollector& collector,
                      PageShift shift, std::uint64_t kernel_base, const recording::Batch& batch,
                      std::uint32_t begin, std::uint32_t end, const std::vector<std::uint32_t>& first_access,
                      std::vector<Touch>& touches) {
    touches.clear();
    Order order(collector, shift, kernel_base, touches);
    auto odd = std::lower_bound(
        batch.odd.begin(), batch.odd.end(), begin,
        [](const recording::OddExecution& execution, std::uint32_t at) { return execution.ordinal < at; });
    for (std::uint32_t at = begin; at < end; ++at) {
        const recording::Block& block = dictionary[batch.blocks[at]];
        const auto lengths = dictionary.lengths(block);
        std::size_t begun = block.instructions;
        std::span<const recording::Slot> slots = dictionary.shape(block);
        if (odd != batch.odd.end() && odd->ordinal == at) {
            begun = odd->instructions;
            slots = batch.odd_slots.subspan(odd->first_slot, odd->slot_count);
            ++odd;
        }
        Touch touch{.ordinal = at,
                    .block = at,
                    .mode = block.address.value() >= kernel_base ? Mode::kKernel : Mode::kUser};
        std::uint64_t address = block.address.value();
        std::uint32_t access = first_access[at];
        std::size_t slot = 0;
        for (std::size_t i = 0; i < begun; ++i) {
            touch.instruction = static_cast<std::uint16_t>(i);
            touch.kind = Kind::kInstruction;
            touch.ordinal = at;
            order.reference(address, lengths[i], touch);
            touch.kind = Kind::kData;
            for (; slot < slots.size() && slots[slot].instruction == i; ++slot) {
                touch.ordinal = access;
                order.reference(batch.addresses[access++],
                                std::uint64_t{1} << std::min<std::uint8_t>(slots[slot].size_log2, 63), touch);
            }
            address += lengths[i];
        }
    }
}

}  // namespace tlbscope::replay
