// Aligning two sequences that name the same things differently, one of them longer at both ends.
//
// Written as distances to the previous occurrence of the same name, both sequences are the same numbers
// wherever they overlap, whatever the names are: "a b a a" and "7 9 7 7" are both "- - 2 1". So the right
// place is where most of these numbers agree. Where a task's memory is used again for a new task a few
// numbers differ, no more.
//
// Short sequences are ambiguous ("a b a b"); there the marks decide: the command runs when it executes
// kBegin, and the agent, which is process 1, when it executes kEnd. Times cannot decide: the recorder has no
// clock in common with the guest's.
#include "capture/guest/tasks.h"

#include <algorithm>
#include <unordered_map>

#include <fmt/format.h>

namespace tlbscope::capture {

namespace {

constexpr std::size_t kWindow = 4096;     // names compared at each place
constexpr std::size_t kFirstLook = 64;    // after so many, a place with less than half right is given up
constexpr double kLeastAgreement = 0.75;  // of the names that occurred before
constexpr std::uint32_t kInit = 1;
constexpr std::uint32_t kKernelThread = 0x00200000;  // PF_KTHREAD, include/linux/sched.h
constexpr std::uint32_t kThreadParent = 2;           // kthreadd

template <class T>
std::vector<std::uint32_t> distances(const std::vector<T>& names) {
    std::unordered_map<T, std::size_t> last;
    std::vector<std::uint32_t> list;
    list.reserve(names.size());
    for (std::size_t i = 0; i < names.size(); ++i) {
        const auto [at, is_new] = last.try_emplace(names[i], i);
        list.push_back(is_new ? 0 : static_cast<std::uint32_t>(i - at->second));
        at->second = i;
    }
    return list;
}

struct Fit {
    int marks = -1;
    std::size_t agree = 0;
    std::size_t compared = 0;
    // More marks, then a larger share of agreement over more names.
    [[nodiscard]] bool better_than(const Fit& other) const {
        if (marks != other.marks) return marks > other.marks;
        return agree > other.agree;
    }
};

}  // namespace

std::optional<std::ptrdiff_t> align(const std::vector<std::uint64_t>& seen,
                                    const std::vector<std::uint32_t>& told, std::optional<std::size_t> begin,
                                    std::uint32_t command, std::optional<std::size_t> end,
                                    std::uint32_t init) {
    if (seen.empty() || told.empty()) return std::nullopt;
    const auto n = static_cast<std::ptrdiff_t>(seen.size());
    const auto m = static_cast<std::ptrdiff_t>(told.size());
    const std::vector<std::uint32_t> seen_distance = distances(seen);
    const std::vector<std::uint32_t> told_distance = distances(told);

    // Whether the task that `told` puts at the mark, after `count` switches seen, is the one that must be
    // there.
    const auto mark_fits = [&](std::optional<std::size_t> count, std::uint32_t tid, std::ptrdiff_t shift) {
        if (!count) return 0;
        const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(*count) - 1 - shift;
        return at >= 0 && at < m && told[static_cast<std::size_t>(at)] == tid ? 1 : 0;
    };

    std::optional<std::ptrdiff_t> best;
    Fit best_fit;
    for (std::ptrdiff_t shift = 1 - m; shift < n; ++shift) {
        Fit fit;
        fit.marks = mark_fits(begin, command, shift) + mark_fits(end, init, shift);
        const std::ptrdiff_t first = std::max<std::ptrdiff_t>(0, -shift);
        const std::ptrdiff_t last = std::min({m, n - shift, first + static_cast<std::ptrdiff_t>(kWindow)});
        for (std::ptrdiff_t j = first; j < last; ++j) {
            // A distance that reaches out of the overlap says nothing.
            const auto reach = static_cast<std::uint32_t>(j - first);
            std::uint32_t a = told_distance[static_cast<std::size_t>(j)];
            std::uint32_t b = seen_distance[static_cast<std::size_t>(j + shift)];
            if (a > reach) a = 0;
            if (b > reach) b = 0;
            fit.compared += a != 0 || b != 0;
            fit.agree += a != 0 && a == b;
            if (fit.compared == kFirstLook && fit.agree < kFirstLook / 2) break;
        }
        if (static_cast<double>(fit.agree) < kLeastAgreement * static_cast<double>(fit.compared)) continue;
        if (fit.better_than(best_fit)) {
            best_fit = fit;
            best = shift;
        }
    }
    // Neither a mark nor a single name seen twice: any place would do as well.
    if (best_fit.marks <= 0 && best_fit.agree == 0) return std::nullopt;
    return best;
}

std::map<std::uint32_t, TaskIdentity> tasks_by_tid(const GuestFacts& facts,
                                                   const std::vector<PerfRecord>& records) {
    std::map<std::uint32_t, TaskIdentity> tasks;
    tasks[0] = {.pid = 0, .tid = 0, .name = "swapper", .kernel_thread = true};
    for (std::size_t at = 0; at < facts.tasks.size();) {
        const std::size_t stop = std::min(facts.tasks.find('\n', at), facts.tasks.size());
        const std::string line = facts.tasks.substr(at, stop - at);
        at = stop + 1;
        unsigned tid = 0;
        unsigned pid = 0;
        unsigned flags = 0;
        int name = 0;
        if (std::sscanf(line.c_str(), "%u %u %x %n", &tid, &pid, &flags, &name) < 3 || name == 0) continue;
        tasks[tid] = {.pid = pid,
                      .tid = tid,
                      .name = line.substr(static_cast<std::size_t>(name)),
                      .kernel_thread = (flags & kKernelThread) != 0};
    }
    for (const PerfRecord& r : records) {
        if (r.type == PerfType::kFork) {
            const auto parent = tasks.find(r.parent_tid);
            tasks[r.tid] = {.pid = r.pid,
                            .tid = r.tid,
                            .name = parent != tasks.end() ? parent->second.name : std::string(),
                            .kernel_thread = r.parent_pid == kThreadParent};
        } else if (r.type == PerfType::kName) {
            TaskIdentity& task = tasks[r.tid];
            task.pid = r.pid;
            task.tid = r.tid;
            task.name = r.name;
        }
    }
    return tasks;
}

SpaceVotes match_switches(const std::vector<CpuSwitches>& cpus,
                          const std::map<std::uint32_t, std::vector<PerfRecord>>& records,
                          std::uint32_t command, std::vector<std::string>& notes) {
    SpaceVotes votes;
    for (const CpuSwitches& cpu : cpus) {
        if (cpu.switches.empty()) continue;
        std::vector<std::uint64_t> seen;
        for (const TaskSwitch& s : cpu.switches) seen.push_back(s.task);
        // The record of leaving a task is made right before the kernel loads the next one's stack pointer,
        // which is what the recorder sees: one for one.
        std::vector<std::uint32_t> told;
        if (const auto own = records.find(cpu.cpu); own != records.end())
            for (const PerfRecord& r : own->second)
                if (r.type == PerfType::kSwitch && r.away) told.push_back(r.tid);
        const auto shift = align(seen, told, cpu.begin, command, cpu.end, kInit);
        if (!shift) {
            // A CPU that only idles has little to tell from.
            if (!told.empty())
                notes.push_back(fmt::format("which tasks CPU {} switched to could not be told", cpu.cpu));
            continue;
        }
        for (std::size_t j = 0; j < told.size(); ++j) {
            const std::ptrdiff_t at = static_cast<std::ptrdiff_t>(j) + *shift;
            if (at >= 0 && at < static_cast<std::ptrdiff_t>(seen.size()))
                ++votes[cpu.switches[static_cast<std::size_t>(at)].space][told[j]];
        }
    }
    return votes;
}

}  // namespace tlbscope::capture
