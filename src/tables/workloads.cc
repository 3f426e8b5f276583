#include "tables/workloads.h"

#include <array>
#include <optional>
#include <random>

namespace tlbscope::tables {

namespace {

constexpr std::array kWorkloads{
    Workload{"fork+exit", "lat_proc fork: the child exits at once"},
    Workload{"fork+exec", "lat_proc exec: the child runs another small program, which exits"},
    Workload{"sh-c", "lat_proc shell: the child runs /bin/sh -c, which runs the program"},
    Workload{"mmap", "one process maps 64 MiB, touches all of it and unmaps it"},
    Workload{"small-maps",
             "one process maps 1,000 ranges of 1 to 8 pages here and there, touches and unmaps them"},
};

constexpr std::uint8_t kRx = kProtectRead | kProtectExecute;
constexpr std::uint8_t kRw = kProtectRead | kProtectWrite;

// Writes events for one process after another.
class Script {
  public:
    explicit Script(std::vector<MemoryEvent>& events) : events_(&events) {}
    void add(MemoryEvent event) {
        event.position = events_->size() + 1;
        events_->push_back(event);
    }
    void map(std::uint32_t process, std::uint64_t start, std::uint64_t bytes, std::uint8_t protection,
             bool file) {
        add({.kind = MemoryEventKind::kMap,
             .protection = protection,
             .file = file,
             .process = process,
             .start = VirtAddr(start),
             .bytes = bytes});
    }
    void touch(std::uint32_t process, std::uint64_t start, std::uint64_t bytes, bool write) {
        for (std::uint64_t at = start; at < start + bytes; at += 4096)
            add({.kind = MemoryEventKind::kFault, .write = write, .process = process, .start = VirtAddr(at)});
    }
    void unmap(std::uint32_t process, std::uint64_t start, std::uint64_t bytes) {
        add({.kind = MemoryEventKind::kUnmap, .process = process, .start = VirtAddr(start), .bytes = bytes});
    }
    void fork(std::uint32_t process, std::uint32_t child) {
        add({.kind = MemoryEventKind::kFork, .process = process, .child = child});
    }
    void exec(std::uint32_t process) { add({.kind = MemoryEventKind::kExec, .process = process}); }
    void exit(std::uint32_t process) { add({.kind = MemoryEventKind::kExit, .process = process}); }

    // A program as the loader leaves it: text, data and heap, a C library, a stack; `pages` of its text are
    // touched.
    void program(std::uint32_t process, std::uint64_t pages) {
        constexpr std::uint64_t kText = 0x00010000;
        constexpr std::uint64_t kLibrary = 0x70000000;
        constexpr std::uint64_t kStack = 0x7ffe0000;
        map(process, kText, 0x20000, kRx, true);
        touch(process, kText, pages * 4096, false);
        map(process, kText + 0x30000, 0x4000, kRw, true);
        touch(process, kText + 0x30000, 0x4000, true);
        map(process, kText + 0x34000, 0x8000, kRw, false);  // heap
        touch(process, kText + 0x34000, 0x4000, true);
        map(process, kLibrary, 0x100000, kRx, true);
        touch(process, kLibrary, pages * 2 * 4096, false);
        map(process, kLibrary + 0x110000, 0x8000, kRw, true);
        touch(process, kLibrary + 0x110000, 0x6000, true);
        map(process, kStack, 0x20000, kRw, false);
        touch(process, kStack + 0x1c000, 0x4000, true);
    }

  private:
    std::vector<MemoryEvent>* events_;
};

constexpr std::uint32_t kParent = 100;

}  // namespace

std::span<const Workload> workloads() { return kWorkloads; }

std::optional<Events> make_workload(std::string_view name, std::uint64_t rounds) {
    Events made;
    made.name = std::string(name);
    Script script(made.events);
    const auto times = [&](std::uint64_t usual) { return made.rounds = rounds == 0 ? usual : rounds; };
    if (name == "fork+exit" || name == "fork+exec" || name == "sh-c") {
        script.program(kParent, 8);
        const std::uint64_t count = times(1000);
        for (std::uint64_t n = 0; n < count; ++n) {
            const auto child = static_cast<std::uint32_t>(kParent + 1 + 2 * n);
            script.fork(kParent, child);
            if (name == "fork+exec") {
                script.exec(child);
                script.program(child, 4);
            } else if (name == "sh-c") {
                script.exec(child);
                script.program(child, 24);
                script.fork(child, child + 1);
                script.exec(child + 1);
                script.program(child + 1, 4);
                script.exit(child + 1);
            }
            script.exit(child);
        }
    } else if (name == "mmap") {
        script.program(kParent, 8);
        const std::uint64_t count = times(10);
        constexpr std::uint64_t kBytes = std::uint64_t{64} << 20;
        for (std::uint64_t n = 0; n < count; ++n) {
            script.map(kParent, 0x20000000, kBytes, kRw, false);
            script.touch(kParent, 0x20000000, kBytes, true);
            script.unmap(kParent, 0x20000000, kBytes);
        }
    } else if (name == "small-maps") {
        script.program(kParent, 8);
        const std::uint64_t count = times(4);
        std::mt19937 random(2);  // always the same places
        for (std::uint64_t n = 0; n < count; ++n) {
            std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
            for (std::uint64_t slot = 0; slot < 1000; ++slot) {
                // A slot of 1 MiB each, below the library.
                const std::uint64_t bytes = (1 + random() % 8) * 8192;
                ranges.emplace_back(0x10000000 + slot * 0x100000 + random() % 64 * 8192, bytes);
                script.map(kParent, ranges.back().first, bytes, kRw, false);
                script.touch(kParent, ranges.back().first, bytes, true);
            }
            for (std::size_t left = ranges.size(); left != 0; --left) {
                std::swap(ranges[random() % left], ranges[left - 1]);
                script.unmap(kParent, ranges[left - 1].first, ranges[left - 1].second);
            }
        }
    } else {
        return {};
    }
    // The parent goes on living: what is held after is what these left.
    return made;
}

}  // namespace tlbscope::tables
