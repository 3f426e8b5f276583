#include "capture/guest/places.h"

#include <sys/mman.h>

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "capture/guest/elf_file.h"
#include "capture/guest/perf_records.h"

namespace tlbscope::capture {

namespace {

struct Range {
    std::uint64_t end = 0;
    std::uint64_t file_offset = 0;
    std::uint32_t protection = 0;
    std::uint32_t flags = 0;
    std::string name;
};

// One process's mappings by start address, without overlap.
class Image {
  public:
    void map(std::uint64_t start, Range range) {
        cut(start);
        cut(range.end);
        ranges_.erase(ranges_.lower_bound(start), ranges_.lower_bound(range.end));
        ranges_[start] = std::move(range);
    }
    void clear() { ranges_.clear(); }
    [[nodiscard]] const std::map<std::uint64_t, Range>& ranges() const { return ranges_; }

  private:
    // No range crosses `at` afterwards.
    void cut(std::uint64_t at) {
        auto after = ranges_.upper_bound(at);
        if (after == ranges_.begin()) return;
        auto& [start, range] = *std::prev(after);
        if (start == at || range.end <= at) return;
        Range upper = range;
        upper.file_offset += at - start;
        range.end = at;
        ranges_.emplace(at, std::move(upper));
    }

    std::map<std::uint64_t, Range> ranges_;
};

std::map<std::uint32_t, Image> images_by_pid(const std::vector<PerfRecord>& records) {
    std::map<std::uint32_t, Image> images;
    for (const PerfRecord& r : records) {
        if (r.type == PerfType::kFork && r.pid != r.parent_pid) {
            images[r.pid] = images[r.parent_pid];
        } else if (r.type == PerfType::kName && r.exec) {
            images[r.pid].clear();
        } else if (r.type == PerfType::kMap && r.length != 0 && r.start + r.length > r.start) {
            images[r.pid].map(r.start, {.end = r.start + r.length,
                                        .file_offset = r.name.starts_with('/') ? r.file_offset : 0,
                                        .protection = r.protection,
                                        .flags = r.flags,
                                        .name = r.name == "//anon" ? "[anon]" : r.name});
        }
    }
    return images;
}

std::string protection_text(const Range& range) {
    return {(range.protection & PROT_READ) != 0 ? 'r' : '-', (range.protection & PROT_WRITE) != 0 ? 'w' : '-',
            (range.protection & PROT_EXEC) != 0 ? 'x' : '-', (range.flags & MAP_SHARED) != 0 ? 's' : 'p'};
}

class BuildIds {
  public:
    explicit BuildIds(const std::map<std::string, std::filesystem::path>& host_files)
        : host_files_(host_files) {}
    const std::string& of(const std::string& guest_path) {
        const auto [known, is_new] = known_.try_emplace(guest_path);
        if (is_new)
            if (const auto file = host_files_.find(guest_path); file != host_files_.end())
                if (const auto elf = read_elf(file->second)) known->second = elf->build_id;
        return known->second;
    }

  private:
    const std::map<std::string, std::filesystem::path>& host_files_;
    std::map<std::string, std::string> known_;
};

// The records of all CPUs in order of time, and by CPU.
struct AllRecords {
    std::vector<PerfRecord> in_order;
    std::map<std::uint32_t, std::vector<PerfRecord>> by_cpu;
};

AllRecords parse_all(const GuestFacts& facts, std::vector<std::string>& notes) {
    AllRecords all;
    for (const auto& [cpu, bytes] : facts.perf) {
        auto records = parse_perf(bytes, facts.big_endian);
        if (!records) {
            notes.push_back(records.error().message());
            continue;
        }
        all.in_order.insert(all.in_order.end(), records->begin(), records->end());
        all.by_cpu[cpu] = std::move(*records);
    }
    std::stable_sort(all.in_order.begin(), all.in_order.end(),
                     [](const PerfRecord& a, const PerfRecord& b) { return a.time < b.time; });
    return all;
}

// The tasks a space's switches were about, the most frequent first.
std::vector<TaskIdentity> owners(const SpaceVotes& votes, SpaceId id,
                                 const std::map<std::uint32_t, TaskIdentity>& tasks) {
    const auto tally = votes.find(id);
    if (tally == votes.end()) return {};
    std::vector<std::pair<std::uint64_t, std::uint32_t>> order;
    for (const auto& [tid, count] : tally->second) order.emplace_back(count, tid);
    std::sort(order.begin(), order.end(), std::greater<>());
    std::vector<TaskIdentity> list;
    for (const auto& [count, tid] : order)
        if (const auto task = tasks.find(tid); task != tasks.end()) list.push_back(task->second);
    return list;
}

}  // namespace

GuestPlaces guest_places(const GuestFacts& facts, const std::vector<CpuSwitches>& switches,
                         const std::map<std::string, std::filesystem::path>& host_files) {
    GuestPlaces places;
    const AllRecords records = parse_all(facts, places.notes);
    if (facts.perf_lost > 0)
        places.notes.push_back(fmt::format(
            "the guest lost {} records of mappings and switches: later programs are without names and maps",
            facts.perf_lost));
    const std::map<std::uint32_t, TaskIdentity> tasks = tasks_by_tid(facts, records.in_order);
    const std::map<std::uint32_t, Image> images = images_by_pid(records.in_order);
    const SpaceVotes votes = match_switches(switches, records.by_cpu, facts.pid, places.notes);

    std::map<SpaceId, std::uint64_t> addresses;
    for (const CpuSwitches& cpu : switches)
        for (const TaskSwitch& s : cpu.switches) addresses.emplace(s.space, s.task);

    BuildIds build_ids(host_files);
    for (const auto& [id, address] : addresses) {
        recording::Space space{.id = id, .pid = 0, .name = {}, .task = address};
        Image image;
        for (const TaskIdentity& task : owners(votes, id, tasks)) {
            // Memory of a task that ended serves the next one: every name, the most frequent first.
            const std::string name = task.kernel_thread ? "[" + task.name + "]" : task.name;
            if (space.name.empty()) {
                space.pid = task.pid;
                space.name = name;
                if (const auto own = images.find(task.pid); own != images.end()) image = own->second;
            } else if (name != space.name) {
                space.name += ", " + name;
            }
        }
        for (const auto& [start, range] : image.ranges())
            places.maps.push_back({.space = id,
                                   .start = VirtAddr(start),
                                   .end = VirtAddr(range.end),
                                   .file_offset = range.file_offset,
                                   .protection = protection_text(range),
                                   .path = range.name,
                                   .build_id = build_ids.of(range.name)});
        places.spaces.push_back(std::move(space));
    }
    return places;
}

}  // namespace tlbscope::capture
