// Layouts, bit 0 the highest. MI_CAM: EPN 0-19, page size 20-22, ASID 23-26, shared 27, valid subpages 28-31;
// remembered, and confirmed by the 19 lines of the 2005 thread. MD_CAM: EPN 0-19, valid subpages 20-23, page
// size 24-26, shared 27, ASID 28-31; MI_RAM0 and MD_RAM0: RPN 0-19; MI_RAM1: page valid 30; all remembered
// and unconfirmed. The other registers: Linux, arch/powerpc/include/asm/mmu-8xx.h and reg_8xx.h.
#include "explain/mpc8xx_dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>

namespace tlbscope::explain {

namespace {

constexpr unsigned kInstructionCam = 816;
constexpr unsigned kDataCam = 824;

struct Line {
    DumpMark mark = DumpMark::kNone;
    unsigned number = 0;
    std::uint32_t value = 0;
    std::optional<std::int64_t> decimal;
};

std::string_view word(std::string_view& text) {
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r"), text.size()));
    const std::size_t end = std::min(text.find_first_of(" \t\r"), text.size());
    const std::string_view found = text.substr(0, end);
    text.remove_prefix(end);
    return found;
}

template <class Number>
std::optional<Number> number(std::string_view text, int base) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

bool names_a_register(std::string_view line) {
    if (line.starts_with('+') || line.starts_with('-')) line.remove_prefix(1);
    return word(line) == "SPR";
}

std::optional<Line> parse_line(std::string_view text) {
    Line line;
    if (text.starts_with('+')) line.mark = DumpMark::kAdded;
    if (text.starts_with('-')) line.mark = DumpMark::kRemoved;
    if (line.mark != DumpMark::kNone) text.remove_prefix(1);
    word(text);
    // "SPR  816 : 0x..." or "SPR 816: 0x...".
    std::string_view register_word = word(text);
    if (register_word.ends_with(':'))
        register_word.remove_suffix(1);
    else if (word(text) != ":")
        return std::nullopt;
    const auto register_number = number<unsigned>(register_word, 10);
    std::string_view value_word = word(text);
    if (!value_word.starts_with("0x")) return std::nullopt;
    value_word.remove_prefix(2);
    const auto value = number<std::uint32_t>(value_word, 16);
    if (!register_number || !value) return std::nullopt;
    line.number = *register_number;
    line.value = *value;
    if (const std::string_view decimal = word(text); !decimal.empty()) {
        line.decimal = number<std::int64_t>(decimal, 10);
        if (!line.decimal) return std::nullopt;
    }
    return line;
}

struct RegisterName {
    unsigned number;
    std::string_view name;
};
constexpr std::array kRegisters{
    RegisterName{784, "MI_CTR"},  RegisterName{786, "MI_AP"},  RegisterName{787, "MI_EPN"},
    RegisterName{789, "MI_TWC"},  RegisterName{790, "MI_RPN"}, RegisterName{792, "MD_CTR"},
    RegisterName{793, "M_CASID"}, RegisterName{794, "MD_AP"},  RegisterName{795, "MD_EPN"},
    RegisterName{796, "M_TWB"},   RegisterName{797, "MD_TWC"}, RegisterName{798, "MD_RPN"},
    RegisterName{799, "M_TW"},    RegisterName{816, "MI_CAM"}, RegisterName{817, "MI_RAM0"},
    RegisterName{818, "MI_RAM1"}, RegisterName{824, "MD_CAM"}, RegisterName{825, "MD_RAM0"},
    RegisterName{826, "MD_RAM1"},
};

}  // namespace

VirtAddr Mpc8xxEntry::page() const {
    // Lower bits of a larger page's number do not take part in comparisons.
    const std::uint64_t mask = size() ? size()->bytes() - 1 : 0xfff;
    return VirtAddr(cam & 0xfffff000U & ~mask);
}

std::optional<PageShift> Mpc8xxEntry::size() const {
    switch (kind == Kind::kInstruction ? cam >> 9 & 7 : cam >> 5 & 7) {
        case 0:
            return PageShift(12);
        case 1:
            return PageShift(14);
        case 3:
            return PageShift(19);
        case 7:
            return PageShift(23);
        default:
            return std::nullopt;
    }
}

unsigned Mpc8xxEntry::asid() const { return kind == Kind::kInstruction ? cam >> 5 & 15 : cam & 15; }

bool Mpc8xxEntry::shared() const { return (cam & 0x10) != 0; }

unsigned Mpc8xxEntry::valid_subpages() const { return kind == Kind::kInstruction ? cam & 15 : cam >> 8 & 15; }

std::optional<PhysAddr> Mpc8xxEntry::frame() const {
    if (!ram0) return std::nullopt;
    return PhysAddr(*ram0 & 0xfffff000U);
}

std::optional<bool> Mpc8xxEntry::valid() const {
    if (!ram1 || kind != Kind::kInstruction) return std::nullopt;
    return (*ram1 & 2) != 0;
}

Mpc8xxDump parse_mpc8xx_dump(std::string_view text) {
    Mpc8xxDump dump;
    // Where the RAM registers that follow belong: the last entry of each TLB and each side of a diff.
    std::map<std::pair<Kind, DumpMark>, std::size_t> last;
    for (std::size_t row = 1; !text.empty(); ++row) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view source = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        if (!names_a_register(source)) continue;
        const auto line = parse_line(source);
        if (!line) {
            dump.warnings.push_back(
                fmt::format("line {} is not `SPR NUMBER : 0xVALUE` and was left out", row));
            continue;
        }
        // The debugger prints the value twice; one that was copied by hand may differ.
        if (line->decimal && static_cast<std::uint32_t>(*line->decimal) != line->value)
            dump.warnings.push_back(fmt::format("line {}: {:#010x} is not {}; the hexadecimal value counts",
                                                row, line->value, *line->decimal));
        const bool instruction = line->number >= kInstructionCam && line->number <= kInstructionCam + 2;
        const bool data = line->number >= kDataCam && line->number <= kDataCam + 2;
        if (!instruction && !data) {
            dump.others.push_back({line->number, row, line->mark, line->value});
            continue;
        }
        const Kind kind = instruction ? Kind::kInstruction : Kind::kData;
        const unsigned part = line->number - (instruction ? kInstructionCam : kDataCam);
        const auto place = last.find({kind, line->mark});
        if (part == 0) {
            last[{kind, line->mark}] = dump.entries.size();
            dump.entries.push_back({.kind = kind,
                                    .line = row,
                                    .mark = line->mark,
                                    .cam = line->value,
                                    .ram0 = std::nullopt,
                                    .ram1 = std::nullopt});
        } else if (place == last.end()) {
            dump.others.push_back({line->number, row, line->mark, line->value});
        } else {
            auto& ram = part == 1 ? dump.entries[place->second].ram0 : dump.entries[place->second].ram1;
            if (ram)
                dump.others.push_back({line->number, row, line->mark, line->value});
            else
                ram = line->value;
        }
    }
    return dump;
}

std::vector<Mpc8xxEntry> new_entries(const Mpc8xxDump& before, const Mpc8xxDump& after) {
    std::map<std::pair<Kind, std::uint32_t>, std::size_t> had;
    for (const Mpc8xxEntry& entry : before.entries) ++had[{entry.kind, entry.cam}];
    std::vector<Mpc8xxEntry> fresh;
    for (const Mpc8xxEntry& entry : after.entries) {
        const auto old = had.find({entry.kind, entry.cam});
        if (old != had.end() && old->second > 0)
            --old->second;
        else
            fresh.push_back(entry);
    }
    return fresh;
}

std::string_view mpc8xx_register_name(unsigned number) {
    for (const RegisterName& reg : kRegisters)
        if (reg.number == number) return reg.name;
    return {};
}

std::string mpc8xx_register_fields(const Mpc8xxRegister& reg) {
    const std::uint32_t v = reg.value;
    switch (reg.number) {
        case 784:
        case 792:
            return fmt::format("next index {}, {}", v >> 8 & 31,
                               (v & 0x08000000) != 0 ? "4 entries reserved" : "none reserved");
        case 787:
        case 795:
            return fmt::format("page {:#010x}, ASID {}, {}", v & 0xfffff000, v & 15,
                               (v & 0x200) != 0 ? "valid" : "not valid");
        case 793:
            return fmt::format("current ASID {}", v & 15);
        case 790:
        case 798:
            return fmt::format("frame {:#010x}, {}", v & 0xfffff000, (v & 1) != 0 ? "valid" : "not valid");
        default:
            return {};
    }
}

}  // namespace tlbscope::explain
