#include "replay/touches.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "machine/search.h"

namespace tlbscope::replay {

void TouchList::make_room(std::size_t more) {
    const std::size_t needed = count + more + machine::kCollapseSlack;
    if (keys.size() >= needed) return;
    keys.resize(needed + needed / 2);
    ordinals.resize(keys.size());
}

TouchCollector::TouchCollector(const recording::Dictionary& dictionary,
                               std::shared_ptr<const BlockTable> blocks, PageShift shift,
                               std::uint64_t kernel_base)
    : dictionary_(&dictionary), blocks_(std::move(blocks)), shift_(shift), kernel_base_(kernel_base) {
    for (const recording::Slot& slot : dictionary.slots())
        largest_access_log2_ = std::max(largest_access_log2_, slot.size_log2);
}

// One walk over blocks [begin, end) of a batch.
class TouchCollector::Pass {
  public:
    Pass(TouchCollector& collector, const recording::Batch& batch, std::uint32_t begin,
         std::uint32_t first_access, Touches& touches)
        : c_(collector), batch_(batch), t_(touches), at_(begin), access_(first_access) {
        t_.modes.assign(1, {.first_block = begin, .first_access = access_, .mode = c_.mode_});
    }

    void run(std::uint32_t end) {
        auto odd = std::lower_bound(batch_.odd.begin(), batch_.odd.end(), at_,
                                    [](const recording::OddExecution& execution, std::uint32_t at) {
                                        return execution.ordinal < at;
                                    });
        end_ = end;
        t_.fetches.count = 0;
        t_.fetches.make_room(end - at_);
        while (at_ < end) {
            const std::uint32_t stop = odd != batch_.odd.end() ? std::min(end, odd->ordinal) : end;
            plain(stop);
            if (at_ < end) odd_execution(*odd++);
        }
        flush_fetched();
    }

    [[nodiscard]] std::uint32_t access() const { return access_; }

  private:
    // Executions that make their block's shape.
    void plain(std::uint32_t stop) {
        const BlockEntry* const entries = c_.blocks_->entries();
        const std::uint32_t* const ids = batch_.blocks.data();
        while (at_ < stop) {
            const std::uint32_t mode_flag = c_.mode_ == Mode::kKernel ? kKernelMode : 0;
            const std::uint64_t tag = c_.mode_ == Mode::kKernel ? 0 : c_.user_tag_;
            std::uint64_t* const keys = t_.fetches.keys.data();
            std::uint32_t* const ordinals = t_.fetches.ordinals.data();
            std::uint32_t* const first_access = t_.first_access.data();
            std::size_t count = t_.fetches.count;
            std::uint64_t last = c_.last_fetch_;
            std::uint32_t access = access_;
            std::uint64_t fetched = 0;
            std::uint32_t at = at_;
            for (; at < stop; ++at) {
                const BlockEntry& entry = entries[ids[at]];
                if (entry.flags != mode_flag) [[unlikely]]
                    break;
                const std::uint64_t key = entry.page | tag;
                keys[count] = key;
                ordinals[count] = at;
                count += key != last ? 1 : 0;
                last = key;
                first_access[at] = access;
                access += entry.accesses;
                fetched += entry.instructions;
            }
            t_.fetches.count = count;
            c_.last_fetch_ = last;
            access_ = access;
            fetched_ += fetched;
            if (at > at_) c_.remember_last(batch_, at - 1);
            at_ = at;
            if (at_ < stop) special(stop);
        }
    }

    void special(std::uint32_t stop) {
        const std::uint32_t id = batch_.blocks[at_];
        const BlockEntry& entry = c_.blocks_->entries()[id];
        enter_mode(entry);
        count_iteration(entry, id);
        t_.first_access[at_] = access_;
        access_ += entry.accesses;
        if ((entry.flags & kSeveralRuns) != 0) {
            several_runs(c_.blocks_->runs(entry));
        } else {
            fetched_ += entry.instructions;
            fetch(c_.key(entry.page, c_.mode_ == Mode::kKernel ? Side::kKernel : Side::kUser));
        }
        c_.remember_last(batch_, at_);
        ++at_;
        if (entry.flags == ((entry.flags & kKernelMode) | kRepeat) && entry.instructions == 1)
            iterate(entry, id, stop);
    }

    // Further iterations of the string instruction that just ran, all alike: kernels clear and copy pages
    // with them.
    void iterate(const BlockEntry& entry, std::uint32_t id, std::uint32_t stop) {
        const std::uint32_t first = at_;
        for (; at_ < stop && batch_.blocks[at_] == id; ++at_) {
            t_.first_access[at_] = access_;
            access_ += entry.accesses;
        }
        fetched_ += at_ - first;
        c_.collected_.iterations[(entry.flags & kKernelMode) != 0 ? 1 : 0] += at_ - first;
    }

    void odd_execution(const recording::OddExecution& odd) {
        const std::uint32_t id = batch_.blocks[at_];
        const BlockEntry& entry = c_.blocks_->entries()[id];
        enter_mode(entry);
        if (odd.instructions > 0) count_iteration(entry, id);
        t_.first_access[at_] = access_;
        access_ += odd.slot_count;
        c_.blocks_->runs_of(id, odd.instructions, t_.runs);
        several_runs(t_.runs);
        if (odd.instructions > 0) {
            const auto lengths = c_.dictionary_->lengths((*c_.dictionary_)[id]);
            std::uint64_t address = (*c_.dictionary_)[id].address.value();
            for (std::size_t i = 0; i + 1 < odd.instructions; ++i) address += lengths[i];
            c_.last_instruction_ = address;
            c_.any_instruction_ = true;
        }
        ++at_;
    }

    void enter_mode(const BlockEntry& entry) {
        const Mode mode = (entry.flags & kKernelMode) != 0 ? Mode::kKernel : Mode::kUser;
        if (mode == c_.mode_) return;
        flush_fetched();
        c_.mode_ = mode;
        if (t_.modes.back().first_block == at_)
            t_.modes.back().mode = mode;
        else
            t_.modes.push_back({.first_block = at_, .first_access = access_, .mode = mode});
    }

    void count_iteration(const BlockEntry& entry, std::uint32_t id) {
        if ((entry.flags & kRepeat) == 0 || !c_.any_instruction_) return;
        if (c_.last_instruction_ != (*c_.dictionary_)[id].address.value()) return;
        ++c_.collected_.iterations[(entry.flags & kKernelMode) != 0 ? 1 : 0];
    }

    void several_runs(std::span<const PageRun> runs) {
        t_.fetches.make_room(runs.size() + (end_ - at_));
        for (const PageRun& run : runs) {
            c_.collected_.references.at(Kind::kInstruction, c_.mode_, run.side) += run.fetches;
            c_.collected_.lookups.at(Kind::kInstruction, c_.mode_, run.side) += run.lookups;
            fetch(c_.key(run.page, run.side));
        }
    }

    void fetch(std::uint64_t key) {
        if (key == c_.last_fetch_) return;
        t_.fetches.push(key, at_);
        c_.last_fetch_ = key;
    }

    // Fetches of plain blocks lie on the side of their mode.
    void flush_fetched() {
        const Side side = c_.mode_ == Mode::kKernel ? Side::kKernel : Side::kUser;
        c_.collected_.references.at(Kind::kInstruction, c_.mode_, side) += fetched_;
        c_.collected_.lookups.at(Kind::kInstruction, c_.mode_, side) += fetched_;
        fetched_ = 0;
    }

    TouchCollector& c_;
    const recording::Batch& batch_;
    Touches& t_;
    std::uint32_t at_;
    std::uint32_t end_ = 0;
    std::uint32_t access_;
    std::uint64_t fetched_ = 0;
};

void TouchCollector::remember_last(const recording::Batch& batch, std::uint32_t at) {
    const recording::Block& block = (*dictionary_)[batch.blocks[at]];
    if (block.instructions == 0) return;
    last_instruction_ = block.last_instruction().value();
    any_instruction_ = true;
}

Result<std::uint32_t> TouchCollector::collect(const recording::Batch& batch, std::uint32_t begin,
                                              std::uint32_t end, std::uint32_t first_access,
                                              Touches& touches) {
    touches.first_access.resize(batch.blocks.size());
    Pass pass(*this, batch, begin, first_access, touches);
    pass.run(end);
    const std::uint32_t last = pass.access();
    if (last > batch.addresses.size())
        return fail("",
                    fmt::format("a batch holds {} addresses for {} accesses", batch.addresses.size(), last),
                    "the recording is damaged or was written by another version");
    collect_accesses(batch, begin, end, first_access, last, touches);
    collected_.presented[0] += touches.fetches.count;
    collected_.presented[1] += touches.accesses.count;
    return last;
}

void TouchCollector::collect(const recording::PageTouches& pages, Touches& touches) {
    constexpr unsigned kRecordedShift = 12;
    const auto count = static_cast<std::uint32_t>(pages.touches.size());
    touches.fetches.count = touches.accesses.count = 0;
    touches.fetches.make_room(count);
    touches.accesses.make_room(count);
    touches.modes.assign(1, {.first_block = 0, .first_access = 0, .mode = mode_});
    for (std::uint32_t i = 0; i < count; ++i) {
        const recording::PageTouch& page = pages.touches[i];
        if (page.mode != mode_) {
            mode_ = page.mode;
            touches.modes.push_back({.first_block = i, .first_access = i, .mode = mode_});
        }
        const Side side = page.page << kRecordedShift >= kernel_base_ ? Side::kKernel : Side::kUser;
        const bool fetch = page.kind == Kind::kInstruction;
        std::uint64_t& last = fetch ? last_fetch_ : last_access_;
        const std::uint64_t touched = key(page.page >> (shift_.value() - kRecordedShift), side);
        if (touched != last) (fetch ? touches.fetches : touches.accesses).push(touched, i);
        last = touched;
    }
    for (const Kind kind : kKinds)
        for (const Mode mode : kModes)
            for (const Side side : kSides) {
                const std::size_t i = static_cast<std::size_t>(kind) * 4 +
                                      static_cast<std::size_t>(mode) * 2 + static_cast<std::size_t>(side);
                collected_.references.at(kind, mode, side) += pages.references[i];
                collected_.lookups.at(kind, mode, side) += pages.references[i] + pages.straddles[i];
            }
    collected_.presented[0] += touches.fetches.count;
    collected_.presented[1] += touches.accesses.count;
}

std::uint8_t TouchCollector::size_log2(const recording::Batch& batch, const Touches& touches,
                                       std::uint32_t begin, std::uint32_t end, std::uint32_t access) const {
    // The last block that starts at or before this access is the one that makes it.
    const auto first = touches.first_access.begin();
    const auto after = std::upper_bound(first + begin, first + end, access);
    const auto at = static_cast<std::uint32_t>(after - first - 1);
    const std::uint32_t offset = access - touches.first_access[at];
    const auto odd = std::lower_bound(batch.odd.begin(), batch.odd.end(), at,
                                      [](const recording::OddExecution& execution, std::uint32_t wanted) {
                                          return execution.ordinal < wanted;
                                      });
    if (odd != batch.odd.end() && odd->ordinal == at)
        return batch.odd_slots[odd->first_slot + offset].size_log2;
    return dictionary_->shape((*dictionary_)[batch.blocks[at]])[offset].size_log2;
}

void TouchCollector::collect_accesses(const recording::Batch& batch, std::uint32_t begin, std::uint32_t end,
                                      std::uint32_t first, std::uint32_t last, Touches& touches) {
    touches.accesses.count = 0;
    if (first == last) return;
    std::uint8_t largest = largest_access_log2_;
    for (const recording::Slot& slot : batch.odd_slots) largest = std::max(largest, slot.size_log2);

    // An access can lie on two pages only if it begins less than the largest access before a page's end.
    const std::uint64_t page_bytes = shift_.bytes();
    const std::uint64_t largest_bytes = std::uint64_t{1} << std::min<std::uint8_t>(largest, 63);
    touches.candidates.resize(last - first + machine::kCollapseSlack);
    std::size_t candidates = 0;
    if (largest_bytes > page_bytes)
        for (; candidates < last - first; ++candidates)
            touches.candidates[candidates] = static_cast<std::uint32_t>(candidates);
    else if (largest_bytes > 1)
        candidates =
            machine::kernels().near_page_end(batch.addresses.data() + first, last - first, page_bytes - 1,
                                             page_bytes - largest_bytes, touches.candidates.data());
    std::size_t candidate = 0;
    for (std::size_t m = 0; m < touches.modes.size(); ++m) {
        const Mode mode = touches.modes[m].mode;
        const std::uint32_t stop = m + 1 < touches.modes.size() ? touches.modes[m + 1].first_access : last;
        std::uint32_t at = touches.modes[m].first_access;
        for (; candidate < candidates && first + touches.candidates[candidate] < stop; ++candidate) {
            const std::uint32_t access = first + touches.candidates[candidate];
            const std::uint64_t address = batch.addresses[access];
            const std::uint64_t bytes =
                std::uint64_t{1} << std::min<std::uint8_t>(size_log2(batch, touches, begin, end, access), 63);
            if ((address & (page_bytes - 1)) + bytes <= page_bytes) continue;
            collapse(batch, at, access + 1, mode, touches);
            straddle(address, bytes, access, mode, touches);
            at = access + 1;
        }
        collapse(batch, at, stop, mode, touches);
    }
}

void TouchCollector::collapse(const recording::Batch& batch, std::uint32_t first, std::uint32_t last,
                              Mode mode, Touches& touches) {
    if (first == last) return;
    TouchList& list = touches.accesses;
    list.make_room(last - first);
    const machine::Collapsed done = machine::kernels().collapse(
        batch.addresses.data() + first, last - first,
        {.kernel_base = kernel_base_, .user_tag = user_tag_, .page_shift = shift_.value()}, last_access_,
        first, list.keys.data() + list.count, list.ordinals.data() + list.count);
    list.count += done.count;
    last_access_ = done.last;
    for (Counts* counts : {&collected_.references, &collected_.lookups}) {
        counts->at(Kind::kData, mode, Side::kKernel) += done.kernel_side;
        counts->at(Kind::kData, mode, Side::kUser) += last - first - done.kernel_side;
    }
}

void TouchCollector::straddle(std::uint64_t address, std::uint64_t bytes, std::uint32_t ordinal, Mode mode,
                              Touches& touches) {
    const std::uint64_t further = ((address & (shift_.bytes() - 1)) + bytes - 1) >> shift_.value();
    touches.accesses.make_room(further);
    for (std::uint64_t i = 1; i <= further; ++i) {
        // Addresses wrap at the top, as the processor's do.
        const std::uint64_t start = ((address >> shift_.value()) + i) << shift_.value();
        const Side side = start >= kernel_base_ ? Side::kKernel : Side::kUser;
        ++collected_.lookups.at(Kind::kData, mode, side);
        const std::uint64_t touched = key(start >> shift_.value(), side);
        if (touched == last_access_) continue;
        touches.accesses.push(touched, ordinal);
        last_access_ = touched;
    }
}

}  // namespace tlbscope::replay
