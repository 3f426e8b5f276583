#include "report/footprint_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/numbers.h"

namespace tlbscope::report {

namespace {

using Json = nlohmann::ordered_json;
using explain::ContentsEntry;
using explain::PathFootprint;
using explain::Spread;

constexpr std::size_t kNamesInText = 3;
constexpr std::size_t kHotInText = 10;

std::string strong(const std::string& text, bool color) {
    return (color ? "\033[1m" + text + "\033[0m" : text) + "\n";
}

std::string row(const std::string& name, const Spread& spread, std::uint64_t calls) {
    if (calls == 0) return fmt::format("  {:<26} {:>12} {:>10} {:>10}\n", name, "-", "-", "-");
    return fmt::format("  {:<26} {:>12.1f} {:>10} {:>10}\n", name, spread.mean(calls), grouped(spread.least),
                       grouped(spread.most));
}

std::vector<explain::HotFunction> largest(const PathFootprint& path) {
    std::vector<explain::HotFunction> hot = path.hot;
    std::stable_sort(hot.begin(), hot.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return hot;
}

std::string path_text(const PathFootprint& path, const Footprints& all, bool color) {
    std::string out = strong(fmt::format("{}: {} calls", path.path, grouped(path.calls)), color);
    const bool itself = path.functions_meant.size() == 1 && path.functions_meant[0] == path.path;
    if (!path.functions_meant.empty() && !itself)
        out += fmt::format("  as {}\n", fmt::join(path.functions_meant, ", "));
    if (path.unfinished > 0)
        out += fmt::format("  {} more had not ended when the recording did, and are left out\n",
                           grouped(path.unfinished));
    out += fmt::format("\n  {:<26} {:>12} {:>10} {:>10}\n", "per call", "mean", "least", "most");
    for (const explain::PageFootprint& pages : path.pages) {
        const std::string size = size_name(pages.shift.bytes());
        out += row("code pages of " + size, pages.code, path.calls);
        out += row("data pages of " + size, pages.data, path.calls);
    }
    out += row(fmt::format("code lines of {} B", all.line_bytes), path.code_lines, path.calls);
    out += row(fmt::format("data lines of {} B", all.line_bytes), path.data_lines, path.calls);
    out += row("functions", path.functions, path.calls);
    out += row("instruction fetches", path.fetches, path.calls);

    out += fmt::format("\n  {} functions in all; {} run in at least half of the calls and have {} bytes:",
                       grouped(path.functions_all), grouped(path.hot.size()), grouped(path.hot_bytes));
    bool first = true;
    for (const explain::PageFootprint& pages : path.pages) {
        out += fmt::format("{} {} {} of {}", first ? "" : ",", grouped(pages.fewest),
                           pages.fewest == 1 ? "page" : "pages", size_name(pages.shift.bytes()));
        first = false;
    }
    out += " would hold them\n";
    const std::vector<explain::HotFunction> hot = largest(path);
    for (std::size_t i = 0; i < std::min(hot.size(), kHotInText); ++i) {
        const explain::Name name = all.names->name_of(hot[i].function_id);
        out += fmt::format("  {:>8} B  in {:>5.1f} % of the calls  {}  {}\n", grouped(hot[i].bytes),
                           static_cast<double>(hot[i].calls) * 100 / static_cast<double>(path.calls),
                           name.function, name.object);
    }
    if (hot.size() > kHotInText) out += fmt::format("  [{} others]\n", grouped(hot.size() - kHotInText));
    if (all.knows_interrupts && path.calls_apart == 0) return out;
    if (all.knows_interrupts)
        out += fmt::format(
            "\n  left out: {} interrupts and exceptions within the calls ({} fetches), and {} fetches of "
            "other "
            "tasks meanwhile; {} calls were affected\n",
            grouped(path.apart.interrupts), grouped(path.apart.interrupt_fetches),
            grouped(path.apart.elsewhere_fetches), grouped(path.calls_apart));
    else
        out += fmt::format(
            "\n  left out: {} fetches of other tasks meanwhile; interrupts within the calls are "
            "counted as theirs, since this target's entry code is not known\n",
            grouped(path.apart.elsewhere_fetches));
    return out;
}

std::string entry_text(const ContentsEntry& entry, PageShift shift) {
    std::string text = fmt::format("{} {:>4}  {:#018x}  {:<14}  {}", entry.fresh ? "+" : " ", entry.slot,
                                   entry.page << shift.value(), name_of(entry.region), entry.object);
    for (std::size_t i = 0; i < std::min(entry.functions.size(), kNamesInText); ++i)
        text += (i == 0 ? "  " : ", ") + entry.functions[i];
    if (entry.functions.size() > kNamesInText)
        text += fmt::format(" and {} more", entry.functions.size() - kNamesInText);
    while (text.ends_with(' ')) text.pop_back();
    return text + "\n";
}

std::string contents_text(const explain::CallContents& contents, const std::string& machine, bool color) {
    std::string out;
    for (const Kind kind : {Kind::kInstruction, Kind::kData}) {
        const auto k = static_cast<std::size_t>(kind);
        const auto fresh =
            static_cast<std::size_t>(std::count_if(contents.after[k].begin(), contents.after[k].end(),
                                                   [](const ContentsEntry& entry) { return entry.fresh; }));
        const auto kernel = static_cast<std::size_t>(std::count_if(
            contents.after[k].begin(), contents.after[k].end(),
            [](const ContentsEntry& entry) { return entry.fresh && entry.side == Side::kKernel; }));
        const char* name = kind == Kind::kInstruction ? "instruction" : "data";
        out += "\n" + strong(fmt::format("{} TLB of {} before call {} of {}: {} entries", name, machine,
                                         grouped(contents.call), contents.path, contents.before[k].size()),
                             color);
        for (const ContentsEntry& entry : contents.before[k]) out += entry_text(entry, contents.page);
        out += "\n" + strong(fmt::format("after: {} entries, {} new, {} of these on the kernel's side",
                                         contents.after[k].size(), fresh, kernel),
                             color);
        for (const ContentsEntry& entry : contents.after[k]) out += entry_text(entry, contents.page);
    }
    return out;
}

Json spread_json(const Spread& spread, std::uint64_t calls) {
    if (calls == 0) return {{"mean", nullptr}, {"min", nullptr}, {"max", nullptr}};
    return {{"mean", spread.mean(calls)}, {"min", spread.least}, {"max", spread.most}};
}

Json entries_json(const std::vector<ContentsEntry>& entries, PageShift shift) {
    Json json = Json::array();
    for (const ContentsEntry& entry : entries)
        json.push_back({{"slot", entry.slot},
                        {"page", fmt::format("{:#x}", entry.page << shift.value())},
                        {"side", entry.side == Side::kKernel ? "kernel" : "user"},
                        {"region", name_of(entry.region)},
                        {"object", entry.object},
                        {"functions", entry.functions},
                        {"new", entry.fresh}});
    return json;
}

Json path_json(const PathFootprint& path, const Footprints& all) {
    Json json{{"path", path.path},
              {"functions_meant", path.functions_meant},
              {"calls", path.calls},
              {"unfinished", path.unfinished}};
    if (!path.pages.empty()) {
        json["code_pages"] = spread_json(path.pages[0].code, path.calls);
        json["data_pages"] = spread_json(path.pages[0].data, path.calls);
    }
    json["functions"] = path.functions_all;
    json["functions_per_call"] = spread_json(path.functions, path.calls);
    json["hot_bytes"] = path.hot_bytes;
    json["fewest_pages"] = path.pages.empty() ? Json(nullptr) : Json(path.pages[0].fewest);
    json["pages"] = Json::array();
    for (const explain::PageFootprint& pages : path.pages)
        json["pages"].push_back({{"page", pages.shift.bytes()},
                                 {"code_pages", spread_json(pages.code, path.calls)},
                                 {"data_pages", spread_json(pages.data, path.calls)},
                                 {"fewest_pages", pages.fewest}});
    json["line"] = all.line_bytes;
    json["code_lines"] = spread_json(path.code_lines, path.calls);
    json["data_lines"] = spread_json(path.data_lines, path.calls);
    json["fetches"] = spread_json(path.fetches, path.calls);
    json["hot"] = Json::array();
    for (const explain::HotFunction& hot : largest(path)) {
        const explain::Name name = all.names->name_of(hot.function_id);
        json["hot"].push_back({{"function", name.function},
                               {"object", name.object},
                               {"calls", hot.calls},
                               {"bytes", hot.bytes}});
    }
    json["left_out"] = {
        {"interrupts", all.knows_interrupts ? Json(path.apart.interrupts) : Json(nullptr)},
        {"interrupt_fetches", all.knows_interrupts ? Json(path.apart.interrupt_fetches) : Json(nullptr)},
        {"other_tasks_fetches", path.apart.elsewhere_fetches},
        {"calls", path.calls_apart}};
    return json;
}

}  // namespace

std::string as_text(const Footprints& footprints, bool color) {
    std::string out;
    for (std::size_t i = 0; i < footprints.paths.size(); ++i) {
        if (i > 0) out += "\n";
        out += path_text(footprints.paths[i], footprints, color);
        if (i < footprints.contents.size())
            out += contents_text(footprints.contents[i], footprints.machine, color);
    }
    return out;
}

std::string as_json(const Footprints& footprints) {
    Json json{{"schema", 1}, {"recording", footprints.recording}, {"paths", Json::array()}};
    for (std::size_t i = 0; i < footprints.paths.size(); ++i) {
        Json path = path_json(footprints.paths[i], footprints);
        if (i < footprints.contents.size()) {
            const explain::CallContents& contents = footprints.contents[i];
            Json& json_contents = path["contents"];
            json_contents = {{"machine", footprints.machine}, {"call", contents.call}};
            for (const Kind kind : {Kind::kInstruction, Kind::kData}) {
                const auto k = static_cast<std::size_t>(kind);
                Json& of_kind = json_contents[kind == Kind::kInstruction ? "instruction" : "data"];
                of_kind["before"] = entries_json(contents.before[k], contents.page);
                of_kind["after"] = entries_json(contents.after[k], contents.page);
            }
        }
        json["paths"].push_back(std::move(path));
    }
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string as_csv(const Footprints& footprints) {
    std::string out = "path,quantity,unit_bytes,mean,min,max\n";
    for (const PathFootprint& path : footprints.paths) {
        // Paths of C++ functions hold commas and quotes.
        std::string name = path.path;
        if (name.find_first_of(",\"") != std::string::npos) {
            for (std::size_t at = 0; (at = name.find('"', at)) != std::string::npos; at += 2)
                name.insert(at, "\"");
            name = fmt::format("\"{}\"", name);
        }
        const auto line = [&](const char* quantity, std::uint64_t unit, const Spread& spread) {
            if (path.calls == 0) return;
            out +=
                fmt::format("{},{},{},{},{},{}\n", name, quantity, unit == 0 ? "" : fmt::format("{}", unit),
                            spread.mean(path.calls), spread.least, spread.most);
        };
        const auto single = [&](const char* quantity, std::uint64_t unit, std::uint64_t value) {
            out += fmt::format("{},{},{},{},,\n", name, quantity, unit == 0 ? "" : fmt::format("{}", unit),
                               value);
        };
        single("calls", 0, path.calls);
        for (const explain::PageFootprint& pages : path.pages) {
            line("code_pages", pages.shift.bytes(), pages.code);
            line("data_pages", pages.shift.bytes(), pages.data);
            single("fewest_pages", pages.shift.bytes(), pages.fewest);
        }
        line("code_lines", footprints.line_bytes, path.code_lines);
        line("data_lines", footprints.line_bytes, path.data_lines);
        line("functions", 0, path.functions);
        line("fetches", 0, path.fetches);
        single("hot_bytes", 0, path.hot_bytes);
    }
    return out;
}

}  // namespace tlbscope::report
