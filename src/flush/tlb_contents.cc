#include "flush/tlb_contents.h"

namespace tlbscope::flush {

void TlbContents::drop(Cpu& cpu, const Operation& operation) {
    if (operation.scope == TlbScope::kWalkCache) return;
    const bool whole = operation.scope == TlbScope::kPid || operation.scope == TlbScope::kAll;
    for (auto entry = cpu.order.begin(); entry != cpu.order.end();) {
        const bool named = (operation.scope == TlbScope::kAll || entry->space == operation.space.value()) &&
                           (whole || ((entry->page << page_.value()) + page_.bytes() > operation.start &&
                                      (entry->page << page_.value()) < operation.end));
        if (!named) {
            ++entry;
            continue;
        }
        Tally& tally = flusher_->tally_of(operation.reason);
        ++tally.dropped;
        // A request for the whole space (a fork, an end) changes every entry; another only its range.
        const std::uint64_t address = entry->page << page_.value();
        const bool changed = request_ != nullptr && request_->space.value() == entry->space &&
                             (request_->whole || request_->kind == RequestKind::kSpace ||
                              (address + page_.bytes() > request_->start && address < request_->end));
        if (!changed) {
            ++tally.live_dropped;
            cpu.missed_alive[*entry] = operation.reason;
        }
        cpu.entries.erase(*entry);
        entry = cpu.order.erase(entry);
    }
}

void TlbContents::apply(const Operation& operation) {
    if (operation.global) {
        for (Cpu& cpu : cpus_) drop(cpu, operation);
        return;
    }
    operation.cpus.for_each(
        [&](std::size_t number) { drop(cpu(static_cast<std::uint32_t>(number)), operation); });
}

void TlbContents::reference(std::uint32_t number, SpaceId space, std::uint64_t address) {
    Cpu& here = cpu(number);
    const Key key{.page = address >> page_.value(), .space = space.value()};
    // Most references are to the last page or, code and data taking turns, the one before.
    if (!here.order.empty()) {
        const auto first = here.order.begin();
        if (*first == key) return;
        if (const auto second = std::next(first); second != here.order.end() && *second == key) {
            here.order.splice(first, here.order, second);
            return;
        }
    }
    if (const auto found = here.entries.find(key); found != here.entries.end()) {
        here.order.splice(here.order.begin(), here.order, found->second);
        return;
    }
    if (const auto missed = here.missed_alive.find(key); missed != here.missed_alive.end()) {
        ++flusher_->tally_of(missed->second).refills;
        here.missed_alive.erase(missed);
    }
    here.order.push_front(key);
    here.entries[key] = here.order.begin();
    if (here.order.size() > entries_) {
        here.entries.erase(here.order.back());
        here.order.pop_back();
    }
}

void TlbContents::forget(SpaceId space) {
    for (Cpu& here : cpus_) {
        std::erase_if(here.missed_alive, [&](const auto& each) { return each.first.space == space.value(); });
        for (auto entry = here.order.begin(); entry != here.order.end();) {
            if (entry->space != space.value()) {
                ++entry;
                continue;
            }
            here.entries.erase(*entry);
            entry = here.order.erase(entry);
        }
    }
}

}  // namespace tlbscope::flush
