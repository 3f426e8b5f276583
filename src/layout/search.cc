#include "layout/search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <deque>
#include <thread>

#include "explain/flat_map.h"
#include "machine/random.h"

namespace tlbscope::layout {

namespace {

constexpr std::size_t kCandidates = 16;     // judged between two decisions
constexpr std::size_t kRecentUnits = 8;     // that could have shared a page with what missed
constexpr std::uint64_t kRelateEvery = 64;  // decisions after which pairs are counted anew
constexpr std::uint64_t kRelateCost = 4;    // replays that counting them takes as long as

struct Pair {
    std::uint32_t a = 0;
    std::uint32_t b = 0;
    friend bool operator==(const Pair&, const Pair&) = default;
    [[nodiscard]] std::uint64_t hash() const { return (std::uint64_t{a} << 32 | b) * 0xbf58476d1ce4e5b9; }
};

// Draws pairs with a probability proportional to their weight.
class PairChooser {
  public:
    void set(std::vector<std::pair<Pair, double>> pairs) {
        pairs_ = std::move(pairs);
        sums_.clear();
        double sum = 0;
        for (const auto& [pair, weight] : pairs_) sums_.push_back(sum += weight);
    }
    [[nodiscard]] bool empty() const { return pairs_.empty(); }
    [[nodiscard]] Pair draw(machine::Random& random) const {
        const double at = static_cast<double>(random.next() >> 11) * 0x1p-53 * sums_.back();
        const auto found = std::upper_bound(sums_.begin(), sums_.end(), at);
        return pairs_[std::min<std::size_t>(static_cast<std::size_t>(found - sums_.begin()),
                                            pairs_.size() - 1)]
            .first;
    }

  private:
    std::vector<std::pair<Pair, double>> pairs_;
    std::vector<double> sums_;
};

// Takes [first, first + count) out and puts it so that it begins at position `to` of what is left.
void move_chunk(Order& order, std::size_t first, std::size_t count, std::size_t to) {
    const auto begin = order.begin();
    if (to < first)
        std::rotate(begin + static_cast<std::ptrdiff_t>(to), begin + static_cast<std::ptrdiff_t>(first),
                    begin + static_cast<std::ptrdiff_t>(first + count));
    else
        std::rotate(begin + static_cast<std::ptrdiff_t>(first),
                    begin + static_cast<std::ptrdiff_t>(first + count),
                    begin + static_cast<std::ptrdiff_t>(to + count));
}

class Search {
  public:
    Search(std::span<const std::unique_ptr<Judge>> judges, Order start, const Units& units,
           const SearchOptions& options)
        : judges_(judges),
          units_(units),
          options_(options),
          random_(options.seed),
          best_(std::move(start)),
          position_(units.size(), 0),
          candidates_(kCandidates),
          costs_(kCandidates) {}

    SearchResult run() {
        SearchResult result;
        double cost = judges_[0]->cost(best_);
        const std::uint64_t each = std::max<std::uint64_t>(judges_[0]->elements(), 1);
        std::uint64_t spent = each;
        std::uint64_t since_relate = kRelateEvery;
        while (best_.size() > 1 && spent + each * kCandidates <= options_.budget) {
            const double share = static_cast<double>(spent) / static_cast<double>(options_.budget);
            if (options_.progress && !options_.progress(share, cost)) {
                result.stopped = true;
                break;
            }
            if (since_relate >= kRelateEvery) {
                relate(best_);
                spent += each * kRelateCost;
                since_relate = 0;
            }
            for (std::size_t i = 0; i < best_.size(); ++i)
                position_[best_[i]] = static_cast<std::uint32_t>(i);
            for (Order& candidate : candidates_) {
                candidate = best_;
                change(candidate);
            }
            judge_all();
            spent += each * kCandidates;
            result.tried += kCandidates;
            ++since_relate;
            const auto least =
                static_cast<std::size_t>(std::min_element(costs_.begin(), costs_.end()) - costs_.begin());
            // An equal cost is taken as well: it moves on over plateaus.
            if (costs_[least] > cost) continue;
            result.taken += costs_[least] < cost ? 1 : 0;
            best_.swap(candidates_[least]);
            cost = costs_[least];
        }
        result.order = std::move(best_);
        result.cost = cost;
        return result;
    }

  private:
    void relate(const Order& order) {
        explain::FlatMap<Pair, double> sums;
        judges_[0]->relate(order, [&](std::uint32_t missed, std::uint32_t other, double weight) {
            sums[{missed, other}] += weight;
        });
        std::vector<std::pair<Pair, double>> pairs;
        sums.for_each([&](const Pair& pair, double weight) { pairs.emplace_back(pair, weight); });
        std::sort(pairs.begin(), pairs.end(), [](const auto& a, const auto& b) {
            return std::pair(a.first.a, a.first.b) < std::pair(b.first.a, b.first.b);
        });
        pairs_.set(std::move(pairs));
    }

    // Functions from `at` on that lie together, by a random length that is mostly short.
    [[nodiscard]] std::size_t length_from(std::size_t at) {
        std::size_t length = 1;
        while (length < 64 && random_.below(3) == 0)
            length += 1 + random_.below(static_cast<std::uint32_t>(length));
        return std::min(length, best_.size() - at);
    }

    // What lies at `at` changes places with as many bytes from `to` on: no page boundary but theirs moves
    // far.
    void exchange(Order& order, std::size_t at, std::size_t to) {
        std::size_t length = length_from(at);
        if (at < to) length = std::min(length, to - at);
        std::uint64_t bytes = 0;
        for (std::size_t i = at; i < at + length; ++i) bytes += units_[order[i]].bytes;
        const std::size_t limit = to < at ? at : order.size();
        std::size_t count = 0;
        std::uint64_t other = 0;
        while (to + count < limit && other < bytes) {
            const std::uint64_t next = units_[order[to + count]].bytes;
            if (count > 0 && other + next > bytes && other + next - bytes > bytes - other) break;
            other += next;
            ++count;
        }
        if (count == 0) return;
        const std::size_t first = std::min(at, to);
        const std::size_t first_length = at < to ? length : count;
        const std::size_t second = std::max(at, to);
        const std::size_t second_length = at < to ? count : length;
        const auto begin = order.begin() + static_cast<std::ptrdiff_t>(first);
        const auto middle = order.begin() + static_cast<std::ptrdiff_t>(second);
        const auto end = middle + static_cast<std::ptrdiff_t>(second_length);
        // A M B -> B M A
        std::rotate(begin, middle, end);
        std::rotate(begin + static_cast<std::ptrdiff_t>(second_length),
                    begin + static_cast<std::ptrdiff_t>(second_length + first_length), end);
    }

    // Near `at`, at most a page or so away.
    [[nodiscard]] std::size_t near(std::size_t at) {
        const std::size_t reach = 1 + random_.below(12);
        return random_.below(2) == 0 ? at - std::min(at, reach) : std::min(at + reach, best_.size() - 1);
    }

    void change(Order& order) {
        const auto size = static_cast<std::uint32_t>(order.size());
        const std::uint32_t kind = random_.below(20);
        if (kind < 14 && !pairs_.empty()) {
            const Pair pair = pairs_.draw(random_);
            // Either one goes to the other.
            const bool turned = random_.below(3) == 0;
            const std::size_t at = position_[turned ? pair.b : pair.a];
            const std::size_t target = position_[turned ? pair.a : pair.b];
            if (kind < 9) {
                const std::size_t to = near(target);
                if (to != at) exchange(order, at, to);
                return;
            }
            const std::size_t count = length_from(at);
            if (target >= at && target < at + count) return;
            std::size_t to = target + random_.below(2);
            if (to > at) to -= std::min(count, to - at);
            move_chunk(order, at, count, std::min<std::size_t>(to, order.size() - count));
        } else if (kind < 17) {
            const std::size_t at = random_.below(size);
            const std::size_t to = random_.below(2) == 0 ? near(at) : random_.below(size);
            if (to != at) exchange(order, at, to);
        } else {
            const std::size_t first = random_.below(size);
            const std::size_t count = length_from(first);
            const std::size_t room = order.size() - count;
            const std::size_t to = random_.below(2) == 0
                                       ? std::min(near(first), room)
                                       : random_.below(static_cast<std::uint32_t>(room + 1));
            move_chunk(order, first, count, to);
        }
    }

    void judge_all() {
        if (judges_.size() == 1) {
            for (std::size_t i = 0; i < kCandidates; ++i) costs_[i] = judges_[0]->cost(candidates_[i]);
            return;
        }
        std::atomic<std::size_t> next{0};
        std::vector<std::jthread> threads;
        for (const auto& judge : judges_)
            threads.emplace_back([&, judge = judge.get()] {
                for (std::size_t i = next++; i < kCandidates; i = next++)
                    costs_[i] = judge->cost(candidates_[i]);
            });
    }

    std::span<const std::unique_ptr<Judge>> judges_;
    const Units& units_;
    const SearchOptions& options_;
    machine::Random random_;
    Order best_;
    std::vector<std::uint32_t> position_;
    PairChooser pairs_;
    std::vector<Order> candidates_;
    std::vector<double> costs_;
};

}  // namespace

Judge::Judge(const Image& image, const Units& units, Linker linker, const machine::Machine& machine,
             std::vector<const Trace*> traces, std::vector<double> weights)
    : units_(units),
      placer_(image, units, linker),
      linked_(as_linked(image)),
      traces_(std::move(traces)),
      weights_(std::move(weights)),
      misses_(traces_.size()) {
    evaluators_.reserve(traces_.size());
    for (const Trace* trace : traces_) evaluators_.emplace_back(*trace, machine);
}

double Judge::cost(std::span<const std::uint32_t> order) {
    placer_.place(order, placement_);
    double sum = 0;
    for (std::size_t i = 0; i < evaluators_.size(); ++i) {
        misses_[i] = evaluators_[i].misses(placement_);
        sum += weights_[i] * static_cast<double>(misses_[i].total());
    }
    return sum;
}

double Judge::cost_as_linked() {
    double sum = 0;
    for (std::size_t i = 0; i < evaluators_.size(); ++i) {
        misses_[i] = evaluators_[i].misses(linked_);
        sum += weights_[i] * static_cast<double>(misses_[i].total());
    }
    return sum;
}

std::uint64_t Judge::elements() const {
    std::uint64_t sum = 0;
    for (const Trace* trace : traces_) sum += trace->size();
    return sum;
}

void Judge::relate(std::span<const std::uint32_t> order,
                   const std::function<void(std::uint32_t, std::uint32_t, double)>& relate) {
    placer_.place(order, placement_);
    for (std::size_t i = 0; i < evaluators_.size(); ++i) {
        Evaluator& evaluator = evaluators_[i];
        const Trace& trace = *traces_[i];
        std::deque<std::uint32_t> recent;
        const auto unit_of = [&](std::uint32_t visit) -> std::optional<std::uint32_t> {
            const std::uint32_t piece = trace.visits[visit].piece;
            if (piece == kNoPiece) return std::nullopt;
            return units_.of_piece(piece);
        };
        evaluator.on_looked_up = [&](std::uint32_t visit, bool missed) {
            const auto unit = unit_of(visit);
            if (!unit) return;
            if (missed) {
                double weight = weights_[i];
                for (const std::uint32_t other : recent)
                    if (other != *unit) {
                        relate(*unit, other, weight);
                        weight *= 0.8;
                    }
            }
            if (const auto known = std::find(recent.begin(), recent.end(), *unit); known != recent.end()) {
                recent.erase(known);
            } else if (recent.size() >= kRecentUnits) {
                recent.pop_back();
            }
            recent.push_front(*unit);
        };
        misses_[i] = evaluator.misses(placement_);
        evaluator.on_looked_up = nullptr;
    }
}

SearchResult search(std::span<const std::unique_ptr<Judge>> judges, Order start, const Units& units,
                    const SearchOptions& options) {
    return Search(judges, std::move(start), units, options).run();
}

}  // namespace tlbscope::layout
