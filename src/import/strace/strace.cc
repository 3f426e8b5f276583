#include "import_strace/strace.h"

#include <charconv>
#include <optional>
#include <utility>

namespace tlbscope::import {

namespace {

constexpr std::uint32_t kUnnamed = 1;

bool digit(char c) { return c >= '0' && c <= '9'; }

void skip_spaces(std::string_view& text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
}

// A number with an optional 0x, at the text's beginning; whatever follows stays.
std::optional<std::uint64_t> number_at(std::string_view text) {
    const bool hex = text.starts_with("0x");
    if (hex) text.remove_prefix(2);
    std::uint64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
    if (code != std::errc{} || end == text.data()) return {};
    return value;
}

// An address argument: NULL is 0.
std::optional<std::uint64_t> address_at(std::string_view text) {
    return text.starts_with("NULL") ? std::optional<std::uint64_t>(0) : number_at(text);
}

std::uint8_t protection_of(std::string_view text) {
    std::uint8_t bits = 0;
    if (text.find("PROT_READ") != std::string_view::npos) bits |= kProtectRead;
    if (text.find("PROT_WRITE") != std::string_view::npos) bits |= kProtectWrite;
    if (text.find("PROT_EXEC") != std::string_view::npos) bits |= kProtectExecute;
    return bits;
}

// "12.000345" in nanoseconds, and what follows it.
std::optional<std::uint64_t> seconds_at(std::string_view& text) {
    std::uint64_t whole = 0;
    const char* const last = text.data() + text.size();
    auto [end, code] = std::from_chars(text.data(), last, whole);
    if (code != std::errc{} || end == last || *end != '.') return {};
    std::uint64_t nanoseconds = 0;
    std::uint64_t unit = 100'000'000;
    for (++end; end != last && digit(*end); ++end, unit /= 10)
        nanoseconds += unit * static_cast<unsigned>(*end - '0');
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    return whole * 1'000'000'000 + nanoseconds;
}

// Splits "a, {b, c}, "d, e"" at the top-level commas.
std::vector<std::string_view> arguments_of(std::string_view text) {
    std::vector<std::string_view> arguments;
    std::size_t depth = 0;
    bool quoted = false;
    std::size_t start = 0;
    for (std::size_t at = 0; at <= text.size(); ++at) {
        if (at == text.size() || (text[at] == ',' && depth == 0 && !quoted)) {
            std::string_view argument = text.substr(start, at - start);
            skip_spaces(argument);
            if (!argument.empty() || at != text.size()) arguments.push_back(argument);
            start = at + 1;
            continue;
        }
        const char c = text[at];
        if (quoted) {
            if (c == '\\')
                ++at;
            else if (c == '"')
                quoted = false;
        } else if (c == '"') {
            quoted = true;
        } else if (c == '(' || c == '[' || c == '{') {
            ++depth;
        } else if ((c == ')' || c == ']' || c == '}') && depth != 0) {
            --depth;
        }
    }
    return arguments;
}

constexpr std::string_view kUnfinished = "<unfinished ...>";

}  // namespace

// "mmap(NULL, 4096, ...) = 0x7f0000000000 <0.000011>"
struct StraceReader::Call {
    std::string_view name;
    std::vector<std::string_view> arguments;
    std::string_view result;

    [[nodiscard]] bool failed() const { return result.starts_with("-1"); }
};

bool looks_like_strace(std::string_view text) {
    std::size_t calls = 0;
    for (int lines = 0; lines < 50 && !text.empty(); ++lines) {
        const std::size_t end = text.find('\n');
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        const std::size_t open = line.find('(');
        const bool named = open != std::string_view::npos && open != 0 &&
                           (digit(line[open - 1]) || (line[open - 1] >= 'a' && line[open - 1] <= 'z'));
        if (named && (line.find(") = ") != std::string_view::npos || line.ends_with(kUnfinished))) ++calls;
        if (line.find("+++ exited with ") != std::string_view::npos) ++calls;
    }
    return calls != 0;
}

void StraceReader::begin_task(std::uint32_t task, std::uint32_t process) {
    tasks_[task] = {.process = process, .unfinished = {}, .heap = 0, .alive = true};
}

bool StraceReader::fork_pending() const {
    for (const auto& [id, task] : tasks_)
        for (const std::string_view name : {"clone", "fork", "vfork"})
            if (task.unfinished.starts_with(name)) return true;
    return false;
}

// The process that a line names in front, removed from it; 0 when the line names none.
std::uint32_t StraceReader::task_of_line(std::string_view& rest, std::uint64_t) {
    std::string_view text = rest;
    const bool bracket = text.starts_with("[pid");
    if (bracket) {
        text.remove_prefix(4);
        skip_spaces(text);
    }
    std::uint32_t pid = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), pid);
    if (code != std::errc{}) return 0;
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (text.starts_with("<")) {  // --decode-pids=comm: 1234<bash>
        const std::size_t close = text.find('>');
        if (close == std::string_view::npos) return 0;
        text.remove_prefix(close + 1);
    }
    if (bracket) {
        if (!text.starts_with("]")) return 0;
        text.remove_prefix(1);
    } else if (!text.starts_with(" ") && !text.starts_with("\t")) {
        return 0;  // a time: 12:34:56, or 1700000000.123456
    }
    skip_spaces(text);
    rest = text;
    return pid;
}

// A time in front, removed from the line; 0 when there is none.
std::uint64_t StraceReader::time_of_line(std::string_view& rest) {
    std::string_view text = rest;
    skip_spaces(text);
    if (text.starts_with("(+")) text.remove_prefix(2);  // -tt -r
    skip_spaces(text);
    if (text.empty() || !digit(text.front())) return 0;
    std::uint64_t time = 0;
    if (text.size() > 8 && text[2] == ':' && text[5] == ':') {
        std::uint64_t seconds = 0;
        for (const std::size_t at : {0, 3, 6}) {
            if (!digit(text[at]) || !digit(text[at + 1])) return 0;
            seconds = seconds * 60 + static_cast<unsigned>(text[at] - '0') * 10 +
                      static_cast<unsigned>(text[at + 1] - '0');
        }
        text.remove_prefix(8);
        std::uint64_t fraction = 0;
        if (text.starts_with(".")) {
            const std::string zero = "0" + std::string(text);
            std::string_view view = zero;
            fraction = seconds_at(view).value_or(0);
            text.remove_prefix(zero.size() - view.size() - 1);
        }
        time = seconds * 1'000'000'000 + fraction;
    } else {
        const auto seconds = seconds_at(text);
        if (!seconds) return 0;
        // Anything below ten years after 1970 is the difference that -r prints.
        constexpr std::uint64_t kTenYears = std::uint64_t{10} * 365 * 86400 * 1'000'000'000;
        time = *seconds >= kTenYears ? * seconds : clock_ += *seconds;
    }
    if (text.starts_with(")")) text.remove_prefix(1);
    skip_spaces(text);
    rest = text;
    return time;
}

void StraceReader::line(std::string_view text, std::uint64_t number) {
    if (text.empty()) return;
    // On a terminal strace's own words cut into the call that made the process; the rest of it is the next
    // line.
    const std::size_t attached =
        text.ends_with(" attached") ? text.rfind("strace: Process ") : std::string_view::npos;
    if (attached != std::string_view::npos || text.starts_with("strace: ")) {
        if (attached != std::string_view::npos) cut_off_ += text.substr(0, attached);
        return;
    }
    std::string joined;
    if (!cut_off_.empty()) {
        joined = std::exchange(cut_off_, {}) + std::string(text);
        text = joined;
    }
    std::uint32_t task = task_of_line(text, number);
    const std::uint64_t time = time_of_line(text);
    if (task == 0) {
        // The one process that is left, or the first one.
        std::uint32_t alive = 0;
        std::size_t count = 0;
        for (const auto& [id, known] : tasks_) {
            if (!known.alive) continue;
            alive = id;
            ++count;
        }
        task = count == 1 ? alive : kUnnamed;
        if (!tasks_.contains(task)) {
            unnamed_ = true;
            begin_task(task, task);
        }
        content(task, time, text, number);
        return;
    }
    if (const auto alias = aliases_.find(task); alias != aliases_.end()) task = alias->second;
    if (!tasks_.contains(task)) {
        const bool first_named = unnamed_ && aliases_.empty();
        const Task* const first = first_named ? &tasks_.at(kUnnamed) : nullptr;
        bool is_first = false;
        if (first != nullptr) {
            // Until now the first process had no name. It is this one unless this can be its child: a fork of
            // it has not returned, and the line does not resume what the first one left unfinished.
            const bool resumes = text.starts_with("<... ");
            const std::string_view name =
                resumes ? text.substr(5, text.find(' ', 5) - 5) : std::string_view{};
            is_first = fork_pending() ? resumes && first->unfinished.starts_with(name) : true;
        }
        if (is_first) {
            aliases_[task] = kUnnamed;
            task = kUnnamed;
        } else if (fork_pending()) {
            waiting_[task].push_back({time, number, std::string(text)});
            return;
        } else {
            begin_task(task, task);  // strace -p, or the first process of a log with names
        }
    }
    content(task, time, text, number);
}

void StraceReader::content(std::uint32_t task, std::uint64_t time, std::string_view text,
                           std::uint64_t number) {
    Task& state = tasks_.at(task);
    if (text.starts_with("--- ")) {  // a signal
        ++other_calls_;
        return;
    }
    if (text.starts_with("+++ ")) {
        if (text.find("superseded by execve") != std::string_view::npos) {
            // Another thread has become this task; what it left unfinished goes on here.
            const std::size_t pid = text.rfind("pid ");
            const auto other = pid == std::string_view::npos ? std::nullopt : number_at(text.substr(pid + 4));
            if (other && tasks_.contains(static_cast<std::uint32_t>(*other))) {
                Task& thread = tasks_.at(static_cast<std::uint32_t>(*other));
                state.unfinished = std::exchange(thread.unfinished, {});
                thread.alive = false;
            }
            return;
        }
        exit_task(task, time, number);
        return;
    }
    if (text.starts_with("<... ")) {
        const std::size_t end = text.find(" resumed>");
        if (text.starts_with("<... exit") && !state.alive) return;
        if (end == std::string_view::npos || state.unfinished.empty()) {
            problems_.add("the rest of a call whose beginning is not in the log", number);
            return;
        }
        const std::string whole = std::exchange(state.unfinished, {}) + std::string(text.substr(end + 9));
        call(task, time, whole, number);
        return;
    }
    if (const std::size_t cut = text.rfind(kUnfinished); cut != std::string_view::npos) {
        if (!state.unfinished.empty()) problems_.add("a call that never returned", number);
        state.unfinished = std::string(text.substr(0, cut));
        while (state.unfinished.ends_with(' ')) state.unfinished.pop_back();
        // What ends a process does not return.
        if (state.unfinished.starts_with("exit"))
            call(task, time, std::exchange(state.unfinished, {}) + ") = ?", number);
        return;
    }
    call(task, time, text, number);
}

void StraceReader::call(std::uint32_t task, std::uint64_t time, std::string_view text, std::uint64_t number) {
    const std::size_t open = text.find('(');
    std::size_t close = text.rfind(") = ");
    std::size_t result = close + 4;
    if (close == std::string_view::npos) {  // strace pads short calls: "brk(NULL)     = 0x5"
        const std::size_t equals = text.rfind(" = ");
        close = equals == std::string_view::npos ? equals : text.find_last_not_of(' ', equals);
        result = equals + 3;
        if (close != std::string_view::npos && text[close] != ')') close = std::string_view::npos;
    }
    bool named = open != std::string_view::npos && open != 0;
    for (std::size_t at = 0; named && at < open; ++at)
        named = digit(text[at]) || text[at] == '_' || (text[at] >= 'a' && text[at] <= 'z');
    if (!named || close == std::string_view::npos || close < open) {
        problems_.add("not a line that strace writes", number);
        return;
    }
    const Call made{.name = text.substr(0, open),
                    .arguments = arguments_of(text.substr(open + 1, close - open - 1)),
                    .result = text.substr(result)};
    static const std::set<std::string_view> kForks{"clone", "clone2", "clone3", "fork", "vfork"};
    if (kForks.contains(made.name)) {
        fork_call(task, made, time, number);
        return;
    }
    if (made.name == "exit") {
        exit_task(task, time, number);
        return;
    }
    if (made.name == "exit_group") {
        const std::uint32_t process = tasks_.at(task).process;
        std::vector<std::uint32_t> group;
        for (const auto& [id, other] : tasks_)
            if (other.process == process && other.alive) group.push_back(id);
        for (const std::uint32_t id : group) exit_task(id, time, number);
        return;
    }
    memory_call(task, made, time, number);
}

void StraceReader::memory_call(std::uint32_t task, const Call& call, std::uint64_t time,
                               std::uint64_t number) {
    Task& state = tasks_.at(task);
    MemoryEvent event{.process = state.process, .thread = task, .time = time, .position = number};
    const auto& arguments = call.arguments;
    const auto argument = [&](std::size_t n) {
        return n < arguments.size() ? address_at(arguments[n]) : std::optional<std::uint64_t>{};
    };
    bool understood = false;
    if (call.name == "execve" || call.name == "execveat") {
        if (call.failed()) {
            ++failed_calls_;
            return;
        }
        for (auto& [id, other] : tasks_)
            if (other.process == state.process && id != task) other.alive = false;
        state.heap = 0;
        event.kind = MemoryEventKind::kExec;
        understood = true;
    } else if (call.name == "brk") {
        const auto end = address_at(call.result);
        if (end) {
            if (state.heap == 0) state.heap = *end;  // the program's first call asks where the heap is
            event.kind = MemoryEventKind::kBreak;
            event.start = VirtAddr(state.heap);
            event.bytes = *end >= state.heap ? *end - state.heap : 0;
            understood = true;
        }
    } else if (call.name == "mmap" || call.name == "mmap2" || call.name == "old_mmap") {
        if (call.failed()) {
            ++failed_calls_;
            return;
        }
        const auto start = address_at(call.result);
        const auto bytes = argument(1);
        if (start && bytes && arguments.size() >= 4) {
            event.kind = MemoryEventKind::kMap;
            event.start = VirtAddr(*start);
            event.bytes = *bytes;
            event.protection = protection_of(arguments[2]);
            event.file = arguments[3].find("MAP_ANON") == std::string_view::npos;
            understood = true;
        }
    } else if (call.name == "munmap" || call.name == "mprotect" || call.name == "pkey_mprotect" ||
               call.name == "madvise") {
        const auto start = argument(0);
        const auto bytes = argument(1);
        if (call.failed()) {
            ++failed_calls_;
            return;
        }
        if (start && bytes) {
            event.kind = MemoryEventKind::kUnmap;
            event.start = VirtAddr(*start);
            event.bytes = *bytes;
            understood = true;
            if (call.name == "madvise") {
                if (arguments.size() < 3 || arguments[2] != "MADV_DONTNEED") {
                    ++other_calls_;
                    return;
                }
                event.kind = MemoryEventKind::kDiscard;
            } else if (call.name != "munmap") {
                event.kind = MemoryEventKind::kProtect;
                if (arguments.size() < 3) understood = false;
                event.protection = arguments.size() < 3 ? std::uint8_t{0} : protection_of(arguments[2]);
            }
        }
    } else if (call.name == "mremap") {
        if (call.failed()) {
            ++failed_calls_;
            return;
        }
        const auto old_start = argument(0);
        const auto old_bytes = argument(1);
        const auto bytes = argument(2);
        const auto start = address_at(call.result);
        if (old_start && old_bytes && bytes && start) {
            event.kind = MemoryEventKind::kRemap;
            event.old_start = VirtAddr(*old_start);
            event.old_bytes = *old_bytes;
            event.start = VirtAddr(*start);
            event.bytes = *bytes;
            understood = true;
        }
    } else if (call.name == "shmat" && !call.failed()) {
        problems_.add("shmat maps a segment whose size the log does not tell", number);
        return;
    } else {
        ++other_calls_;
        return;
    }
    if (!understood) {
        problems_.add("arguments that are not those of " + std::string(call.name), number);
        return;
    }
    sink_(event);
}

void StraceReader::fork_call(std::uint32_t task, const Call& call, std::uint64_t time, std::uint64_t number) {
    if (call.failed()) {
        ++failed_calls_;
        return;
    }
    const auto child = number_at(call.result);
    if (!child || *child == 0 || *child > 0xffffffff) {
        problems_.add("arguments that are not those of " + std::string(call.name), number);
        return;
    }
    const auto id = static_cast<std::uint32_t>(*child);
    std::string all;
    for (const std::string_view argument : call.arguments) (all += argument) += ' ';
    const bool thread = all.find("CLONE_THREAD") != std::string::npos;
    const bool shares = call.name == "vfork" || all.find("CLONE_VM") != std::string::npos;
    const std::uint32_t process = tasks_.at(task).process;
    const std::uint64_t heap = tasks_.at(process).heap != 0 ? tasks_.at(process).heap : tasks_.at(task).heap;
    begin_task(id, thread ? process : id);
    tasks_.at(id).heap = heap;
    sink_({.kind = MemoryEventKind::kFork,
           .shares_space = shares,
           .process = process,
           .thread = task,
           .child = id,
           .time = time,
           .position = number});
    const auto waiting = waiting_.find(id);
    if (waiting == waiting_.end()) return;
    const std::vector<Waiting> lines = std::move(waiting->second);
    waiting_.erase(waiting);
    for (const Waiting& line : lines) content(id, line.time, line.text, line.number);
}

void StraceReader::exit_task(std::uint32_t task, std::uint64_t time, std::uint64_t number) {
    Task& state = tasks_.at(task);
    if (!state.alive) return;
    state.alive = false;
    state.unfinished.clear();
    sink_({.kind = MemoryEventKind::kExit,
           .process = state.process,
           .thread = task,
           .time = time,
           .position = number});
}

void StraceReader::finish() {
    for (auto& [id, task] : tasks_)
        if (!task.unfinished.empty() && task.alive) {
            problems_.add("a call that never returned", 0);
            task.unfinished.clear();
        }
    // Their fork is not in the log: they stand for themselves.
    const auto orphans = std::move(waiting_);
    waiting_.clear();
    for (const auto& [id, lines] : orphans) {
        begin_task(id, id);
        for (const Waiting& line : lines) content(id, line.time, line.text, line.number);
    }
}

Result<StraceLog> read_strace(Lines& lines) {
    StraceLog log;
    StraceReader reader([&](const MemoryEvent& event) { log.events.push_back(event); });
    for (;;) {
        const auto line = lines.next();
        if (!line) {
            if (lines.number() == 0) return std::unexpected(line.error());
            log.damage = line.error().what;
            break;
        }
        if (!*line) break;
        reader.line(**line, lines.number());
    }
    reader.finish();
    log.problems = reader.problems();
    log.other_calls = reader.other_calls();
    log.failed_calls = reader.failed_calls();
    if (log.events.empty() && log.other_calls == 0)
        return fail(lines.input().name(), "there is no call in it that strace would log",
                    "make it with: strace -f -o LOG -e trace=%memory,%process COMMAND");
    return log;
}

Result<StraceLog> read_strace(const std::string& file) {
    auto input = Input::open(file);
    if (!input) return std::unexpected(input.error());
    Lines lines(std::move(*input));
    return read_strace(lines);
}

}  // namespace tlbscope::import
