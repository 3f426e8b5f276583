// Logs of `strace -f` as memory events: what a program did to its address spaces, without any of its
// addresses' contents.
//
//     strace -f -e trace=%memory,%process -o log ./program
//
// Every way in which strace marks the process is read: [pid N] on a terminal, N in a file, none while there
// is one process; so are times (-t, -tt, -ttt, -r), durations (-T), decoded descriptors (-y), calls that
// another process interrupted
// (<unfinished ...>, <... resumed>), and a child's calls that are logged before its fork returned. Lines that
// mean nothing here are counted by reason and never end the reading.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/memory_event.h"
#include "import_text/input.h"
#include "import_text/problems.h"

namespace tlbscope::import {

// Whether a text begins like such a log: some of its first lines are calls, or process ends, as strace writes
// them.
[[nodiscard]] bool looks_like_strace(std::string_view first_lines);

class StraceReader {
  public:
    // Events in the log's order, except that a child's wait for its fork. MemoryEvent::position is the line.
    // The first process of a log that never names it is process 1.
    using Sink = std::function<void(const MemoryEvent&)>;
    explicit StraceReader(Sink sink) : sink_(std::move(sink)) {}

    void line(std::string_view text, std::uint64_t number);
    // At the end of the log: what still waits is handed out, and unfinished calls are counted.
    void finish();

    [[nodiscard]] const Problems& problems() const { return problems_; }
    // Calls that change no address space: most of a log, and no problem.
    [[nodiscard]] std::uint64_t other_calls() const { return other_calls_; }
    [[nodiscard]] std::uint64_t failed_calls() const { return failed_calls_; }

  private:
    struct Task {
        std::uint32_t process = 0;  // thread group
        std::string unfinished;     // what stands before <unfinished ...>
        std::uint64_t heap = 0;     // start of the heap, once brk told it
        bool alive = true;
    };
    struct Call;

    std::uint32_t task_of_line(std::string_view& rest, std::uint64_t number);
    std::uint64_t time_of_line(std::string_view& rest);
    void content(std::uint32_t task, std::uint64_t time, std::string_view text, std::uint64_t number);
    void call(std::uint32_t task, std::uint64_t time, std::string_view text, std::uint64_t number);
    void memory_call(std::uint32_t task, const Call& call, std::uint64_t time, std::uint64_t number);
    void fork_call(std::uint32_t task, const Call& call, std::uint64_t time, std::uint64_t number);
    void exit_task(std::uint32_t task, std::uint64_t time, std::uint64_t number);
    void begin_task(std::uint32_t task, std::uint32_t process);
    [[nodiscard]] bool fork_pending() const;

    Sink sink_;
    Problems problems_;
    std::uint64_t other_calls_ = 0;
    std::uint64_t failed_calls_ = 0;
    std::string cut_off_;  // a line whose end comes later
    std::map<std::uint32_t, Task> tasks_;
    std::map<std::uint32_t, std::uint32_t> aliases_;  // the first process's number, once a line names it -> 1
    bool unnamed_ = false;                            // there were lines without a process
    std::uint64_t clock_ = 0;                         // -r: sum of the differences
    // Lines of tasks whose fork has not returned in the log yet.
    struct Waiting {
        std::uint64_t time = 0;
        std::uint64_t number = 0;
        std::string text;
    };
    std::map<std::uint32_t, std::vector<Waiting>> waiting_;
};

struct StraceLog {
    std::vector<MemoryEvent> events;
    Problems problems;
    std::uint64_t other_calls = 0;
    std::uint64_t failed_calls = 0;
    std::string damage;  // why the log ends early, in words; empty when it does not
};
// Reads a whole log; an error when it cannot be opened or holds no call at all.
[[nodiscard]] Result<StraceLog> read_strace(const std::string& file);
[[nodiscard]] Result<StraceLog> read_strace(Lines& lines);

}  // namespace tlbscope::import
