#include "import_perf_script/perf_script.h"

#include <charconv>

namespace tlbscope::import {

namespace {

std::string_view skip_spaces(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    return text;
}

std::string_view drop_spaces(std::string_view text) {
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
    return text;
}

std::optional<std::uint32_t> small(std::string_view text) {
    std::uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
    return value;
}

struct Parsed {
    TraceLine line;
    bool has_cpu = false;
};

// The prefix ends with the first word that is a time and a colon.
std::optional<Parsed> parse(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size()) {
        while (at < text.size() && text[at] == ' ') ++at;
        std::size_t end = text.find(' ', at);
        if (end == std::string_view::npos) return std::nullopt;
        const std::string_view word = text.substr(at, end - at);
        const auto time = word.ends_with(':') ? trace_time(word.substr(0, word.size() - 1))
                                              : std::optional<std::uint64_t>{};
        if (!time) {
            at = end;
            continue;
        }
        Parsed parsed;
        parsed.line.time = *time;
        std::string_view before = drop_spaces(text.substr(0, at));
        if (before.ends_with(']')) {
            const std::size_t open = before.rfind('[');
            if (open == std::string_view::npos) return std::nullopt;
            const auto cpu = small(before.substr(open + 1, before.size() - open - 2));
            if (!cpu) return std::nullopt;
            parsed.line.cpu = *cpu;
            parsed.has_cpu = true;
            before = drop_spaces(before.substr(0, open));
        }
        const std::string_view who = before.substr(before.rfind(' ') + 1);
        const std::size_t slash = who.find('/');
        if (slash != std::string_view::npos) {
            const auto process = small(who.substr(0, slash));
            const auto thread = small(who.substr(slash + 1));
            if (!process || !thread) return std::nullopt;
            parsed.line.process = *process;
            parsed.line.thread = *thread;
        } else {
            const auto thread = small(who);
            if (!thread) return std::nullopt;
            parsed.line.thread = *thread;
        }
        std::string_view rest = skip_spaces(text.substr(end));
        // A period may stand before the event.
        const std::string_view first = rest.substr(0, rest.find(' '));
        if (small(first)) rest = skip_spaces(rest.substr(first.size()));
        // "group:name: payload", or "page-faults: payload" and "page-faults:u: payload".
        std::size_t colon = rest.find(": ");
        if (colon == std::string_view::npos) {
            if (!rest.ends_with(':')) return std::nullopt;
            colon = rest.size() - 1;
        }
        std::string_view event = rest.substr(0, colon);
        if (event.find(' ') != std::string_view::npos) return std::nullopt;
        parsed.line.payload =
            colon + 2 <= rest.size() ? skip_spaces(rest.substr(colon + 2)) : std::string_view{};
        if (const std::size_t group = event.find(':'); group != std::string_view::npos) {
            const std::string_view name = event.substr(group + 1);
            event =
                name.size() <= 3 && event.find('-') != std::string_view::npos ? event.substr(0, group) : name;
        }
        parsed.line.event = event;
        return parsed;
    }
    return std::nullopt;
}

}  // namespace

bool looks_like_perf_script(std::string_view first_lines) {
    while (!first_lines.empty()) {
        const std::size_t end = first_lines.find('\n');
        if (parse(first_lines.substr(0, end))) return true;
        if (end == std::string_view::npos) break;
        first_lines.remove_prefix(end + 1);
    }
    return false;
}

void PerfScriptReader::line(std::string_view text, std::uint64_t number) {
    if (text.empty() || text.starts_with('#')) return;
    auto parsed = parse(text);
    if (!parsed) {
        if (text.starts_with(' ') || text.starts_with('\t')) return;  // a line of a call chain
        tracepoints_.problems().add("a line that is no trace event", number);
        return;
    }
    if (parsed->line.event.starts_with("PERF_RECORD_LOST")) {
        ++lost_;
        return;
    }
    if (parsed->has_cpu) ++with_cpu_;
    parsed->line.number = number;
    tracepoints_.line(parsed->line);
}

}  // namespace tlbscope::import
