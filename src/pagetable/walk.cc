#include "pagetable/walk.h"

namespace tlbscope::pagetable {

Walk walk(const Format& format, const Memory& memory, PhysAddr root, VirtAddr address) {
    Walk result;
    if (!format.canonical(address.value())) return result;
    unsigned level = 0;
    std::uint64_t table = root.value();
    for (;;) {
        const Level& shape = format.levels[level];
        Step& step = result.path[result.count++];
        step.level = static_cast<std::uint8_t>(level);
        step.entry_address = PhysAddr(table + shape.index(address.value()) * shape.entry_bytes);
        std::uint64_t bytes = 0;
        if (!memory.load(step.entry_address, &bytes, shape.entry_bytes)) {
            result.outcome = Outcome::kNoMemory;
            return result;
        }
        step.raw = load_entry(&bytes, shape.entry_bytes, format.big_endian);
        step.entry = format.decode(format, level, step.raw);
        switch (step.entry.kind) {
            case EntryKind::kNone:
                result.outcome = Outcome::kNotPresent;
                return result;
            case EntryKind::kMalformed:
                result.outcome = Outcome::kMalformed;
                result.why = step.entry.why;
                return result;
            case EntryKind::kPage:
                result.outcome = Outcome::kMapped;
                return result;
            case EntryKind::kTable:
                // A table's level is always deeper than its parent's (tests/pagetable checks the data), so
                // this ends.
                level = step.entry.next;
                table = step.entry.address.value();
        }
    }
}

std::size_t entry_addresses(const Format& format, const Memory& memory, PhysAddr root, VirtAddr address,
                            std::array<PhysAddr, kMostSteps>& into) {
    std::size_t count = 0;
    if (!format.canonical(address.value())) return count;
    unsigned level = 0;
    std::uint64_t table = root.value();
    for (;;) {
        const Level& shape = format.levels[level];
        const PhysAddr at(table + shape.index(address.value()) * shape.entry_bytes);
        into[count++] = at;
        std::uint64_t bytes = 0;
        if (!memory.load(at, &bytes, shape.entry_bytes)) return count;
        const Entry entry =
            format.decode(format, level, load_entry(&bytes, shape.entry_bytes, format.big_endian));
        if (entry.kind != EntryKind::kTable) return count;
        level = entry.next;
        table = entry.address.value();
    }
}

std::string_view name_of(Outcome outcome) {
    static constexpr std::string_view kNames[] = {"mapped", "not present", "malformed", "no memory there",
                                                  "not canonical"};
    return kNames[static_cast<std::size_t>(outcome)];
}

}  // namespace tlbscope::pagetable
