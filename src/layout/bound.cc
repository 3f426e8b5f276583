#include "layout/bound.h"

#include <algorithm>
#include <unordered_set>

namespace tlbscope::layout {

namespace {

// Walks the trace's visits; loops two passes deep, which leaves references out and so keeps a lower bound
// one.
template <class Visit>
void walk(const Trace& trace, std::span<const std::uint32_t> elements, Visit& visit) {
    for (const std::uint32_t element : elements) {
        if (element < kChange) {
            visit(element);
        } else if ((element & kLoop) != 0) {
            const Loop& loop = trace.loops[element & ~kLoop];
            for (int pass = 0; pass < 2; ++pass)
                walk(trace, std::span(trace.bodies).subspan(loop.first, loop.length), visit);
        }
    }
}

class Window {
  public:
    Window(const Trace& trace, std::uint64_t entries, double most)
        : trace_(trace),
          entries_(entries),
          most_(static_cast<std::uint64_t>(static_cast<double>(entries) * most)),
          longest_(trace.uses.size()),
          stamp_of_piece_(trace.uses.size()),
          stamp_of_visit_(trace.visits.size()) {}

    void operator()(std::uint32_t number) {
        const Visit& visit = trace_.visits[number];
        if (visit.piece == kNoPiece) {
            if (stamp_of_visit_[number] == stamp_) return;
            stamp_of_visit_[number] = stamp_;
            ++others_;
        } else {
            const std::uint64_t bytes = visit.end - visit.first;
            if (stamp_of_piece_[visit.piece] != stamp_) {
                stamp_of_piece_[visit.piece] = stamp_;
                longest_[visit.piece] = 0;
            }
            if (bytes <= longest_[visit.piece]) return;
            bytes_ += bytes - longest_[visit.piece];
            longest_[visit.piece] = bytes;
        }
        if (pages() >= most_) close();
    }
    void close() {
        const std::uint64_t touched = pages();
        sum_ += touched > entries_ ? touched - entries_ : 0;
        ++stamp_;
        bytes_ = others_ = 0;
    }
    [[nodiscard]] std::uint64_t sum() const { return sum_; }

  private:
    [[nodiscard]] std::uint64_t pages() const {
        return others_ + ((bytes_ + trace_.image_shift.bytes() - 1) >> trace_.image_shift.value());
    }

    const Trace& trace_;
    std::uint64_t entries_;
    std::uint64_t most_;
    std::vector<std::uint64_t> longest_;
    std::vector<std::uint32_t> stamp_of_piece_;
    std::vector<std::uint32_t> stamp_of_visit_;
    std::uint32_t stamp_ = 1;
    std::uint64_t bytes_ = 0;
    std::uint64_t others_ = 0;
    std::uint64_t sum_ = 0;
};

}  // namespace

Bound bound_of(const Trace& trace, const machine::Machine& machine) {
    Bound bound;
    std::uint64_t touched = 0;
    for (const PieceUse& use : trace.uses) touched += use.touched_bytes;
    bound.compulsory = (touched + trace.image_shift.bytes() - 1) >> trace.image_shift.value();
    std::unordered_set<std::uint64_t> others;
    for (const Visit& visit : trace.visits)
        if (visit.piece == kNoPiece) others.insert(visit.first * 2 + (visit.user ? 1 : 0));
    bound.compulsory += others.size();
    const std::uint64_t entries = machine.tlb(trace.kind).geometry.entries;
    for (const double most : {1.5, 2.0, 3.0, 5.0}) {
        std::uint64_t sum = 0;
        for (const CpuTrace& cpu : trace.cpus) {
            Window window(trace, entries, most);
            walk(trace, cpu.elements, window);
            window.close();
            sum += window.sum();
        }
        bound.windows = std::max(bound.windows, sum);
    }
    return bound;
}

}  // namespace tlbscope::layout
