// Address layouts, and what operands say about stacks and per-CPU data.
#include "addrspace/regions.h"

#include <gtest/gtest.h>

#include <vector>

#include "explain/operands.h"

namespace tlbscope::explain {
namespace {

using addrspace::KernelLayout;
using addrspace::kRegions;
using addrspace::Region;
using addrspace::region_named;
using recording::Isa;
using Bytes = std::vector<std::uint8_t>;

TEST(Regions, EveryNameIsFoundAgain) {
    for (std::size_t i = 0; i < kRegions; ++i) {
        const auto region = static_cast<Region>(i);
        EXPECT_EQ(region_named(name_of(region)), region);
    }
    EXPECT_FALSE(region_named("kernel"));
}

TEST(Regions, X86) {
    const KernelLayout layout("x86_64", {0xffffffff81000000, 0xffffffff83800000});
    EXPECT_EQ(layout.at(0xffff888000000000), Region::kKernelLinear);
    EXPECT_EQ(layout.at(0xffffc87fffffffff), Region::kKernelLinear);
    EXPECT_EQ(layout.at(0xffffc90000000000), Region::kKernelVmalloc);
    EXPECT_EQ(layout.at(0xffffea0000000000), Region::kKernelVmemmap);
    EXPECT_EQ(layout.at(0xfffffe0000001000), Region::kKernelPercpu);
    EXPECT_EQ(layout.at(0xffffffff81000000), Region::kKernelText);
    EXPECT_EQ(layout.at(0xffffffffa0000000), Region::kKernelVmalloc);
    EXPECT_EQ(layout.at(0xffffffffff5fb000), Region::kKernelIo);
    EXPECT_EQ(layout.at(0xff11000000000000), Region::kKernelLinear);
    EXPECT_EQ(layout.at(0xffa0000000000000), Region::kKernelVmalloc);
    EXPECT_EQ(layout.at(0xffff800000000000), Region::kUnknown);
}

TEST(Regions, OtherArchitectures) {
    const KernelLayout arm("aarch64", {0xffff800008000000, 0xffff80000a000000});
    EXPECT_EQ(arm.at(0xffff000000000000), Region::kKernelLinear);
    EXPECT_EQ(arm.at(0xffff800000000000), Region::kKernelVmalloc);
    EXPECT_EQ(arm.at(0xffff800008000000), Region::kKernelText);
    EXPECT_EQ(arm.at(0xffff80000a000000), Region::kKernelVmalloc);
    EXPECT_EQ(arm.at(0xfffffc0000000000), Region::kKernelVmemmap);
    const KernelLayout power("ppc64le", {0xc000000000000000, 0xc000000002000000});
    EXPECT_EQ(power.at(0xc000000000000100), Region::kKernelText);
    EXPECT_EQ(power.at(0xc000000010000000), Region::kKernelLinear);
    EXPECT_EQ(power.at(0xc008000000000000), Region::kKernelVmalloc);
    EXPECT_EQ(power.at(0xc00a000000000000), Region::kKernelIo);
    EXPECT_EQ(power.at(0xc00c000000000000), Region::kKernelVmemmap);
    const KernelLayout small("ppc", {0xc0000000, 0xc0800000});
    EXPECT_EQ(small.at(0xc0001000), Region::kKernelText);
    EXPECT_EQ(small.at(0xc0900000), Region::kKernelLinear);
    EXPECT_EQ(small.at(0xf1000000), Region::kKernelVmalloc);
    EXPECT_EQ(small.at(0xffff0000), Region::kKernelIo);
}

OperandClass x86(const Bytes& bytes, bool store, Mode mode = Mode::kKernel) {
    return operand_class(Isa::kX86, true, mode, bytes, store);
}

TEST(Operands, X86StackByItsInstruction) {
    EXPECT_EQ(x86({0x55}, true), OperandClass::kStack);                          // push %rbp
    EXPECT_EQ(x86({0x41, 0x5f}, false), OperandClass::kStack);                   // pop %r15
    EXPECT_EQ(x86({0xe8, 0, 0, 0, 0}, true), OperandClass::kStack);              // call
    EXPECT_EQ(x86({0xc3}, false), OperandClass::kStack);                         // ret
    EXPECT_EQ(x86({0x48, 0xcf}, false), OperandClass::kStack);                   // iretq
    EXPECT_EQ(x86({0x48, 0x89, 0x44, 0x24, 0x08}, true), OperandClass::kStack);  // mov %rax,8(%rsp)
    EXPECT_EQ(x86({0xf3, 0x0f, 0x7f, 0x04, 0x24}, true), OperandClass::kStack);  // movdqu %xmm0,(%rsp)
    EXPECT_EQ(x86({0xc5, 0xf8, 0x29, 0x04, 0x24}, true), OperandClass::kStack);  // vmovaps %xmm0,(%rsp)
}

TEST(Operands, X86OthersAreNone) {
    EXPECT_EQ(x86({0x48, 0x89, 0x07}, true), OperandClass::kOther);        // mov %rax,(%rdi)
    EXPECT_EQ(x86({0x48, 0x89, 0x45, 0x08}, true), OperandClass::kOther);  // mov %rax,8(%rbp)
    EXPECT_EQ(x86({0x49, 0x89, 0x04, 0x24}, true), OperandClass::kOther);  // mov %rax,(%r12)
    EXPECT_EQ(x86({0x48, 0x89, 0x04, 0xe7}, true), OperandClass::kOther);  // mov %rax,(%rdi,...)
    EXPECT_EQ(x86({0xf3, 0x48, 0xa5}, false), OperandClass::kOther);       // rep movsq
}

// push mem, pop mem, call *mem: one access is the operand's, the other the stack's.
TEST(Operands, X86TwoAccesses) {
    EXPECT_EQ(x86({0xff, 0x37}, false), OperandClass::kOther);  // push (%rdi): loads it
    EXPECT_EQ(x86({0xff, 0x37}, true), OperandClass::kStack);   // and stores to the stack
    EXPECT_EQ(x86({0x8f, 0x07}, false), OperandClass::kStack);  // pop (%rdi)
    EXPECT_EQ(x86({0x8f, 0x07}, true), OperandClass::kOther);
    EXPECT_EQ(x86({0xff, 0x17}, false), OperandClass::kOther);  // call *(%rdi)
    EXPECT_EQ(x86({0xff, 0x17}, true), OperandClass::kStack);
}

TEST(Operands, X86PerCpu) {
    const Bytes load{0x65, 0x48, 0x8b, 0x04, 0x25, 0, 0, 2, 0};  // mov %gs:0x20000,%rax
    EXPECT_EQ(x86(load, false), OperandClass::kPercpu);
    EXPECT_EQ(x86(load, false, Mode::kUser), OperandClass::kOther);
    EXPECT_EQ(x86({0x65, 0xff, 0x35, 0, 0, 0, 0}, true), OperandClass::kStack);  // push %gs:...
}

TEST(Operands, PowerAndArm) {
    const auto power = [](std::uint32_t word, Mode mode) {
        const Bytes bytes{static_cast<std::uint8_t>(word >> 24), static_cast<std::uint8_t>(word >> 16),
                          static_cast<std::uint8_t>(word >> 8), static_cast<std::uint8_t>(word)};
        return operand_class(Isa::kPowerBig, true, mode, bytes, true);
    };
    EXPECT_EQ(power(0xf821ff91, Mode::kKernel), OperandClass::kStack);   // stdu r1,-112(r1)
    EXPECT_EQ(power(0x9421fff0, Mode::kUser), OperandClass::kStack);     // stwu r1,-16(r1)
    EXPECT_EQ(power(0xe92d0030, Mode::kKernel), OperandClass::kPercpu);  // ld r9,48(r13)
    EXPECT_EQ(power(0xe92d0030, Mode::kUser), OperandClass::kOther);
    EXPECT_EQ(power(0x90640000, Mode::kKernel), OperandClass::kOther);  // stw r3,0(r4)
    const auto arm = [](std::uint32_t word) {
        const Bytes bytes{static_cast<std::uint8_t>(word), static_cast<std::uint8_t>(word >> 8),
                          static_cast<std::uint8_t>(word >> 16), static_cast<std::uint8_t>(word >> 24)};
        return operand_class(Isa::kArm64, true, Mode::kKernel, bytes, true);
    };
    EXPECT_EQ(arm(0xa9bf7bfd), OperandClass::kStack);  // stp x29,x30,[sp,#-16]!
    EXPECT_EQ(arm(0xf90007e0), OperandClass::kStack);  // str x0,[sp,#8]
    EXPECT_EQ(arm(0xf9000020), OperandClass::kOther);  // str x0,[x1]
    EXPECT_EQ(arm(0x5800005f), OperandClass::kOther);  // ldr xzr, literal
}

}  // namespace
}  // namespace tlbscope::explain
