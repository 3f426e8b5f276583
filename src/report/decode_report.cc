#include "report/decode_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/numbers.h"

namespace tlbscope::report {

namespace {

using Json = nlohmann::ordered_json;
using explain::DumpMark;
using explain::Mpc8xxDump;
using explain::Mpc8xxEntry;

constexpr std::size_t kNamesInText = 4;
constexpr const char* kLayoutNote =
    "MI_CAM's layout is confirmed by the dumps of the 2005 thread; those of MD_CAM, RAM0 and RAM1 are as "
    "remembered from the MPC860 manual";

std::vector<std::string> functions_on(const Mpc8xxEntry& entry, const explain::SymbolTable& symbols) {
    std::vector<std::string> names;
    const std::uint64_t start = entry.page().value();
    const std::uint64_t end = start + entry.size().value_or(PageShift(12)).bytes();
    symbols.for_each([&](std::uint64_t first, std::uint64_t last, std::uint32_t name) {
        if (last > start && first < end) names.push_back(symbols.names()[name]);
    });
    return names;
}

std::string size_text(const Mpc8xxEntry& entry) {
    return entry.size() ? size_name(entry.size()->bytes()) : "?";
}

std::string row(const Mpc8xxEntry& entry, const Mpc8xxDecoded& decoded) {
    const char* mark = entry.mark == DumpMark::kAdded ? "+" : entry.mark == DumpMark::kRemoved ? "-" : " ";
    std::string text =
        fmt::format("{}{:<4} {:#010x}  {:<5} {:>4}  {:<6}  {:04b}      {:<10}  {:<5}", mark,
                    entry.kind == Kind::kInstruction ? "I" : "D", entry.page().value(), size_text(entry),
                    entry.asid(), entry.shared() ? "yes" : "no", entry.valid_subpages(),
                    entry.frame() ? fmt::format("{:#010x}", entry.frame()->value()) : "-",
                    entry.valid() ? (*entry.valid() ? "yes" : "no") : "-");
    const std::vector<std::string> names = functions_on(entry, decoded.symbols);
    for (std::size_t i = 0; i < std::min(names.size(), kNamesInText); ++i)
        text += (i == 0 ? "  " : ", ") + names[i];
    if (names.size() > kNamesInText) text += fmt::format(" and {} more", names.size() - kNamesInText);
    while (text.ends_with(' ')) text.pop_back();
    return text + "\n";
}

std::string table(const std::vector<Mpc8xxEntry>& entries, const Mpc8xxDecoded& decoded) {
    std::string text = fmt::format(" {:<4} {:<10}  {:<5} {:>4}  {:<6}  {:<8}  {:<10}  {:<5}{}\n", "TLB",
                                   "page", "size", "ASID", "shared", "subpages", "frame", "valid",
                                   decoded.have_symbols ? "  functions" : "");
    for (const Mpc8xxEntry& entry : entries) text += row(entry, decoded);
    return text;
}

std::string counted(const std::string& file, const Mpc8xxDump& dump) {
    const auto of = [&](Kind kind) {
        return std::count_if(dump.entries.begin(), dump.entries.end(),
                             [&](const Mpc8xxEntry& entry) { return entry.kind == kind; });
    };
    return fmt::format("{}: {} instruction and {} data entries\n", file, of(Kind::kInstruction),
                       of(Kind::kData));
}

std::string registers(const Mpc8xxDump& dump) {
    std::string text;
    for (const explain::Mpc8xxRegister& reg : dump.others) {
        const std::string_view name = explain::mpc8xx_register_name(reg.number);
        text += fmt::format(" SPR {} {:<8} {:#010x}  {}", reg.number, name, reg.value,
                            explain::mpc8xx_register_fields(reg));
        while (text.ends_with(' ')) text.pop_back();
        text += '\n';
    }
    return text.empty() ? text : "\nother registers\n" + text;
}

Json json_of(const Mpc8xxEntry& entry, const Mpc8xxDecoded& decoded) {
    Json json{{"kind", entry.kind == Kind::kInstruction ? "instruction" : "data"},
              {"line", entry.line},
              {"cam", fmt::format("{:#010x}", entry.cam)},
              {"page", fmt::format("{:#x}", entry.page().value())},
              {"size", entry.size() ? Json(entry.size()->bytes()) : Json(nullptr)},
              {"asid", entry.asid()},
              {"shared", entry.shared()},
              {"valid_subpages", fmt::format("{:04b}", entry.valid_subpages())},
              {"frame", entry.frame() ? Json(fmt::format("{:#x}", entry.frame()->value())) : Json(nullptr)},
              {"valid", entry.valid() ? Json(*entry.valid()) : Json(nullptr)},
              {"mark", entry.mark == DumpMark::kAdded     ? "+"
                       : entry.mark == DumpMark::kRemoved ? "-"
                                                          : ""}};
    json["functions"] = functions_on(entry, decoded.symbols);
    return json;
}

Json json_of(const Mpc8xxDump& dump, const Mpc8xxDecoded& decoded) {
    Json json{{"entries", Json::array()}, {"registers", Json::array()}};
    for (const Mpc8xxEntry& entry : dump.entries) json["entries"].push_back(json_of(entry, decoded));
    for (const explain::Mpc8xxRegister& reg : dump.others)
        json["registers"].push_back({{"number", reg.number},
                                     {"name", explain::mpc8xx_register_name(reg.number)},
                                     {"value", fmt::format("{:#010x}", reg.value)},
                                     {"fields", explain::mpc8xx_register_fields(reg)}});
    return json;
}

}  // namespace

std::string as_text(const Mpc8xxDecoded& decoded) {
    std::string text = counted(decoded.file, decoded.dump);
    if (decoded.second_file.empty()) {
        text += "\n" + table(decoded.dump.entries, decoded) + registers(decoded.dump);
    } else {
        const std::vector<Mpc8xxEntry> fresh = new_entries(decoded.dump, decoded.second);
        text += counted(decoded.second_file, decoded.second);
        const auto kernel = std::count_if(fresh.begin(), fresh.end(), [](const Mpc8xxEntry& entry) {
            return entry.page().value() >= 0x80000000;
        });
        text += fmt::format("new in {}: {}, {} of them on the kernel's side\n\n", decoded.second_file,
                            fresh.size(), kernel);
        text += table(fresh, decoded);
    }
    return text + "\n" + kLayoutNote + "\n";
}

std::string as_json(const Mpc8xxDecoded& decoded) {
    Json json{{"schema", 1}, {"format", "mpc8xx"}, {"file", decoded.file}};
    json.update(json_of(decoded.dump, decoded));
    if (!decoded.second_file.empty()) {
        json["second"] = json_of(decoded.second, decoded);
        json["second"]["file"] = decoded.second_file;
        json["new"] = Json::array();
        for (const Mpc8xxEntry& entry : new_entries(decoded.dump, decoded.second))
            json["new"].push_back(json_of(entry, decoded));
    }
    json["notes"] = {kLayoutNote};
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tlbscope::report
