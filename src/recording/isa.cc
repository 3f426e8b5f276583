// Encodings: Intel SDM volume 2 (NOP, MOV CRn, INVLPG, INVPCID, REP), Power ISA 3.0B book III 5.9 (tlbie,
// tlbiel, slbia) and book II 4.6 (sync), Arm ARM C6.2 (MOVZ), RISC-V unprivileged ISA 2.9 (hints).
#include "recording/isa.h"

#include <array>

namespace tlbscope::recording {

Isa isa_of(std::string_view target) {
    struct Name {
        std::string_view target;
        Isa isa;
    };
    static constexpr std::array kNames{
        Name{"x86_64", Isa::kX86},          Name{"i386", Isa::kX86},
        Name{"ppc", Isa::kPowerBig},        Name{"ppc64", Isa::kPowerBig},
        Name{"ppc64le", Isa::kPowerLittle}, Name{"aarch64", Isa::kArm64},
        Name{"riscv32", Isa::kRiscv},       Name{"riscv64", Isa::kRiscv},
    };
    for (const Name& name : kNames)
        if (name.target == target) return name.isa;
    return Isa::kOther;
}

namespace {

std::uint32_t word_little(std::span<const std::uint8_t> b) {
    return b.size() < 4 ? 0
                        : std::uint32_t{b[0]} | std::uint32_t{b[1]} << 8 | std::uint32_t{b[2]} << 16 |
                              std::uint32_t{b[3]} << 24;
}

std::uint32_t word_big(std::span<const std::uint8_t> b) {
    return b.size() < 4 ? 0
                        : std::uint32_t{b[0]} << 24 | std::uint32_t{b[1]} << 16 | std::uint32_t{b[2]} << 8 |
                              std::uint32_t{b[3]};
}

Recognised recognise_x86(std::span<const std::uint8_t> b) {
    if (b.size() == 8 && b[0] == 0x0f && b[1] == 0x1f && b[2] == 0x84 && b[3] == 0x00 && b[6] == 0x6c &&
        b[7] == 0x74)
        return {InstructionClass::kMark, std::uint64_t{b[4]} | std::uint64_t{b[5]} << 8};
    std::size_t at = 0;
    bool operand_prefix = false;
    while (at < b.size() &&
           (b[at] == 0x66 || b[at] == 0xf2 || b[at] == 0xf3 || b[at] == 0x2e || b[at] == 0x3e ||
            b[at] == 0x26 || b[at] == 0x36 || b[at] == 0x64 || b[at] == 0x65 || b[at] == 0x67)) {
        operand_prefix |= b[at] == 0x66;
        ++at;
    }
    if (at < b.size() && (b[at] & 0xf0) == 0x40) ++at;  // REX
    if (at + 2 >= b.size() || b[at] != 0x0f) return {};
    const std::uint8_t opcode = b[at + 1];
    const std::uint8_t modrm = b[at + 2];
    const int reg = modrm >> 3 & 7;
    if (opcode == 0x22 && reg == 3)
        return {InstructionClass::kInvalidate, static_cast<std::uint64_t>(Invalidation::kMovToCr3)};
    if (opcode == 0x01 && reg == 7 && modrm < 0xc0)
        return {InstructionClass::kInvalidate, static_cast<std::uint64_t>(Invalidation::kInvlpg)};
    if (opcode == 0x38 && modrm == 0x82 && operand_prefix)
        return {InstructionClass::kInvalidate, static_cast<std::uint64_t>(Invalidation::kInvpcid)};
    return {};
}

Recognised recognise_power(std::uint32_t word, std::uint32_t next, bool have_next) {
    // xori r0,r0,N, twice.
    if (word >> 16 == 0x6800 && (!have_next || next == word)) return {InstructionClass::kMark, word & 0xffff};
    if (word >> 26 != 31) return {};
    switch (word >> 1 & 0x3ff) {
        case 306:
            return {InstructionClass::kInvalidate, static_cast<std::uint64_t>(Invalidation::kTlbie)};
        case 274:
            return {InstructionClass::kInvalidate, static_cast<std::uint64_t>(Invalidation::kTlbiel)};
        case 498:
            return {InstructionClass::kInvalidate, static_cast<std::uint64_t>(Invalidation::kSlbia)};
        case 370:
            return {InstructionClass::kInvalidate, static_cast<std::uint64_t>(Invalidation::kTlbia)};
        case 598:
            if ((word >> 21 & 3) == 2)
                return {InstructionClass::kBarrier, static_cast<std::uint64_t>(Barrier::kPtesync)};
            return {};
        case 566:
            return {InstructionClass::kBarrier, static_cast<std::uint64_t>(Barrier::kTlbsync)};
        default:
            return {};
    }
}

// Marks of two instructions: a first that says "tl", a second with the number. Recognised at the second, so
// that it does not matter where QEMU cuts blocks: `previous half` is not needed because the second form is a
// no-op that no compiler emits.
Recognised recognise_arm64(std::uint32_t word) {
    if ((word & 0xffe0001f) == 0xd280001f && (word >> 5 & 0xffff) != 0x746c)
        return {InstructionClass::kMark, word >> 5 & 0xffff};
    return {};
}

Recognised recognise_riscv(std::uint32_t word) {
    if ((word & 0xfff) == 0x037 && word >> 12 <= 0xffff && word >> 12 != 0x746c && word >> 12 != 0)
        return {InstructionClass::kMark, word >> 12};
    return {};
}

}  // namespace

Recognised recognise(Isa isa, std::span<const std::uint8_t> bytes, std::span<const std::uint8_t> following) {
    switch (isa) {
        case Isa::kX86:
            return recognise_x86(bytes);
        case Isa::kPowerBig:
            return recognise_power(word_big(bytes), word_big(following), following.size() >= 4);
        case Isa::kPowerLittle:
            return recognise_power(word_little(bytes), word_little(following), following.size() >= 4);
        case Isa::kArm64:
            return recognise_arm64(word_little(bytes));
        case Isa::kRiscv:
            return bytes.size() == 4 ? recognise_riscv(word_little(bytes)) : Recognised{};
        case Isa::kOther:
            break;
    }
    return {};
}

bool is_repeated_string(Isa isa, std::span<const std::uint8_t> bytes) {
    if (isa != Isa::kX86) return false;
    bool repeat = false;
    std::size_t at = 0;
    for (; at < bytes.size(); ++at) {
        const std::uint8_t byte = bytes[at];
        if (byte == 0xf2 || byte == 0xf3)
            repeat = true;
        else if (byte != 0x66 && byte != 0x67 && byte != 0x2e && byte != 0x36 && byte != 0x3e &&
                 byte != 0x26 && byte != 0x64 && byte != 0x65 && (byte & 0xf0) != 0x40)
            break;
    }
    if (!repeat || at >= bytes.size()) return false;
    const std::uint8_t opcode = bytes[at];
    return (opcode >= 0xa4 && opcode <= 0xa7) || (opcode >= 0xaa && opcode <= 0xaf) ||
           (opcode >= 0x6c && opcode <= 0x6f);
}

}  // namespace tlbscope::recording
