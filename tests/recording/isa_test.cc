// Bytes of instructions as assemblers write them.
#include "recording/isa.h"

#include <gtest/gtest.h>

#include <vector>

namespace tlbscope::recording {
namespace {

using Bytes = std::vector<std::uint8_t>;

void expect(Isa isa, const Bytes& bytes, const Bytes& following, InstructionClass what, std::uint64_t value) {
    const Recognised found = recognise(isa, bytes, following);
    EXPECT_EQ(found.what, what);
    EXPECT_EQ(found.value, value);
}

TEST(Isa, Marks) {
    expect(Isa::kX86, {0x0f, 0x1f, 0x84, 0x00, 0x34, 0x12, 0x6c, 0x74}, {}, InstructionClass::kMark, 0x1234);
    // An ordinary eight-byte no-op.
    expect(Isa::kX86, {0x0f, 0x1f, 0x84, 0x00, 0, 0, 0, 0}, {}, InstructionClass::kPlain, 0);
    expect(Isa::kPowerBig, {0x68, 0x00, 0x12, 0x34}, {0x68, 0x00, 0x12, 0x34}, InstructionClass::kMark,
           0x1234);
    expect(Isa::kPowerBig, {0x68, 0x00, 0x12, 0x34}, {0x68, 0x00, 0x12, 0x35}, InstructionClass::kPlain, 0);
    expect(Isa::kPowerLittle, {0x34, 0x12, 0x00, 0x68}, {0x34, 0x12, 0x00, 0x68}, InstructionClass::kMark,
           0x1234);
    expect(Isa::kArm64, {0x9f, 0x46, 0x82, 0xd2}, {}, InstructionClass::kMark, 0x1234);  // movz xzr, #0x1234
    expect(Isa::kArm64, {0x9f, 0x8d, 0x8e, 0xd2}, {}, InstructionClass::kPlain, 0);      // movz xzr, #0x746c
    expect(Isa::kRiscv, {0x37, 0x40, 0x23, 0x01}, {}, InstructionClass::kMark, 0x1234);  // lui x0, 0x1234
}

TEST(Isa, X86Invalidations) {
    const auto invalidate = InstructionClass::kInvalidate;
    expect(Isa::kX86, {0x0f, 0x22, 0xd8}, {}, invalidate, 2);                // mov %rax, %cr3
    expect(Isa::kX86, {0x0f, 0x22, 0xdf}, {}, invalidate, 2);                // mov %rdi, %cr3
    expect(Isa::kX86, {0x41, 0x0f, 0x22, 0xdc}, {}, invalidate, 2);          // mov %r12, %cr3
    expect(Isa::kX86, {0x0f, 0x22, 0xe0}, {}, InstructionClass::kPlain, 0);  // mov %rax, %cr4
    expect(Isa::kX86, {0x0f, 0x01, 0x38}, {}, invalidate, 1);                // invlpg (%rax)
    expect(Isa::kX86, {0x41, 0x0f, 0x01, 0x3c, 0x24}, {}, invalidate, 1);    // invlpg (%r12)
    expect(Isa::kX86, {0x0f, 0x01, 0xf8}, {}, InstructionClass::kPlain, 0);  // swapgs
    expect(Isa::kX86, {0x66, 0x0f, 0x38, 0x82, 0x08}, {}, invalidate, 3);    // invpcid (%rax), %rcx
}

TEST(Isa, PowerInvalidationsAndBarriers) {
    // tlbie r3,r4 ; tlbiel r3 ; slbia ; ptesync ; tlbsync ; sync (no barrier of translations)
    expect(Isa::kPowerBig, {0x7c, 0x80, 0x1a, 0x64}, {}, InstructionClass::kInvalidate, 16);
    expect(Isa::kPowerBig, {0x7c, 0x00, 0x1a, 0x24}, {}, InstructionClass::kInvalidate, 17);
    expect(Isa::kPowerBig, {0x7c, 0x00, 0x03, 0xe4}, {}, InstructionClass::kInvalidate, 18);
    expect(Isa::kPowerBig, {0x7c, 0x40, 0x04, 0xac}, {}, InstructionClass::kBarrier, 1);
    expect(Isa::kPowerBig, {0x7c, 0x00, 0x04, 0x6c}, {}, InstructionClass::kBarrier, 2);
    expect(Isa::kPowerBig, {0x7c, 0x00, 0x04, 0xac}, {}, InstructionClass::kPlain, 0);
}

TEST(Isa, RepeatedStrings) {
    EXPECT_TRUE(is_repeated_string(Isa::kX86, Bytes{0xf3, 0x48, 0xa5}));         // rep movsq
    EXPECT_TRUE(is_repeated_string(Isa::kX86, Bytes{0xf3, 0xaa}));               // rep stosb
    EXPECT_TRUE(is_repeated_string(Isa::kX86, Bytes{0xf2, 0xae}));               // repne scasb
    EXPECT_FALSE(is_repeated_string(Isa::kX86, Bytes{0x48, 0xa5}));              // movsq
    EXPECT_FALSE(is_repeated_string(Isa::kX86, Bytes{0xf3, 0x0f, 0x1e, 0xfa}));  // endbr64
    EXPECT_FALSE(is_repeated_string(Isa::kPowerBig, Bytes{0xf3, 0xaa}));
}

}  // namespace
}  // namespace tlbscope::recording
