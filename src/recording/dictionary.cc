#include "recording/dictionary.h"

namespace tlbscope::recording {

std::uint32_t Dictionary::add(VirtAddr address, std::span<const std::uint8_t> lengths,
                              std::span<const std::uint8_t> code, std::span<const Slot> shape,
                              bool starts_with_repeat) {
    Block block;
    block.address = address;
    block.bytes = static_cast<std::uint32_t>(code.size());
    block.first_slot = static_cast<std::uint32_t>(slots_.size());
    block.first_code = static_cast<std::uint32_t>(code_.size());
    block.first_length = static_cast<std::uint32_t>(lengths_.size());
    block.instructions = static_cast<std::uint16_t>(lengths.size());
    block.slot_count = static_cast<std::uint16_t>(shape.size());
    block.starts_with_repeat = starts_with_repeat;
    block.last_length = lengths.empty() ? std::uint8_t{0} : lengths.back();
    slots_.insert(slots_.end(), shape.begin(), shape.end());
    code_.insert(code_.end(), code.begin(), code.end());
    lengths_.insert(lengths_.end(), lengths.begin(), lengths.end());
    blocks_.push_back(block);
    return static_cast<std::uint32_t>(blocks_.size() - 1);
}

}  // namespace tlbscope::recording
