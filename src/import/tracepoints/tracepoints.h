// The kernel's trace events as text: what ftrace, trace-cmd and perf script print after a line's prefix is
// the same up to details. This is the part they share; src/import/ftrace and src/import/perf_script read the
// prefixes.
//
// Understood: system calls (syscalls:sys_enter_*, sys_exit_*, ftrace's sys_munmap(...) and sys_munmap ->
// 0x0), sched and task events, page faults, powerpc:tlbie, tlb:tlb_flush, and probes on the kernel's
// memory-management functions (kprobe events), told by the probed function whatever their own name.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/memory_event.h"
#include "core/tlb_operation.h"
#include "import_text/problems.h"

namespace tlbscope::import {

struct TraceLine {
    std::string_view event;    // "munmap", without its group
    std::string_view payload;  // what follows the event's colon
    std::uint32_t thread = 0;
    std::uint32_t process = 0;  // 0: the line does not say
    std::uint32_t cpu = 0;
    std::uint64_t time = 0;  // nanoseconds
    std::uint64_t number = 0;
};

// What a log brings; either function may be left empty.
struct LogSink {
    std::function<void(const MemoryEvent&)> event;
    std::function<void(const TlbOperation&)> operation;
};

class Tracepoints {
  public:
    explicit Tracepoints(LogSink sink) : sink_(std::move(sink)) {}

    void line(const TraceLine& line);
    // At the end: calls that never returned are counted.
    void finish();

    // Trace events that say nothing about translations: no problem.
    [[nodiscard]] std::uint64_t other_events() const { return other_events_; }
    [[nodiscard]] std::uint64_t failed_calls() const { return failed_calls_; }
    [[nodiscard]] Problems& problems() { return problems_; }
    [[nodiscard]] const Problems& problems() const { return problems_; }

  private:
    // Arguments of a system call between its entry and its return.
    struct Pending {
        std::string name;
        std::string arguments;
        std::uint64_t number = 0;
    };

    [[nodiscard]] std::uint32_t process_of(const TraceLine& line) const;
    [[nodiscard]] MemoryEvent event_of(const TraceLine& line, MemoryEventKind kind) const;
    void emit(const MemoryEvent& event);
    void system_call(const TraceLine& line, const Pending& call, std::uint64_t result);
    void enter(const TraceLine& line, std::string_view name, std::string_view arguments);
    void leave(const TraceLine& line, std::string_view name, std::string_view result);
    bool sched(const TraceLine& line);
    bool fault(const TraceLine& line);
    bool tlb(const TraceLine& line);
    bool probe(const TraceLine& line);

    LogSink sink_;
    Problems problems_;
    std::unordered_map<std::uint32_t, std::uint32_t> process_of_thread_;  // threads whose process is another
    std::unordered_map<std::uint32_t, Pending> pending_;                  // by thread
    std::unordered_map<std::uint32_t, bool> forked_;  // children told by task_newtask, until they end
    std::uint64_t other_events_ = 0;
    std::uint64_t failed_calls_ = 0;
};

// The value of `name` in "a=1 b: 0x2, c=..."; hex unless it has no 0x and `decimal`.
[[nodiscard]] std::optional<std::uint64_t> trace_field(std::string_view payload, std::string_view name,
                                                       bool decimal = false);
// "637.071454" -> nanoseconds; nothing when it is no time.
[[nodiscard]] std::optional<std::uint64_t> trace_time(std::string_view text);

}  // namespace tlbscope::import
