// The dictionary of a recording: every translated block that ran, once per translation and shape. Executions
// refer to entries by number, so whatever holds for each execution of a block (its pages, its instruction
// boundaries, which instruction makes which access) is kept and computed once.
//
// A shape is the list of accesses that an execution of the block normally makes. The same translation can
// have several entries with different shapes (a `rep movs` that copies nothing and one that copies).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/types.h"

namespace tlbscope::recording {

// One access an instruction of a block makes.
struct Slot {
    std::uint16_t instruction = 0;  // index within the block; never less than the slot's before it
    std::uint8_t size_log2 = 0;     // bytes accessed, as a power of two
    bool store = false;
    friend bool operator==(const Slot&, const Slot&) = default;
};

struct Block {
    VirtAddr address;                // of the first instruction
    std::uint32_t bytes = 0;         // from the first to behind the last instruction
    std::uint32_t first_slot = 0;    // shape: slots()[first_slot, first_slot + slot_count)
    std::uint32_t first_code = 0;    // instruction bytes: code()[first_code, first_code + bytes)
    std::uint32_t first_length = 0;  // lengths()[first_length, first_length + instructions)
    std::uint16_t instructions = 0;
    std::uint16_t slot_count = 0;
    bool starts_with_repeat = false;  // first instruction is a repeated string instruction (x86 REP)
    std::uint8_t last_length = 0;     // bytes of the last instruction

    [[nodiscard]] VirtAddr last_instruction() const { return address + (bytes - last_length); }
};

class Dictionary {
  public:
    // Appends an entry and returns its number. `lengths` are the instructions' byte counts, `code` their
    // bytes (code.size() is the sum of lengths).
    std::uint32_t add(VirtAddr address, std::span<const std::uint8_t> lengths,
                      std::span<const std::uint8_t> code, std::span<const Slot> shape,
                      bool starts_with_repeat);

    [[nodiscard]] std::size_t size() const { return blocks_.size(); }
    [[nodiscard]] const Block& operator[](std::uint32_t id) const { return blocks_[id]; }
    [[nodiscard]] std::span<const Block> blocks() const { return blocks_; }
    [[nodiscard]] std::span<const Slot> slots() const { return slots_; }
    [[nodiscard]] std::span<const Slot> shape(const Block& block) const {
        return std::span(slots_).subspan(block.first_slot, block.slot_count);
    }
    [[nodiscard]] std::span<const std::uint8_t> lengths(const Block& block) const {
        return std::span(lengths_).subspan(block.first_length, block.instructions);
    }
    // Of an instruction by its index within the block.
    [[nodiscard]] VirtAddr instruction_address(const Block& block, std::size_t index) const {
        std::uint64_t offset = 0;
        for (const std::uint8_t length : lengths(block).first(index)) offset += length;
        return block.address + offset;
    }
    [[nodiscard]] std::span<const std::uint8_t> code(const Block& block) const {
        return std::span(code_).subspan(block.first_code, block.bytes);
    }

  private:
    std::vector<Block> blocks_;
    std::vector<Slot> slots_;
    std::vector<std::uint8_t> lengths_;
    std::vector<std::uint8_t> code_;
};

}  // namespace tlbscope::recording
