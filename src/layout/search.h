// Our own way: change the order step by step and keep what an exact replay says has fewer misses.
//
// Problem: an order's misses are not a sum over pairs of functions; they depend on which pages the array
// holds at each moment, and moving one function shifts the page boundaries of all behind it. Idea: take the
// best order the known methods find, replay it and note, for every miss, which functions ran just before: had
// the one that missed lain on a page of theirs, it would have hit. Moves are drawn from these pairs, mostly:
// a function, or a few that lie together, next to one that was running when it missed; the rest are swaps and
// shifts at random. Each move is judged by a full replay of every training recording, never by an estimate,
// and candidates are judged several at a time on all cores. Rejected: annealing, which spends most replays on
// orders worse than the start; an incremental count, since a FIFO array's contents differ forever after one
// different reload.
//
// Deterministic: the moves drawn depend on the seed and on earlier results only, not on time or threads. The
// budget is counted in trace elements; stopping early returns the best order so far.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "layout/evaluate.h"
#include "layout/linker.h"
#include "layout/methods.h"
#include "layout/trace.h"
#include "machine/machine.h"

namespace tlbscope::layout {

// Judges orders: the sum of misses over the recordings, each with its weight.
class Judge {
  public:
    Judge(const Image& image, const Units& units, Linker linker, const machine::Machine& machine,
          std::vector<const Trace*> traces, std::vector<double> weights);
    [[nodiscard]] double cost(std::span<const std::uint32_t> order);
    // The last order's misses, by recording.
    [[nodiscard]] std::span<const Misses> misses() const { return misses_; }
    // As linked, no order at all.
    [[nodiscard]] double cost_as_linked();
    // Elements replayed for one order, an upper bound.
    [[nodiscard]] std::uint64_t elements() const;

    // Calls relate(missed, other, weight) for pairs of units: `missed` missed, in this order, and `other` ran
    // just before, on another page.
    void relate(std::span<const std::uint32_t> order,
                const std::function<void(std::uint32_t, std::uint32_t, double)>& relate);

  private:
    const Units& units_;
    Placer placer_;
    Placement placement_;
    Placement linked_;
    std::vector<const Trace*> traces_;
    std::vector<double> weights_;
    std::vector<Evaluator> evaluators_;
    std::vector<Misses> misses_;
};

struct SearchOptions {
    std::uint64_t seed = 1;
    std::uint64_t budget = 0;  // trace elements to replay in all
    unsigned threads = 1;
    // Share of the budget spent and the cost so far; false: stop and return the best so far.
    std::function<bool(double, double)> progress;
};

struct SearchResult {
    Order order;
    double cost = 0;
    std::uint64_t tried = 0;
    std::uint64_t taken = 0;
    bool stopped = false;  // before the budget was spent
};

// `judges`: one for each thread, all alike.
[[nodiscard]] SearchResult search(std::span<const std::unique_ptr<Judge>> judges, Order start,
                                  const Units& units, const SearchOptions& options);

}  // namespace tlbscope::layout
