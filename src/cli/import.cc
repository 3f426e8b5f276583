// tlbscope import: what a log of another tool is understood to say about address spaces and TLBs.
#include <fmt/format.h>

#include <array>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "core/numbers.h"
#include "core/text.h"
#include "core/tlbie.h"
#include "import_log/log.h"

namespace tlbscope::cli {

namespace {

using Json = nlohmann::ordered_json;

struct Options {
    std::string input;
    bool list = false;
    std::shared_ptr<Format> format = std::make_shared<Format>(Format::kText);
};

std::string range_text(VirtAddr start, std::uint64_t bytes) {
    return fmt::format("{:#x} +{:#x}", start.value(), bytes);
}

std::string details(const MemoryEvent& event) {
    const auto rights = [&] {
        return fmt::format("{}{}{}", (event.protection & kProtectRead) != 0 ? "r" : "-",
                           (event.protection & kProtectWrite) != 0 ? "w" : "-",
                           (event.protection & kProtectExecute) != 0 ? "x" : "-");
    };
    switch (event.kind) {
        case MemoryEventKind::kMap:
            return fmt::format("{} {}{}", range_text(event.start, event.bytes), rights(),
                               event.file ? " of a file" : "");
        case MemoryEventKind::kProtect:
            return fmt::format("{} {}", range_text(event.start, event.bytes), rights());
        case MemoryEventKind::kUnmap:
        case MemoryEventKind::kDiscard:
            return range_text(event.start, event.bytes);
        case MemoryEventKind::kRemap:
            return fmt::format("{} to {}", range_text(event.old_start, event.old_bytes),
                               range_text(event.start, event.bytes));
        case MemoryEventKind::kBreak:
            return fmt::format("{:#x}", event.start.value() + event.bytes);
        case MemoryEventKind::kFork:
            return fmt::format("{} {}", event.shares_space ? "sharing its space with" : "begets",
                               event.child);
        case MemoryEventKind::kFault:
            return fmt::format("{:#x} {}", event.start.value(), event.write ? "write" : "read");
        default:
            return {};
    }
}

std::string line_of(const MemoryEvent& event) {
    std::string line = fmt::format("{:>8} cpu {:<3} process {:<7} {:<8} {}", event.position, event.cpu,
                                   event.process, name_of(event.kind), details(event));
    while (line.ends_with(' ')) line.pop_back();
    return line + "\n";
}

std::string line_of(const TlbOperation& seen) {
    if (seen.source == TlbOperation::Source::kTlbie)
        return fmt::format("{:>8} cpu {:<3} {}\n", seen.position, seen.cpu, in_words(seen.operands));
    return fmt::format(
        "{:>8} cpu {:<3} tlb_flush: {}, reason {}\n", seen.position, seen.cpu,
        seen.bytes == 0 ? "everything of the space" : fmt::format("{} pages", grouped(seen.bytes / 4096)),
        seen.reason);
}

Json json_of(const MemoryEvent& event) {
    Json json{{"line", event.position},   {"kind", name_of(event.kind)}, {"cpu", event.cpu},
              {"process", event.process}, {"thread", event.thread},      {"time", event.time}};
    if (event.bytes != 0 || event.start.value() != 0) {
        json["start"] = fmt::format("{:#x}", event.start.value());
        json["bytes"] = event.bytes;
    }
    if (event.kind == MemoryEventKind::kRemap) {
        json["old_start"] = fmt::format("{:#x}", event.old_start.value());
        json["old_bytes"] = event.old_bytes;
    }
    if (event.kind == MemoryEventKind::kFork) {
        json["child"] = event.child;
        json["shares_space"] = event.shares_space;
    }
    if (event.kind == MemoryEventKind::kMap || event.kind == MemoryEventKind::kProtect)
        json["protection"] = event.protection;
    if (event.kind == MemoryEventKind::kMap) json["file"] = event.file;
    if (event.kind == MemoryEventKind::kFault) json["write"] = event.write;
    return json;
}

struct Found {
    std::array<std::uint64_t, 12> kinds{};
    std::uint64_t tlbie = 0;
    std::uint64_t tlbiel = 0;
    std::uint64_t flushes = 0;
};

std::string summary_text(const Options& options, const import::LogSummary& log, const Found& found) {
    std::string text;
    const auto line = [&](std::string_view name, std::uint64_t n) {
        if (n > 0) text += fmt::format("{:<16}{:>14}\n", name, grouped(n));
    };
    text += fmt::format("{:<16}{:>14}\n", "format", log.format);
    line("lines", log.lines);
    for (std::size_t kind = 1; kind < found.kinds.size(); ++kind)
        line(name_of(static_cast<MemoryEventKind>(kind)), found.kinds[kind]);
    line("tlbie", found.tlbie);
    line("tlbiel", found.tlbiel);
    line("tlb_flush", found.flushes);
    line("failed calls", log.failed_calls);
    line("other", log.others);
    line("lost", log.lost);
    std::vector<std::string> notes =
        log.problems.notes(options.input == "-" ? "standard input" : options.input);
    if (!log.damage.empty()) notes.push_back("it ends early: " + log.damage);
    if (!notes.empty()) text += "\nnotes\n";
    for (const std::string& note : notes) text += wrapped(note, "    ", 100, "  - ");
    return text;
}

Json summary_json(const import::LogSummary& log, const Found& found) {
    Json json{{"schema", 1}, {"format", log.format}, {"lines", log.lines}, {"events", Json::object()}};
    for (std::size_t kind = 1; kind < found.kinds.size(); ++kind)
        json["events"][std::string(name_of(static_cast<MemoryEventKind>(kind)))] = found.kinds[kind];
    json["tlbie"] = found.tlbie;
    json["tlbiel"] = found.tlbiel;
    json["tlb_flush"] = found.flushes;
    json["failed_calls"] = log.failed_calls;
    json["other"] = log.others;
    json["lost"] = log.lost;
    json["left_out"] = Json::array();
    for (const auto& reason : log.problems.reasons())
        json["left_out"].push_back(
            {{"reason", reason.text}, {"lines", reason.count}, {"first_line", reason.first_line}});
    json["damage"] = log.damage;
    return json;
}

Result<Exit> run(const Options& options, Console& console) {
    Found found;
    std::string out;
    std::optional<Error> closed;
    const auto put = [&](std::string text) {
        constexpr std::size_t kEnough = std::size_t{1} << 16;
        out += text;
        if (out.size() < kEnough || closed) return;
        if (auto done = console.print(out); !done) closed = done.error();
        out.clear();
    };
    const bool json_lines = options.list && *options.format == Format::kJson;
    const bool csv = options.list && *options.format == Format::kCsv;
    if (csv) out = "line,kind,cpu,process,thread,time,start,bytes,child,words\n";
    const import::LogSink sink{
        .event =
            [&](const MemoryEvent& event) {
                ++found.kinds[static_cast<std::size_t>(event.kind)];
                if (!options.list) return;
                if (json_lines)
                    put(json_of(event).dump() + "\n");
                else if (csv)
                    put(fmt::format("{},{},{},{},{},{},{:#x},{},{},\n", event.position, name_of(event.kind),
                                    event.cpu, event.process, event.thread, event.time, event.start.value(),
                                    event.bytes, event.child));
                else
                    put(line_of(event));
            },
        .operation =
            [&](const TlbOperation& seen) {
                const bool tlbie = seen.source == TlbOperation::Source::kTlbie;
                ++(!tlbie ? found.flushes : seen.local ? found.tlbiel : found.tlbie);
                if (!options.list) return;
                const std::string words = tlbie ? in_words(seen.operands) : "tlb_flush";
                if (json_lines)
                    put(Json{{"line", seen.position},
                             {"kind", tlbie ? (seen.local ? "tlbiel" : "tlbie") : "tlb_flush"},
                             {"cpu", seen.cpu},
                             {"time", seen.time},
                             {"scope", name_of(seen.scope)},
                             {"start", fmt::format("{:#x}", seen.start.value())},
                             {"bytes", seen.bytes},
                             {"reason", seen.reason},
                             {"words", words}}
                            .dump() +
                        "\n");
                else if (csv)
                    put(fmt::format("{},{},{},,,{},{:#x},{},,\"{}\"\n", seen.position,
                                    tlbie ? (seen.local ? "tlbiel" : "tlbie") : "tlb_flush", seen.cpu,
                                    seen.time, seen.start.value(), seen.bytes, words));
                else
                    put(line_of(seen));
            }};
    auto log = import::read_log(options.input, sink);
    if (!log) return std::unexpected(log.error());
    if (!options.list) {
        if (*options.format == Format::kCsv) {
            out = "quantity,value\n";
            for (std::size_t kind = 1; kind < found.kinds.size(); ++kind)
                out += fmt::format("{},{}\n", name_of(static_cast<MemoryEventKind>(kind)), found.kinds[kind]);
            out += fmt::format("tlbie,{}\ntlbiel,{}\ntlb_flush,{}\nleft_out,{}\n", found.tlbie, found.tlbiel,
                               found.flushes, log->problems.total());
        } else {
            out = *options.format == Format::kJson ? summary_json(*log, found).dump(2) + "\n"
                                                   : summary_text(options, *log, found);
        }
    } else {
        for (const std::string& note : log->problems.notes(options.input)) console.note(note);
    }
    if (closed) return std::unexpected(*closed);
    if (auto done = console.print(out); !done) return std::unexpected(done.error());
    if (*options.format == Format::kText && !options.list && options.input != "-")
        console.suggest(fmt::format("tlbscope flush {}", options.input));
    return Exit::kOk;
}

}  // namespace

Command import_command() {
    return {.name = "import",
            .summary = "say what another tool's log tells of address spaces and TLBs",
            .examples =
                "  tlbscope import trace.txt              events by kind, and what was left out\n"
                "  tlbscope import make.strace.gz --list  each event; tlbie operands in words\n"
                "  tlbscope import - --list --json        the same, an object a line\n",
            .declare = [](CLI::App& app, Console& console) -> Run {
                auto options = std::make_shared<Options>();
                app.add_option(
                       "log", options->input,
                       "text of ftrace, trace-cmd report, perf script or strace -f, told by its content; "
                       "gz, xz and zst are unpacked; - for standard input")
                    ->required()
                    ->type_name("LOG");
                app.add_flag("--list", options->list, "list the events");
                add_format_options(app, options->format);
                return [options, &console] { return run(*options, console); };
            }};
}

}  // namespace tlbscope::cli
