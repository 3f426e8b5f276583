#include "tables/events.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "core/numbers.h"

namespace tlbscope::tables {

namespace {

constexpr std::uint64_t kPage = 4096;

bool has_range(const MemoryEvent& event) {
    switch (event.kind) {
        case MemoryEventKind::kFork:
        case MemoryEventKind::kExec:
        case MemoryEventKind::kExit:
        case MemoryEventKind::kSwitch:
            return false;
        default:
            return true;
    }
}

}  // namespace

void populate(Events& events, std::uint64_t most) {
    std::vector<MemoryEvent> all;
    all.reserve(events.events.size() * 2);
    std::unordered_map<std::uint32_t, std::uint64_t> heap_ends;
    for (const MemoryEvent& event : events.events) {
        all.push_back(event);
        std::uint64_t start = event.start.value();
        std::uint64_t end = start + event.bytes;
        bool allowed = false;
        if (event.kind == MemoryEventKind::kMap) {
            allowed = event.protection != 0;
        } else if (event.kind == MemoryEventKind::kBreak) {
            std::uint64_t& heap_end = heap_ends[event.process];
            allowed = heap_end != 0 && end > heap_end;
            start = heap_end;
            heap_end = end;
        } else if (event.kind == MemoryEventKind::kFork && !event.shares_space) {
            if (const auto parent = heap_ends.find(event.process); parent != heap_ends.end())
                heap_ends[event.child] = parent->second;
        } else if (event.kind == MemoryEventKind::kExec) {
            heap_ends.erase(event.process);
        }
        if (!allowed || end < start) continue;
        std::uint64_t left = most;
        for (std::uint64_t at = start; at < end && left != 0; at = (at & ~(kPage - 1)) + kPage, --left) {
            MemoryEvent fault = event;
            fault.kind = MemoryEventKind::kFault;
            fault.start = VirtAddr(at);
            fault.bytes = 0;
            fault.write = event.kind == MemoryEventKind::kBreak || (event.protection & kProtectWrite) != 0;
            all.push_back(fault);
        }
    }
    events.events = std::move(all);
}

Result<void> fit(Events& events, const pagetable::Format& format) {
    const std::uint64_t end = format.user_end();
    const auto fits = [&](std::uint64_t start, std::uint64_t bytes) {
        return start <= end && bytes <= end - start;
    };
    const bool all_fit =
        std::all_of(events.events.begin(), events.events.end(), [&](const MemoryEvent& event) {
            return !has_range(event) ||
                   (fits(event.start.value(), event.bytes) && fits(event.old_start.value(), event.old_bytes));
        });
    if (all_fit) return {};

    const unsigned shift = end >= std::uint64_t{1} << 36 ? 30 : 22;
    std::map<std::uint64_t, std::uint64_t> pieces;  // piece -> where it goes
    const auto use = [&](std::uint64_t start, std::uint64_t bytes) {
        const std::uint64_t last = bytes == 0 ? start : start + (bytes - 1);
        if (last < start || (last >> shift) - (start >> shift) > 1 << 20) return false;
        for (std::uint64_t piece = start >> shift; piece <= last >> shift; ++piece) pieces[piece] = 0;
        return true;
    };
    for (const MemoryEvent& event : events.events) {
        const bool makes = event.kind == MemoryEventKind::kMap || event.kind == MemoryEventKind::kBreak ||
                           event.kind == MemoryEventKind::kRemap || event.kind == MemoryEventKind::kFault;
        if (makes && !use(event.start.value(), event.bytes))
            return fail(events.name,
                        fmt::format("a range of {} does not fit {}", human_bytes(event.bytes), format.name),
                        "choose a format with more address bits");
    }
    const std::uint64_t room = end >> shift;
    if (pieces.size() > room)
        return fail(events.name,
                    fmt::format("its ranges take {} pieces of {}, and {} has {}", grouped(pieces.size()),
                                size_name(std::uint64_t{1} << shift), format.name, grouped(room)),
                    "choose a format with more address bits");
    // Gaps as they are where there is room for them, else in equal measure.
    const std::uint64_t most_gap = pieces.size() < 2 ? 0 : (room - pieces.size()) / pieces.size();
    std::uint64_t next = 0;
    std::uint64_t before = 0;
    for (auto& [piece, target] : pieces) {
        next += std::min(piece - before, most_gap);
        target = next++;
        before = piece + 1;
    }
    const auto moved = [&](std::uint64_t address) {
        const auto piece = pieces.lower_bound(address >> shift);
        if (piece == pieces.end()) return next << shift;
        const std::uint64_t offset =
            piece->first == address >> shift ? address & ((std::uint64_t{1} << shift) - 1) : 0;
        return (piece->second << shift) + offset;
    };
    for (MemoryEvent& event : events.events) {
        if (!has_range(event)) continue;
        const auto move = [&](VirtAddr& start, std::uint64_t& bytes) {
            if (bytes == 0) {
                start = VirtAddr(moved(start.value()));
                return;
            }
            const std::uint64_t last = moved(start.value() + (bytes - 1));
            start = VirtAddr(moved(start.value()));
            bytes = last - start.value() + 1;
        };
        move(event.start, event.bytes);
        move(event.old_start, event.old_bytes);
    }
    events.notes.push_back(
        fmt::format("addresses beyond {}'s user half ({}) were moved down, in order, in pieces of {}",
                    format.name, size_name(end), size_name(std::uint64_t{1} << shift)));
    return {};
}

}  // namespace tlbscope::tables
