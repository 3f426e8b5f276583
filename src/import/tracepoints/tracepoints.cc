#include "import_tracepoints/tracepoints.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/tlbie.h"

namespace tlbscope::import {

namespace {

// Linux, include/uapi/linux/sched.h and mman.h.
constexpr std::uint64_t kCloneVm = 0x100;
constexpr std::uint64_t kCloneThread = 0x10000;
constexpr std::uint64_t kMapAnonymous = 0x20;
constexpr std::uint64_t kMadviseDontNeed = 4;
constexpr std::uint64_t kMadviseFree = 8;
// The tracepoint's pages for "everything".
constexpr std::int64_t kEverything = -1;

bool word_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t' || text.back() == '\r'))
        text.remove_suffix(1);
    return text;
}

std::optional<std::uint64_t> number(std::string_view text, bool decimal) {
    int base = decimal ? 10 : 16;
    if (text.starts_with("0x") || text.starts_with("0X")) {
        text.remove_prefix(2);
        base = 16;
    }
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
    return value;
}

// The text after "name=" or "name:", up to a space, comma or bracket.
std::optional<std::string_view> field_text(std::string_view payload, std::string_view name) {
    for (std::size_t at = payload.find(name); at != std::string_view::npos; at = payload.find(name, at + 1)) {
        const std::size_t end = at + name.size();
        if ((at > 0 && word_char(payload[at - 1])) || end >= payload.size()) continue;
        if (payload[end] != '=' && payload[end] != ':') continue;
        std::string_view rest = payload.substr(end + 1);
        while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
        std::size_t size = 0;
        while (size < rest.size() && rest[size] != ' ' && rest[size] != ',' && rest[size] != ')' &&
               rest[size] != '\t')
            ++size;
        return rest.substr(0, size);
    }
    return std::nullopt;
}

std::uint8_t protection_of(std::uint64_t bits) { return static_cast<std::uint8_t>(bits & 7); }

// Whether a system call's result says that it failed: a small negative number.
bool failed(std::uint64_t result) { return result > ~std::uint64_t{4095}; }

constexpr std::array kMemoryCalls = {"mmap",          "mmap2",  "munmap", "mprotect",
                                     "pkey_mprotect", "mremap", "brk",    "madvise"};

}  // namespace

std::optional<std::uint64_t> trace_field(std::string_view payload, std::string_view name, bool decimal) {
    const auto text = field_text(payload, name);
    return text ? number(*text, decimal) : std::nullopt;
}

std::optional<std::uint64_t> trace_time(std::string_view text) {
    const std::size_t dot = text.find('.');
    if (dot == std::string_view::npos || dot == 0 || dot + 1 >= text.size()) return std::nullopt;
    const auto seconds = number(text.substr(0, dot), true);
    std::string_view fraction = text.substr(dot + 1);
    if (!seconds || fraction.size() > 9 || *seconds > 10'000'000'000) return std::nullopt;
    auto value = number(fraction, true);
    if (!value || fraction.starts_with("0x")) return std::nullopt;
    for (std::size_t digits = fraction.size(); digits < 9; ++digits) *value *= 10;
    return *seconds * 1'000'000'000 + *value;
}

std::uint32_t Tracepoints::process_of(const TraceLine& line) const {
    if (line.process != 0) return line.process;
    const auto found = process_of_thread_.find(line.thread);
    return found == process_of_thread_.end() ? line.thread : found->second;
}

MemoryEvent Tracepoints::event_of(const TraceLine& line, MemoryEventKind kind) const {
    MemoryEvent event;
    event.kind = kind;
    event.cpu = line.cpu;
    event.thread = line.thread;
    event.process = process_of(line);
    event.time = line.time;
    event.position = line.number;
    return event;
}

void Tracepoints::emit(const MemoryEvent& event) {
    if (sink_.event) sink_.event(event);
}

void Tracepoints::enter(const TraceLine& line, std::string_view name, std::string_view arguments) {
    if (std::find(kMemoryCalls.begin(), kMemoryCalls.end(), name) == kMemoryCalls.end()) {
        ++other_events_;
        return;
    }
    const auto [at, fresh] = pending_.insert_or_assign(
        line.thread,
        Pending{.name = std::string(name), .arguments = std::string(arguments), .number = line.number});
    if (!fresh) problems_.add("a system call that did not return before the next", line.number);
}

void Tracepoints::leave(const TraceLine& line, std::string_view name, std::string_view result) {
    const auto found = pending_.find(line.thread);
    if (found == pending_.end() || found->second.name != name) {
        if (std::find(kMemoryCalls.begin(), kMemoryCalls.end(), name) == kMemoryCalls.end())
            ++other_events_;
        else
            problems_.add("the return of a system call whose entry is not in the log", line.number);
        return;
    }
    const Pending call = std::move(found->second);
    pending_.erase(found);
    std::string_view digits = trimmed(result);
    std::optional<std::uint64_t> value;
    if (digits.starts_with('-')) {
        value = number(digits.substr(1), true);
        if (value) value = ~*value + 1;
    } else {
        value = number(digits, !digits.starts_with("0x"));
    }
    if (!value) {
        problems_.add("a system call with a result that is no number", line.number);
        return;
    }
    if (failed(*value)) {
        ++failed_calls_;
        return;
    }
    system_call(line, call, *value);
}

void Tracepoints::system_call(const TraceLine& line, const Pending& call, std::uint64_t result) {
    const std::string_view arguments = call.arguments;
    const auto field = [&](std::initializer_list<std::string_view> names) -> std::uint64_t {
        for (const std::string_view name : names)
            if (const auto value = trace_field(arguments, name)) return *value;
        return 0;
    };
    MemoryEvent event = event_of(line, MemoryEventKind::kMap);
    if (call.name == "mmap" || call.name == "mmap2") {
        event.start = VirtAddr(result);
        event.bytes = field({"len"});
        event.protection = protection_of(field({"prot"}));
        event.file = (field({"flags"}) & kMapAnonymous) == 0;
    } else if (call.name == "munmap") {
        event.kind = MemoryEventKind::kUnmap;
        event.start = VirtAddr(field({"addr", "start"}));
        event.bytes = field({"len"});
    } else if (call.name == "mprotect" || call.name == "pkey_mprotect") {
        event.kind = MemoryEventKind::kProtect;
        event.start = VirtAddr(field({"start", "addr"}));
        event.bytes = field({"len"});
        event.protection = protection_of(field({"prot"}));
    } else if (call.name == "mremap") {
        event.kind = MemoryEventKind::kRemap;
        event.old_start = VirtAddr(field({"addr", "old_addr"}));
        event.old_bytes = field({"old_len"});
        event.bytes = field({"new_len"});
        event.start = VirtAddr(result);
    } else if (call.name == "brk") {
        event.kind = MemoryEventKind::kBreak;
        event.start = VirtAddr(result);
    } else {
        const std::uint64_t advice = field({"behavior", "advice"});
        if (advice != kMadviseDontNeed && advice != kMadviseFree) return;
        event.kind = MemoryEventKind::kDiscard;
        event.start = VirtAddr(field({"start", "addr"}));
        event.bytes = field({"len_in", "len", "length"});
    }
    emit(event);
}

bool Tracepoints::sched(const TraceLine& line) {
    const std::string_view payload = line.payload;
    if (line.event == "sched_switch") {
        // "prev_comm=a prev_pid=1 ... ==> next_comm=b next_pid=2 next_prio=120", or trace-cmd's
        // "a:1 [120] S ==> b:2 [120]".
        std::optional<std::uint64_t> next = trace_field(payload, "next_pid", true);
        if (!next) {
            const std::size_t arrow = payload.find("==> ");
            if (arrow != std::string_view::npos) {
                const std::string_view after = payload.substr(arrow + 4);
                const std::size_t bracket = after.rfind(" [");
                const std::string_view who = after.substr(0, bracket);
                const std::size_t colon = who.rfind(':');
                if (colon != std::string_view::npos) next = number(who.substr(colon + 1), true);
            }
        }
        if (!next) {
            problems_.add("a switch without the task it goes to", line.number);
            return true;
        }
        MemoryEvent event = event_of(line, MemoryEventKind::kSwitch);
        event.thread = static_cast<std::uint32_t>(*next);
        const auto known = process_of_thread_.find(event.thread);
        event.process = known == process_of_thread_.end() ? event.thread : known->second;
        emit(event);
        return true;
    }
    if (line.event == "task_newtask" || line.event == "sched_process_fork") {
        const bool newtask = line.event == "task_newtask";
        const auto child = trace_field(payload, newtask ? "pid" : "child_pid", true);
        if (!child) {
            problems_.add("a fork without the child's number", line.number);
            return true;
        }
        const auto thread = static_cast<std::uint32_t>(*child);
        if (!newtask && forked_.contains(thread)) return true;  // told already, with its flags
        forked_[thread] = true;
        MemoryEvent event = event_of(line, MemoryEventKind::kFork);
        event.child = thread;
        const std::uint64_t flags = newtask ? trace_field(payload, "clone_flags").value_or(0) : 0;
        event.shares_space = (flags & kCloneVm) != 0;
        if ((flags & kCloneThread) != 0) process_of_thread_[thread] = event.process;
        emit(event);
        return true;
    }
    if (line.event == "sched_process_exec") {
        emit(event_of(line, MemoryEventKind::kExec));
        return true;
    }
    if (line.event == "sched_process_exit") {
        emit(event_of(line, MemoryEventKind::kExit));
        process_of_thread_.erase(line.thread);
        forked_.erase(line.thread);
        pending_.erase(line.thread);
        return true;
    }
    return false;
}

bool Tracepoints::fault(const TraceLine& line) {
    std::optional<std::uint64_t> address;
    MemoryEvent event = event_of(line, MemoryEventKind::kFault);
    if (line.event == "page_fault_user" || line.event == "page_fault_kernel") {
        // "address=0x7f.. ip=0x.. error_code=0x6"; RISC-V "user page fault, address=0x.. epc=0x.. cause=0xd".
        address = trace_field(line.payload, "address");
        if (const auto code = trace_field(line.payload, "error_code"))
            event.write = (*code & 2) != 0;  // x86: bit 1
        else if (const auto cause = trace_field(line.payload, "cause"))
            event.write = *cause == 15;  // RISC-V: store page fault
    } else if (line.event == "page-faults" || line.event == "minor-faults" || line.event == "major-faults") {
        // perf's software event: the address comes first, if it was asked for (-d, -F addr).
        const std::string_view payload = trimmed(line.payload);
        address = number(payload.substr(0, payload.find(' ')), false);
    } else {
        return false;
    }
    if (!address) {
        problems_.add("a page fault whose address is not a number", line.number);
        return true;
    }
    if (*address >> 63 != 0) {
        ++other_events_;  // the kernel's own
        return true;
    }
    event.start = VirtAddr(*address);
    emit(event);
    return true;
}

bool Tracepoints::tlb(const TraceLine& line) {
    if (line.event == "tlbie") {
        const auto operands = parse_tlbie(line.payload);
        if (!operands) {
            problems_.add("a tlbie without its operands", line.number);
            return true;
        }
        TlbOperation operation = operation_of(*operands);
        operation.cpu = line.cpu;
        operation.time = line.time;
        operation.position = line.number;
        if (sink_.operation) sink_.operation(operation);
        return true;
    }
    if (line.event != "tlb_flush") return false;
    // "pages:1 reason:local mm shootdown (3)": the words differ between kernels, the number does not.
    const auto pages_text = field_text(line.payload, "pages");
    const std::size_t bracket = line.payload.rfind('(');
    std::int64_t pages = 0;
    std::optional<std::uint64_t> reason;
    if (bracket != std::string_view::npos) {
        const std::string_view rest = line.payload.substr(bracket + 1);
        reason = number(rest.substr(0, rest.find(')')), true);
    }
    bool good = pages_text.has_value() && reason.has_value();
    if (good) {
        const auto [end, error] =
            std::from_chars(pages_text->data(), pages_text->data() + pages_text->size(), pages);
        good = error == std::errc() && end == pages_text->data() + pages_text->size();
    }
    if (!good) {
        problems_.add("a tlb_flush without pages and reason", line.number);
        return true;
    }
    TlbOperation operation{.source = TlbOperation::Source::kTlbFlush};
    operation.scope = pages == kEverything || *reason == 0 ? TlbScope::kPid
                      : pages == 1                         ? TlbScope::kPage
                                                           : TlbScope::kRange;
    operation.local = true;
    operation.bytes = pages > 0 ? static_cast<std::uint64_t>(pages) * 4096 : 0;
    operation.reason = static_cast<std::uint32_t>(*reason);
    operation.cpu = line.cpu;
    operation.time = line.time;
    operation.position = line.number;
    if (sink_.operation) sink_.operation(operation);
    return true;
}

// "(unmap_region+0x0/0x120) start=0x7f.. end=0x7f..": arguments have the names that docs/flush.md gives them.
bool Tracepoints::probe(const TraceLine& line) {
    std::string_view payload = trimmed(line.payload);
    if (!payload.starts_with('(')) return false;
    const std::size_t close = payload.find(')');
    if (close == std::string_view::npos) return false;
    std::string_view function = payload.substr(1, close - 1);
    function = function.substr(0, function.find_first_of("+ <"));
    const std::string_view fields = payload.substr(close + 1);
    const auto is = [&](std::initializer_list<std::string_view> names) {
        return std::find(names.begin(), names.end(), function) != names.end();
    };
    MemoryEvent event;
    if (is({"unmap_region", "__do_munmap", "do_mas_munmap", "do_vmi_munmap", "__vm_munmap", "do_munmap"}))
        event = event_of(line, MemoryEventKind::kUnmap);
    else if (is({"zap_page_range", "zap_page_range_single", "madvise_dontneed_single_vma"}))
        event = event_of(line, MemoryEventKind::kDiscard);
    else if (is({"mprotect_fixup", "change_protection", "do_mprotect_pkey"}))
        event = event_of(line, MemoryEventKind::kProtect);
    else if (is({"mmap_region", "do_brk_flags"}))
        event = event_of(line, MemoryEventKind::kMap);
    else if (is({"handle_mm_fault", "__handle_mm_fault"}))
        event = event_of(line, MemoryEventKind::kFault);
    else if (is({"move_vma", "move_page_tables"}))
        event = event_of(line, MemoryEventKind::kRemap);
    else
        return false;
    const auto field = [&](std::initializer_list<std::string_view> names) -> std::optional<std::uint64_t> {
        for (const std::string_view name : names)
            if (const auto value = trace_field(fields, name)) return value;
        return std::nullopt;
    };
    const auto start = field({"start", "address", "addr", "new_addr"});
    if (!start) {
        problems_.add("a probe without the arguments that docs/flush.md asks for", line.number);
        return true;
    }
    event.start = VirtAddr(*start);
    if (const auto end = field({"end"}); end && *end >= *start)
        event.bytes = *end - *start;
    else
        event.bytes = field({"len", "size", "bytes", "new_len"}).value_or(0);
    event.protection = protection_of(field({"prot", "newflags", "vm_flags"}).value_or(3));
    event.file = field({"file"}).value_or(0) != 0;
    event.write = (field({"flags"}).value_or(0) & 1) != 0;  // FAULT_FLAG_WRITE
    if (event.kind == MemoryEventKind::kRemap) {
        event.old_start = VirtAddr(field({"old_addr"}).value_or(0));
        event.old_bytes = field({"old_len", "len"}).value_or(0);
        if (event.bytes == 0) event.bytes = event.old_bytes;
    }
    if (event.kind == MemoryEventKind::kFault && event.start.value() >> 63 != 0) {
        ++other_events_;
        return true;
    }
    emit(event);
    return true;
}

void Tracepoints::line(const TraceLine& line) {
    // ftrace prints system calls as "sys_munmap(addr: 7f.., len: 1000)" and "sys_munmap -> 0x0".
    if (line.event.starts_with("sys_enter_")) return enter(line, line.event.substr(10), line.payload);
    if (line.event.starts_with("sys_exit_")) return leave(line, line.event.substr(9), line.payload);
    if (line.event.starts_with("sys_")) {
        const std::string_view name = line.event.substr(4);
        const std::size_t bracket = name.find('(');
        if (bracket != std::string_view::npos)
            return enter(line, name.substr(0, bracket), name.substr(bracket));
        const std::size_t arrow = name.find(" -> ");
        if (arrow != std::string_view::npos)
            return leave(line, name.substr(0, arrow), name.substr(arrow + 4));
        problems_.add("system calls by number: record the events of the group syscalls instead", line.number);
        return;
    }
    if (tlb(line) || sched(line) || fault(line) || probe(line)) return;
    ++other_events_;
}

void Tracepoints::finish() {
    for (const auto& [thread, call] : pending_)
        problems_.add("a system call that never returned", call.number);
    pending_.clear();
}

}  // namespace tlbscope::import
