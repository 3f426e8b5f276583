#include "import_ftrace/ftrace.h"

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

// The prefix ends at the first "[digits]" that has "-pid" before it and a time after it.
std::optional<TraceLine> parse(std::string_view text) {
    for (std::size_t open = text.find('['); open != std::string_view::npos; open = text.find('[', open + 1)) {
        const std::size_t close = text.find(']', open);
        if (close == std::string_view::npos) return std::nullopt;
        const auto cpu = small(text.substr(open + 1, close - open - 1));
        if (!cpu) continue;
        TraceLine line;
        line.cpu = *cpu;
        std::string_view before = drop_spaces(text.substr(0, open));
        if (before.ends_with(')')) {
            const std::size_t bracket = before.rfind('(');
            if (bracket == std::string_view::npos) continue;
            const std::string_view inside = before.substr(bracket + 1, before.size() - bracket - 2);
            line.process = small(skip_spaces(inside)).value_or(0);  // "-----" when unknown
            before = drop_spaces(before.substr(0, bracket));
        }
        const std::size_t dash = before.rfind('-');
        if (dash == std::string_view::npos) continue;
        const auto thread = small(before.substr(dash + 1));
        if (!thread) continue;
        line.thread = *thread;
        std::string_view rest = skip_spaces(text.substr(close + 1));
        for (int column = 0; column < 2; ++column) {
            const std::size_t space = rest.find(' ');
            const std::string_view word = rest.substr(0, space);
            if (word.ends_with(':')) {
                const auto time = trace_time(word.substr(0, word.size() - 1));
                if (!time || space == std::string_view::npos) break;
                line.time = *time;
                rest = skip_spaces(rest.substr(space));
                // A system call's name runs into its arguments: "sys_munmap(addr: ..".
                const std::size_t colon = rest.find(": ");
                const std::size_t bracket = rest.find('(');
                const bool bare_call =
                    rest.starts_with("sys_") && (bracket < colon || rest.find(" -> ") < colon);
                if (bare_call) {
                    line.event = rest;
                } else if (colon != std::string_view::npos) {
                    line.event = rest.substr(0, colon);
                    line.payload = skip_spaces(rest.substr(colon + 2));
                } else if (rest.ends_with(':')) {
                    line.event = rest.substr(0, rest.size() - 1);
                } else {
                    return std::nullopt;
                }
                return line;
            }
            if (space == std::string_view::npos) break;
            rest = skip_spaces(rest.substr(space));  // the flags
        }
    }
    return std::nullopt;
}

}  // namespace

bool looks_like_ftrace(std::string_view first_lines) {
    while (!first_lines.empty()) {
        const std::size_t end = first_lines.find('\n');
        const std::string_view line = first_lines.substr(0, end);
        if (line.starts_with("# tracer:") || parse(line)) return true;
        if (end == std::string_view::npos) break;
        first_lines.remove_prefix(end + 1);
    }
    return false;
}

void FtraceReader::line(std::string_view text, std::uint64_t number) {
    if (text.empty() || text.starts_with('#')) return;
    if (text.starts_with("cpus=") || text.starts_with("version =") || text.starts_with("CPU:")) {
        // "CPU:1 [LOST 12 EVENTS]"; "CPU:1 [EVENTS DROPPED]" from trace-cmd
        const std::size_t lost = text.find("[LOST ");
        if (lost != std::string_view::npos) {
            const std::string_view rest = text.substr(lost + 6);
            lost_ += small(rest.substr(0, rest.find(' '))).value_or(1);
        } else if (text.find("DROPPED") != std::string_view::npos) {
            ++lost_;
        }
        return;
    }
    auto parsed = parse(text);
    if (!parsed) {
        tracepoints_.problems().add("a line that is no trace event", number);
        return;
    }
    parsed->number = number;
    tracepoints_.line(*parsed);
}

}  // namespace tlbscope::import
