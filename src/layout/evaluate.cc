#include "layout/evaluate.h"

#include <algorithm>
#include <unordered_set>

#include "replay/engine.h"

namespace tlbscope::layout {

namespace {

constexpr std::size_t kBuffer = 4096;
// Marks pages of the image where they are of another size than the rest; a page of one size never equals one
// of another. Page numbers have 52 bits at most, a virtual address's upper bits all equal.
constexpr std::uint64_t kOtherSize = std::uint64_t{1} << 51;

}  // namespace

Evaluator::Evaluator(const Trace& trace, const machine::Machine& machine)
    : trace_(trace),
      geometry_(machine.tlb(trace.kind).geometry),
      rules_(machine.invalidation),
      targets_(trace.visits.size()),
      keys_(kBuffer),
      of_(kBuffer),
      missed_(kBuffer) {}

bool Evaluator::mixed() const { return trace_.shift != trace_.image_shift; }

void Evaluator::place(std::span<const std::uint64_t> starts) {
    for (std::size_t i = 0; i < targets_.size(); ++i) {
        const Visit& visit = trace_.visits[i];
        Target& target = targets_[i];
        target.user = visit.user ? ~std::uint64_t{0} : 0;
        if (visit.piece == kNoPiece) {
            target.key = visit.first;
            target.pages = 1;
            continue;
        }
        const std::uint64_t base = starts[visit.piece] + trace_.biases[visit.bias];
        const std::uint64_t first = (base + visit.first) >> trace_.image_shift.value();
        const std::uint64_t last = (base + visit.end - 1) >> trace_.image_shift.value();
        target.key = mixed() ? first | kOtherSize : first;
        target.pages = static_cast<std::uint32_t>(last - first + 1);
    }
}

void Evaluator::look_up() {
    if (count_ == 0) return;
    const std::size_t missed = tlb_->run(std::span(keys_).first(count_), missed_.data());
    all_missed_ += missed;
    for (std::size_t i = 0; i < missed; ++i) {
        const std::uint32_t visit = of_[missed_[i]];
        ++(trace_.visits[visit].piece == kNoPiece ? result_.other : result_.image);
        if (by_visit_ != nullptr) ++(*by_visit_)[visit];
    }
    if (on_looked_up)
        for (std::size_t i = 0, next = 0; i < count_; ++i) {
            const bool is_miss = next < missed && missed_[next] == i;
            next += is_miss ? 1 : 0;
            on_looked_up(of_[i], is_miss);
        }
    count_ = 0;
}

void Evaluator::replay(std::span<const std::uint32_t> elements) {
    for (const std::uint32_t element : elements) {
        if (element < kChange) [[likely]] {
            const Target& target = targets_[element];
            std::uint64_t key = target.key | (tag_ & target.user);
            for (std::uint32_t page = 0;;) {
                if (key != last_) {
                    keys_[count_] = key;
                    of_[count_] = element;
                    last_ = key;
                    if (++count_ == kBuffer) look_up();
                }
                if (++page >= target.pages) break;
                ++key;
            }
        } else if ((element & kLoop) != 0) {
            const Loop& loop = trace_.loops[element & ~kLoop];
            const auto body = std::span(trace_.bodies).subspan(loop.first, loop.length);
            look_up();
            for (std::uint32_t pass = 0; pass < loop.passes; ++pass) {
                const std::uint64_t before = all_missed_;
                replay(body);
                look_up();
                if (all_missed_ == before) break;
            }
        } else {
            look_up();
            apply(trace_.changes[element & kNumber]);
        }
    }
}

// As replay::Mmu does it for a machine of one page size.
void Evaluator::apply(const Change& change) {
    switch (change.what) {
        case Change::What::kSwitch:
            tag_ = std::uint64_t{change.to.tag} << machine::kTagShift;
            if (!change.to.drop && !change.to.flush) return;
            if (change.to.flush)
                tlb_->flush_all();
            else
                tlb_->drop_tag(change.to.tag);
            break;
        case Change::What::kRemovePage: {
            const std::uint64_t page = machine::page_of(change.address >> trace_.shift.value());
            const std::uint64_t of_image = change.address >> trace_.image_shift.value() | kOtherSize;
            const std::uint16_t tag = change.user ? machine::tag_of(tag_) : addrspace::kGlobalTag;
            tlb_->drop_if([&](std::uint64_t key, bool reserved) {
                const std::uint64_t entry = machine::page_of(key);
                return (rules_.page_kills_reserved || !reserved) &&
                       (rules_.page_matches_any_asid || machine::tag_of(key) == tag) &&
                       (entry == page || (mixed() && entry == of_image));
            });
            break;
        }
        case Change::What::kRemoveAll:
            tlb_->drop_if([&](std::uint64_t key, bool reserved) {
                return (!rules_.all_spares_reserved || !reserved) &&
                       (!rules_.all_spares_global || machine::tag_of(key) != addrspace::kGlobalTag);
            });
            if (rules_.all_clears_index && !rules_.all_spares_global) tlb_->flush_all();
            break;
    }
    last_ = machine::kNoKey;
}

Misses Evaluator::misses(std::span<const std::uint64_t> starts) {
    place(starts);
    result_ = {};
    for (const CpuTrace& cpu : trace_.cpus) {
        tlb_ = machine::make_tlb(geometry_,
                                 replay::random_stream(cpu.cpu, static_cast<std::size_t>(trace_.kind)));
        tag_ = 0;
        last_ = machine::kNoKey;
        replay(cpu.elements);
        look_up();
    }
    return result_;
}

Evaluator::Detail Evaluator::detail(std::span<const std::uint64_t> starts) {
    Detail detail;
    detail.by_visit.resize(trace_.visits.size());
    by_visit_ = &detail.by_visit;
    detail.misses = misses(starts);
    by_visit_ = nullptr;
    std::unordered_set<std::uint64_t> image;
    std::unordered_set<std::uint64_t> other;
    for (std::size_t i = 0; i < targets_.size(); ++i)
        for (std::uint32_t page = 0; page < targets_[i].pages; ++page)
            (trace_.visits[i].piece == kNoPiece ? other : image).insert(targets_[i].key + page);
    detail.image_pages = image.size();
    detail.other_pages = other.size();
    return detail;
}

}  // namespace tlbscope::layout
