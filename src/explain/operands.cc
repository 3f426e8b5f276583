// Encodings: Intel SDM volume 2, 2.1 and appendix A (opcode maps); Power ISA 3.0B, 1.6 (D, DS and X forms;
// the ABIs make r1 the stack pointer, and 64-bit Linux keeps its per-CPU area in r13); Arm ARM C4.1 (loads
// and stores: bits 27 and 25 are 1 and 0, register 31 as base is SP).
#include "explain/operands.h"

namespace tlbscope::explain {

namespace {

using recording::Isa;

bool is_prefix(std::uint8_t byte) {
    return byte == 0x66 || byte == 0x67 || byte == 0xf0 || byte == 0xf2 || byte == 0xf3 || byte == 0x2e ||
           byte == 0x36 || byte == 0x3e || byte == 0x26 || byte == 0x64 || byte == 0x65;
}

// Whether the opcode of the one-byte map has a ModRM byte.
bool has_modrm(std::uint8_t opcode) {
    if (opcode < 0x40) return (opcode & 7) < 4;
    return opcode == 0x63 || opcode == 0x69 || opcode == 0x6b || (opcode >= 0x80 && opcode <= 0x8f) ||
           opcode == 0xc0 || opcode == 0xc1 || opcode == 0xc6 || opcode == 0xc7 ||
           (opcode >= 0xd0 && opcode <= 0xd3) || (opcode >= 0xd8 && opcode <= 0xdf) || opcode == 0xf6 ||
           opcode == 0xf7 || opcode == 0xfe || opcode == 0xff;
}

OperandClass x86(std::span<const std::uint8_t> b, bool wide, Mode mode, bool store) {
    std::size_t at = 0;
    bool gs = false;
    std::uint8_t rex = 0;
    while (at < b.size() && is_prefix(b[at])) gs |= b[at++] == 0x65;
    if (wide && at < b.size() && (b[at] & 0xf0) == 0x40) rex = b[at++];
    if (at >= b.size()) return OperandClass::kOther;

    const std::uint8_t opcode = b[at];
    const std::uint8_t reg = at + 1 < b.size() ? b[at + 1] >> 3 & 7 : 0;
    std::size_t modrm = 0;  // where it is; 0 when there is none
    bool stack_load = false;
    bool stack_store = false;
    bool base_extended = (rex & 1) != 0;
    if (opcode == 0x0f && at + 1 < b.size()) {
        const std::uint8_t second = b[at + 1];
        stack_store = second == 0xa0 || second == 0xa8;  // push fs, gs
        stack_load = second == 0xa1 || second == 0xa9;   // pop fs, gs
        modrm = second == 0x38 || second == 0x3a ? at + 3 : at + 2;
        if ((second >= 0x80 && second <= 0x8f) || (second >= 0xc8 && second <= 0xcf) || stack_load ||
            stack_store)
            modrm = 0;
    } else if (wide && (opcode == 0xc4 || opcode == 0xc5)) {  // VEX
        modrm = opcode == 0xc4 ? at + 4 : at + 3;
        base_extended = opcode == 0xc4 && at + 1 < b.size() && (b[at + 1] & 0x20) == 0;
    } else if (wide && opcode == 0x62) {  // EVEX
        modrm = at + 5;
        base_extended = at + 1 < b.size() && (b[at + 1] & 0x20) == 0;
    } else {
        stack_store = (opcode >= 0x50 && opcode <= 0x57) || opcode == 0x68 || opcode == 0x6a ||
                      opcode == 0x9c || opcode == 0xc8 || opcode == 0xe8 ||
                      (opcode == 0xff && (reg == 2 || reg == 3 || reg == 6));
        stack_load = (opcode >= 0x58 && opcode <= 0x5f) || opcode == 0x9d || opcode == 0xc2 ||
                     opcode == 0xc3 || opcode == 0xc9 || opcode == 0xca || opcode == 0xcb || opcode == 0xcf ||
                     (opcode == 0x8f && reg == 0);
        if (has_modrm(opcode)) modrm = at + 1;
    }
    if (store ? stack_store : stack_load) return OperandClass::kStack;
    const bool memory = modrm != 0 && modrm < b.size() && b[modrm] < 0xc0;
    if (gs && mode == Mode::kKernel && wide) return OperandClass::kPercpu;
    if (memory && (b[modrm] & 7) == 4 && modrm + 1 < b.size() && (b[modrm + 1] & 7) == 4 && !base_extended)
        return OperandClass::kStack;
    return OperandClass::kOther;
}

OperandClass power(std::uint32_t word, bool wide, Mode mode) {
    const std::uint32_t opcode = word >> 26;
    const bool based = (opcode >= 32 && opcode <= 55) || opcode == 57 || opcode == 58 || opcode == 61 ||
                       opcode == 62 || opcode == 31;
    if (!based) return OperandClass::kOther;
    const std::uint32_t base = word >> 16 & 31;
    if (base == 1) return OperandClass::kStack;
    return base == 13 && wide && mode == Mode::kKernel ? OperandClass::kPercpu : OperandClass::kOther;
}

OperandClass arm64(std::uint32_t word) {
    const bool load_or_store = (word >> 27 & 1) == 1 && (word >> 25 & 1) == 0;
    const bool literal = (word >> 24 & 0x3b) == 0x18;
    return load_or_store && !literal && (word >> 5 & 31) == 31 ? OperandClass::kStack : OperandClass::kOther;
}

}  // namespace

OperandClass operand_class(Isa isa, bool wide, Mode mode, std::span<const std::uint8_t> bytes, bool store) {
    const auto little = [&] {
        return std::uint32_t{bytes[0]} | std::uint32_t{bytes[1]} << 8 | std::uint32_t{bytes[2]} << 16 |
               std::uint32_t{bytes[3]} << 24;
    };
    switch (isa) {
        case Isa::kX86:
            return x86(bytes, wide, mode, store);
        case Isa::kPowerLittle:
            return bytes.size() < 4 ? OperandClass::kOther : power(little(), wide, mode);
        case Isa::kPowerBig:
            return bytes.size() < 4 ? OperandClass::kOther : power(__builtin_bswap32(little()), wide, mode);
        case Isa::kArm64:
            return bytes.size() < 4 ? OperandClass::kOther : arm64(little());
        default:
            return OperandClass::kOther;
    }
}

}  // namespace tlbscope::explain
