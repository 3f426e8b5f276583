// What the memory operand of an instruction says about the place it accesses: the stack pointer addresses a
// stack, and kernels reach per-CPU data in a way of their own.
#pragma once

#include <cstdint>
#include <span>

#include "core/types.h"
#include "recording/isa.h"

namespace tlbscope::explain {

enum class OperandClass : std::uint8_t { kOther, kStack, kPercpu };

// Of the access that the instruction in `bytes` makes as a load or store. `wide` is 64-bit code. Certain
// where it says kStack: the address was computed from the stack pointer, or the instruction pushes or pops.
[[nodiscard]] OperandClass operand_class(recording::Isa isa, bool wide, Mode mode,
                                         std::span<const std::uint8_t> bytes, bool store);

}  // namespace tlbscope::explain
