// tlbscope info: what a recording holds, and what it does not.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "core/numbers.h"
#include "core/tlbie.h"
#include "recording/kernel_events.h"
#include "recording/summary.h"

namespace tlbscope::cli {

namespace {

using recording::EventType;
using recording::Recording;
using recording::Summary;

std::string joined(const std::vector<std::string>& words) {
    std::string line;
    for (const std::string& word : words) line += (line.empty() ? "" : " ") + word;
    return line;
}

double bytes_per_reference(const Recording& recording, const Summary& summary) {
    return summary.total() == 0
               ? 0
               : static_cast<double>(recording.file_bytes()) / static_cast<double>(summary.total());
}

std::uint64_t host_nanoseconds(const Recording& recording) {
    return recording.chunks().empty() ? 0 : recording.chunks().back().time_ns;
}

std::uint64_t count(const Summary& summary, EventType type) {
    return summary.events[static_cast<std::size_t>(type)];
}

struct Operation {
    std::size_t kind;
    const char* name;
};
constexpr Operation kInvalidations[] = {
    {1, "invlpg"}, {2, "mov-to-cr3"}, {3, "invpcid"},         {16, "tlbie"},         {17, "tlbiel"},
    {18, "slbia"}, {19, "tlbia"},     {20, "44x-flush-page"}, {21, "44x-flush-all"},
};
constexpr Operation kBarriers[] = {{1, "ptesync"}, {2, "tlbsync"}};

constexpr std::uint64_t kNanosecondsPerInstruction = 4;  // the guest's clock, -icount shift=2

using recording::KernelEventCounts;

std::string event_lines(const recording::Metadata& m, const KernelEventCounts& counts) {
    std::string out = fmt::format("\nthe kernel's own events: {}{}\n", grouped(counts.total),
                                  m.lost_kernel_events == 0
                                      ? std::string(", none lost")
                                      : fmt::format("; {} more were lost", grouped(m.lost_kernel_events)));
    const auto list = [&](const char* what, auto& numbers, auto name_of_index) {
        std::string line;
        for (std::size_t i = 0; i < numbers.size(); ++i)
            if (numbers[i] != 0)
                line +=
                    fmt::format("{}{} {}", line.empty() ? "" : ", ", grouped(numbers[i]), name_of_index(i));
        if (!line.empty()) out += fmt::format("  {:<24}{}\n", what, line);
    };
    list("memory", counts.memory, [](std::size_t i) { return name_of(static_cast<MemoryEventKind>(i)); });
    list("asked of flush code", counts.calls,
         [](std::size_t i) { return name_of(static_cast<MemoryCallKind>(i)); });
    if (counts.tlbie + counts.tlbiel != 0)
        out += fmt::format("  {:<24}{} tlbie, {} tlbiel\n", "instructions traced", grouped(counts.tlbie),
                           grouped(counts.tlbiel));
    list("local operations", counts.local, [](std::size_t i) { return name_of(static_cast<TlbScope>(i)); });
    list("global operations", counts.global, [](std::size_t i) { return name_of(static_cast<TlbScope>(i)); });
    // include/linux/mm_types.h, enum tlb_flush_reason.
    constexpr std::array kReasons{"on a switch",    "for another CPU", "of this CPU", "of this CPU's space",
                                  "sent to others", "for a wrong CPU", "6",           "7"};
    list("flushes traced", counts.flush_reasons, [&](std::size_t i) { return kReasons[i]; });
    out += "  tracing perturbs the kernel: its misses and instructions here include what tracing costs\n";
    return out;
}

// Operands of tlbie and tlbiel by kind, in words; nothing when there were none or they cannot be read.
std::string operand_lines(const Recording& recording) {
    std::map<std::string, std::uint64_t> kinds;
    recording::KernelEventReader reader(recording);
    for (auto event = reader.next(); event && *event; event = reader.next())
        if (const auto* seen = std::get_if<TlbOperation>(&**event);
            seen != nullptr && seen->source == TlbOperation::Source::kTlbie)
            ++kinds[kind_in_words(seen->operands)];
    std::string out;
    for (const auto& [words, count] : kinds) out += fmt::format("  {:>14} {}\n", grouped(count), words);
    return out;
}

nlohmann::json event_json(const recording::Metadata& m, const KernelEventCounts& counts) {
    using nlohmann::json;
    json memory = json::object();
    for (std::size_t i = 1; i <= static_cast<std::size_t>(MemoryEventKind::kSwitch); ++i)
        memory[name_of(static_cast<MemoryEventKind>(i))] = counts.memory[i];
    json calls = json::object();
    for (std::size_t i = 1; i <= static_cast<std::size_t>(MemoryCallKind::kExit); ++i)
        calls[name_of(static_cast<MemoryCallKind>(i))] = counts.calls[i];
    json local = json::object();
    json global = json::object();
    for (std::size_t i = 0; i < kTlbScopes; ++i) {
        local[name_of(static_cast<TlbScope>(i))] = counts.local[i];
        global[name_of(static_cast<TlbScope>(i))] = counts.global[i];
    }
    return {{"total", counts.total},
            {"lost", m.lost_kernel_events},
            {"memory", memory},
            {"calls", calls},
            {"tlbie", counts.tlbie},
            {"tlbiel", counts.tlbiel},
            {"local", local},
            {"global", global},
            {"flush_reasons", counts.flush_reasons},
            {"flushed_bytes", counts.flushed_bytes}};
}

std::string text(const Recording& recording, const Summary& s, const KernelEventCounts& events) {
    const recording::Metadata& m = recording.metadata();
    std::string out;
    const auto line = [&out](std::string_view name, const std::string& value) {
        if (!value.empty()) out += fmt::format("{:<16}{}\n", name, value);
    };
    line("recording", fmt::format("{}, {}", recording.path().string(), human_bytes(recording.file_bytes())));
    line("whole", recording.whole() ? "yes" : "no: " + recording.damage());
    line("command", joined(m.command));
    line("it", m.outcome);
    line("target", fmt::format("{}, {}", m.target,
                               m.system ? "a whole machine: kernel and user code"
                                        : "one user program, without its kernel"));
    line("kernel", m.kernel);
    line("kernel options", m.kernel_command_line);
    line("CPU",
         fmt::format("{} {}, QEMU {}, plugin interface {}", m.cpus == 1 ? "1 x" : fmt::format("{} x", m.cpus),
                     m.cpu_model, m.qemu_version, m.interface_version));
    line("deterministic", m.deterministic ? "yes: recording again gives the same content" : "no");
    line("window", m.window);
    constexpr std::array kGranularities{"full: every reference", "page: changes of page only",
                                        "none: no references, only counts and the kernel's events"};
    line("granularity", kGranularities[static_cast<std::size_t>(m.granularity)]);
    line("host time", fmt::format("{:.3f} s", static_cast<double>(host_nanoseconds(recording)) * 1e-9));
    const std::uint64_t fetches =
        s.of(Kind::kInstruction, Side::kUser) + s.of(Kind::kInstruction, Side::kKernel);
    if (m.deterministic)
        line("guest time", fmt::format("{:.3f} s ({} ns an instruction, idle time aside)",
                                       static_cast<double>(fetches * kNanosecondsPerInstruction) * 1e-9,
                                       kNanosecondsPerInstruction));
    line("references",
         fmt::format("{}, {:.4f} bytes each", grouped(s.total()), bytes_per_reference(recording, s)));
    if (s.repeats != 0)
        line("", fmt::format("{} of them further iterations of repeated string instructions",
                             grouped(s.repeats)));

    out += fmt::format("\n{:<16}{:>18}{:>18}{:>14}{:>14}\n", "virtual", "instruction", "data", "I pages",
                       "D pages");
    for (const Side side : {Side::kUser, Side::kKernel}) {
        const auto at = static_cast<std::size_t>(side);
        out +=
            fmt::format("{:<16}{:>18}{:>18}{:>14}{:>14}\n", side == Side::kUser ? "user side" : "kernel side",
                        grouped(s.of(Kind::kInstruction, side)), grouped(s.of(Kind::kData, side)),
                        grouped(s.pages[at]), grouped(s.pages[2 + at]));
    }
    for (const Mode mode : {Mode::kUser, Mode::kKernel})
        out +=
            fmt::format("{:<16}{:>18}{:>18}\n", mode == Mode::kUser ? "user mode" : "kernel mode",
                        grouped(s.of_mode(Kind::kInstruction, mode)), grouped(s.of_mode(Kind::kData, mode)));
    if (s.loads + s.stores != 0)
        out += fmt::format("data: {} loads, {} stores; {} blocks executed, {} in the dictionary\n",
                           grouped(s.loads), grouped(s.stores), grouped(s.executions),
                           grouped(recording.dictionary().size()));
    for (const Side side : {Side::kUser, Side::kKernel}) {
        const auto at = static_cast<std::size_t>(side);
        if (s.lowest[at] <= s.highest[at])
            out += fmt::format("{} addresses: {:#x} to {:#x}\n", side == Side::kUser ? "user" : "kernel",
                               s.lowest[at], s.highest[at]);
    }
    struct Name {
        EventType type;
        const char* words;
    };
    for (const Name& name :
         {Name{EventType::kMark, "marks"}, Name{EventType::kSwitchSpace, "switches of space"},
          Name{EventType::kBinding, "page bindings"}, Name{EventType::kSystemCall, "system calls"}})
        if (const std::uint64_t n = count(s, name.type); n != 0)
            out += fmt::format("{} {}\n", grouped(n), name.words);
    const auto kinds = [&](auto& counts, auto& names, const char* what) {
        std::string list;
        for (const Operation& operation : names)
            if (counts[operation.kind] != 0)
                list += fmt::format("{}{} {}", list.empty() ? "" : ", ", grouped(counts[operation.kind]),
                                    operation.name);
        if (!list.empty()) out += fmt::format("{} executed: {}\n", what, list);
    };
    kinds(s.invalidations, kInvalidations, "invalidations");
    kinds(s.barriers, kBarriers, "barriers");
    if (s.own_misses)
        out += fmt::format(
            "the guest's own TLB: {} refills; its miss handlers ran {} times for data and {} for "
            "instructions (refills and page faults)\n",
            grouped(s.own_misses->refills), grouped(s.own_misses->data_handler),
            grouped(s.own_misses->instruction_handler));
    if (m.early_ends != 0)
        out += fmt::format("{} executions ended early by a fault; {}\n", grouped(m.early_ends),
                           m.uncertain_instructions == 0
                               ? std::string("each counted up to the instruction that faulted")
                               : fmt::format("at most {} instructions are not counted because of them",
                                             grouped(m.uncertain_instructions)));
    std::size_t named = 0;
    for (const recording::Space& space : m.spaces) named += space.name.empty() ? 0 : 1;
    if (m.system)
        out += fmt::format("{} spaces, {} of them named; {} mapped ranges\n", m.spaces.size(), named,
                           m.maps.size());
    if (m.kernel_events) out += event_lines(m, events) + operand_lines(recording);
    if (!m.not_recorded.empty()) out += "\nnot recorded:\n";
    for (const std::string& missing : m.not_recorded) out += "  " + missing + "\n";
    return out;
}

nlohmann::json json(const Recording& recording, const Summary& s, const KernelEventCounts& events) {
    const recording::Metadata& m = recording.metadata();
    using nlohmann::json;
    const auto sides = [&](Kind kind) {
        return json{{"user", s.of(kind, Side::kUser)}, {"kernel", s.of(kind, Side::kKernel)}};
    };
    const auto modes = [&](Kind kind) {
        return json{{"user", s.of_mode(kind, Mode::kUser)}, {"kernel", s.of_mode(kind, Mode::kKernel)}};
    };
    json spaces = json::array();
    for (const recording::Space& space : m.spaces)
        spaces.push_back({{"id", space.id.value()},
                          {"pid", space.pid},
                          {"name", space.name},
                          {"task", fmt::format("{:#x}", space.task)}});
    json maps = json::array();
    for (const recording::MappedRange& range : m.maps)
        maps.push_back({{"space", range.space.value()},
                        {"start", fmt::format("{:#x}", range.start.value())},
                        {"end", fmt::format("{:#x}", range.end.value())},
                        {"offset", range.file_offset},
                        {"protection", range.protection},
                        {"path", range.path},
                        {"build_id", range.build_id}});
    const auto kinds = [](auto& counts, auto& names) {
        json list = json::object();
        for (const Operation& operation : names) list[operation.name] = counts[operation.kind];
        return list;
    };
    json own_misses;
    if (s.own_misses)
        own_misses = {{"refills", s.own_misses->refills},
                      {"data_handler", s.own_misses->data_handler},
                      {"instruction_handler", s.own_misses->instruction_handler}};
    return {{"schema", 1},
            {"recording", recording.path().string()},
            {"bytes", recording.file_bytes()},
            {"whole", recording.whole()},
            {"damage", recording.damage()},
            {"command", m.command},
            {"outcome", m.outcome},
            {"target", m.target},
            {"system", m.system},
            {"kernel", m.kernel},
            {"kernel_command_line", m.kernel_command_line},
            {"kernel_build_id", m.kernel_build_id},
            {"cpus", m.cpus},
            {"cpu_model", m.cpu_model},
            {"qemu_version", m.qemu_version},
            {"interface_version", m.interface_version},
            {"deterministic", m.deterministic},
            {"window", m.window},
            {"granularity", name_of(m.granularity)},
            {"host_time_ns", host_nanoseconds(recording)},
            {"references",
             {{"total", s.total()},
              {"instruction", sides(Kind::kInstruction)},
              {"data", sides(Kind::kData)},
              {"by_mode", {{"instruction", modes(Kind::kInstruction)}, {"data", modes(Kind::kData)}}},
              {"loads", s.loads},
              {"stores", s.stores},
              {"repeats", s.repeats}}},
            {"pages",
             {{"instruction", {{"user", s.pages[0]}, {"kernel", s.pages[1]}}},
              {"data", {{"user", s.pages[2]}, {"kernel", s.pages[3]}}}}},
            {"executions", s.executions},
            {"dictionary", recording.dictionary().size()},
            {"events",
             {{"marks", count(s, EventType::kMark)},
              {"switches", count(s, EventType::kSwitchSpace)},
              {"invalidations", count(s, EventType::kInvalidate)},
              {"barriers", count(s, EventType::kBarrier)},
              {"bindings", count(s, EventType::kBinding)},
              {"system_calls", count(s, EventType::kSystemCall)}}},
            {"invalidations", kinds(s.invalidations, kInvalidations)},
            {"barriers", kinds(s.barriers, kBarriers)},
            {"guest_tlb", own_misses},
            {"kernel_events", m.kernel_events ? event_json(m, events) : json()},
            {"page_bytes", m.page_bytes},
            {"early_ends", m.early_ends},
            {"uncertain_instructions", m.uncertain_instructions},
            {"bytes_per_reference", bytes_per_reference(recording, s)},
            {"digest", fmt::format("{:#018x}", s.digest)},
            {"spaces", spaces},
            {"maps", maps},
            {"not_recorded", m.not_recorded}};
}

// One row of names, one of values: the numbers of the JSON that are single.
std::string csv(const nlohmann::json& all) {
    std::string names;
    std::string values;
    const std::function<void(const std::string&, const nlohmann::json&)> flatten =
        [&](const std::string& prefix, const nlohmann::json& value) {
            if (value.is_object()) {
                for (const auto& [key, part] : value.items())
                    flatten(prefix.empty() ? key : fmt::format("{}.{}", prefix, key), part);
            } else if (value.is_number() || value.is_boolean()) {
                names.append(names.empty() ? "" : ",").append(prefix);
                values.append(values.empty() ? "" : ",").append(value.dump());
            }
        };
    flatten("", all);
    return names + "\n" + values + "\n";
}

Result<Exit> run(const std::string& file, Format format, Console& console) {
    auto recording = Recording::open(file);
    if (!recording) return std::unexpected(recording.error());
    auto summary = recording::summarise(*recording);
    if (!summary) return std::unexpected(summary.error());
    auto events = recording::count_kernel_events(*recording);
    if (!events) return std::unexpected(events.error());
    std::string out;
    if (format == Format::kText)
        out = text(*recording, *summary, *events);
    else if (format == Format::kJson)
        out = json(*recording, *summary, *events)
                  .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
              "\n";
    else
        out = csv(json(*recording, *summary, *events));
    if (auto printed = console.print(out); !printed) return std::unexpected(printed.error());
    console.suggest(file == kDefaultRecording ? "tlbscope replay" : "tlbscope replay " + file);
    return Exit::kOk;
}

}  // namespace

Command info_command() {
    return {.name = "info",
            .summary = "say what a recording holds, and what it does not",
            .examples =
                "  tlbscope info                 what tlbscope.rec holds\n"
                "  tlbscope info dd.rec --json   the same for a script\n",
            .declare = [](CLI::App& app, Console& console) -> Run {
                auto file = std::make_shared<std::string>(kDefaultRecording);
                auto format = std::make_shared<Format>(Format::kText);
                app.add_option("recording", *file, "a recording")->capture_default_str();
                add_format_options(app, format);
                return [file, format, &console]() -> Result<Exit> { return run(*file, *format, console); };
            }};
}

}  // namespace tlbscope::cli
