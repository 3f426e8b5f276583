#include "tables/recorded.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "core/numbers.h"
#include "recording/batch.h"
#include "recording/kernel_events.h"

namespace tlbscope::tables {

namespace {

using recording::Batch;
using recording::Block;
using recording::EventType;
using recording::Recording;

constexpr std::uint64_t kPage = 4096;

class Collector {
  public:
    Collector(const Recording& recording, Events& events) : recording_(recording), events_(events) {
        for (const recording::Space& space : recording.metadata().spaces)
            processes_[space.id.value()] = space.pid == 0 ? kUnnamed + space.id.value() : space.pid;
    }

    void maps() {
        for (const recording::MappedRange& range : recording_.metadata().maps) {
            const std::uint64_t start = range.start.value();
            if (range.end.value() <= start || start >= recording_.metadata().kernel_base) continue;
            MemoryEvent event{.kind = MemoryEventKind::kMap,
                              .file = range.path.starts_with("/"),
                              .process = process_of(range.space.value()),
                              .start = range.start,
                              .bytes = range.end.value() - start};
            const auto has = [&](char c) { return range.protection.find(c) != std::string::npos; };
            if (has('r')) event.protection |= kProtectRead;
            if (has('w')) event.protection |= kProtectWrite;
            if (has('x')) event.protection |= kProtectExecute;
            add(event);
        }
    }
    void touch(std::uint32_t cpu, std::uint64_t address) {
        if (address >= recording_.metadata().kernel_base) return;
        const std::uint32_t process = process_of(space_[cpu]);
        const std::uint64_t page = address / kPage;
        if (last_page_ == page && last_process_ == process) return;
        last_page_ = page;
        last_process_ = process;
        if (!touched_[process].insert(page).second) return;
        add({.kind = MemoryEventKind::kFault,
             .cpu = cpu,
             .process = process,
             .start = VirtAddr(page * kPage)});
    }
    void batch(const Batch& batch) {
        const std::uint32_t cpu = batch.cpu.value();
        std::size_t at = 0;
        std::size_t odd = 0;
        std::size_t event = 0;
        const auto& dictionary = recording_.dictionary();
        for (std::size_t n = 0; n <= batch.blocks.size(); ++n) {
            for (; event < batch.events.size() && batch.events[event].position <= n; ++event)
                if (batch.events[event].type == EventType::kSwitchSpace)
                    space_[cpu] = static_cast<std::uint32_t>(batch.events[event].a);
            if (n == batch.blocks.size()) break;
            const Block& block = dictionary[batch.blocks[n]];
            touch(cpu, block.address.value());
            touch(cpu, block.last_instruction().value());
            std::size_t accesses = block.slot_count;
            if (odd < batch.odd.size() && batch.odd[odd].ordinal == n) accesses = batch.odd[odd++].slot_count;
            for (; accesses != 0; --accesses) touch(cpu, batch.addresses[at++]);
        }
    }
    // Chunks come in the order of their tickets, so each CPU's switches of space are met in order.
    Result<void> references() {
        if (recording_.metadata().granularity == recording::Granularity::kPage) {
            for (std::size_t chunk = 0; chunk < recording_.chunks().size(); ++chunk) {
                const auto pages = recording_.touches(chunk);
                if (!pages) return std::unexpected(pages.error());
                for (const auto& page : pages->touches)
                    touch(recording_.chunks()[chunk].cpu.value(), page.page * kPage);
            }
            return {};
        }
        std::optional<recording::BatchReader> reader;
        for (std::size_t chunk = 0; chunk < recording_.chunks().size(); ++chunk) {
            if (reader)
                reader->restart(chunk);
            else
                reader.emplace(recording_, chunk);
            for (;;) {
                const auto next = reader->next();
                if (!next) return std::unexpected(next.error());
                if (!*next) break;
                batch(**next);
            }
        }
        return {};
    }
    void exits() {
        std::vector<std::uint32_t> all;
        for (const auto& [process, pages] : touched_) all.push_back(process);
        std::sort(all.begin(), all.end());
        for (const std::uint32_t process : all) add({.kind = MemoryEventKind::kExit, .process = process});
    }

  private:
    static constexpr std::uint32_t kUnnamed = 1U << 30;  // processes of spaces whose pid is unknown
    std::uint32_t process_of(std::uint32_t space) {
        const auto known = processes_.find(space);
        return known == processes_.end() ? kUnnamed + space : known->second;
    }
    void add(MemoryEvent event) {
        event.position = events_.events.size() + 1;
        events_.events.push_back(event);
    }
    const Recording& recording_;
    Events& events_;
    std::unordered_map<std::uint32_t, std::uint32_t> processes_;
    std::unordered_map<std::uint32_t, std::uint32_t> space_;  // by CPU
    std::unordered_map<std::uint32_t, std::unordered_set<std::uint64_t>> touched_;
    std::uint64_t last_page_ = ~std::uint64_t{0};
    std::uint32_t last_process_ = 0;
};

// What the kernel told itself (record --events): maps, unmaps, forks, faults as they happened.
Result<void> kernel_events(const Recording& recording, Events& events) {
    recording::KernelEventReader reader(recording);
    for (;;) {
        auto event = reader.next();
        if (!event) return std::unexpected(event.error());
        if (!*event) break;
        if (const auto* memory = std::get_if<MemoryEvent>(&**event)) events.events.push_back(*memory);
    }
    if (recording.metadata().lost_kernel_events != 0)
        events.notes.push_back(fmt::format("the guest's kernel lost {} events",
                                           grouped(recording.metadata().lost_kernel_events)));
    return {};
}

}  // namespace

Result<Events> recorded_events(const Recording& recording) {
    Events made;
    made.name = recording.path().string();
    made.cpus = std::max<std::uint32_t>(recording.metadata().cpus, 1);
    if (recording.metadata().kernel_events) {
        if (auto done = kernel_events(recording, made); !done) return std::unexpected(done.error());
        made.imply = true;
        return made;
    }
    Collector collector(recording, made);
    collector.maps();
    if (auto done = collector.references(); !done) return std::unexpected(done.error());
    collector.exits();
    made.notes.push_back(
        "this recording has no memory-management events: each space's tables come from its maps and the "
        "pages it touched, "
        "in the order of the first touch, and it ends at the end");
    return made;
}

}  // namespace tlbscope::tables
