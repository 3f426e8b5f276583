// Recognising the few instructions that matter to address translation, from their bytes: marks,
// invalidations, barriers, and repeated string instructions. Used when QEMU translates a block and when a
// dictionary is read.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "recording/batch.h"

namespace tlbscope::recording {

enum class Isa : std::uint8_t { kOther, kX86, kPowerBig, kPowerLittle, kArm64, kRiscv };

// QEMU's target name ("x86_64", "ppc", "ppc64le", "aarch64", "riscv64", ...) -> instruction set.
[[nodiscard]] Isa isa_of(std::string_view target);

// Marks from here up belong to tlbscope itself.
inline constexpr std::uint16_t kFirstOwnMark = 0xff00;
enum class OwnMark : std::uint16_t {
    kArm = 0xff00,    // switch full recording on; the window opens later, at kBegin
    kBegin = 0xff01,  // the command starts
    kEnd = 0xff02,    // the command has ended
    kChannel =
        0xff03,  // the low 16 bits of the following instruction's load address are data for the recorder
};

enum class InstructionClass : std::uint8_t { kPlain, kMark, kInvalidate, kBarrier };

struct Recognised {
    InstructionClass what = InstructionClass::kPlain;
    std::uint64_t value = 0;  // mark number, Invalidation or Barrier
};

// The instruction at the start of `bytes`, which hold `length` bytes of it; where a mark takes two
// instructions, `following` is the next one (empty at a block's end: the first half alone then counts).
[[nodiscard]] Recognised recognise(Isa isa, std::span<const std::uint8_t> bytes,
                                   std::span<const std::uint8_t> following);

// Whether this is an x86 string instruction with a REP prefix: QEMU runs each iteration as an execution of
// its own.
[[nodiscard]] bool is_repeated_string(Isa isa, std::span<const std::uint8_t> bytes);

}  // namespace tlbscope::recording
