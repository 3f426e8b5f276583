#include "layout/methods.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "explain/flat_map.h"

namespace tlbscope::layout {

namespace {

struct Pair {
    std::uint32_t a = 0;
    std::uint32_t b = 0;
    friend bool operator==(const Pair&, const Pair&) = default;
    [[nodiscard]] std::uint64_t hash() const { return (std::uint64_t{a} << 32 | b) * 0xbf58476d1ce4e5b9; }
};

// Visits of the last `window` bytes of distinct units, the latest first.
class Recent {
  public:
    explicit Recent(std::uint64_t window) : window_(window) {}

    // The unit was visited: calls `relate` for each unit visited since its last visit, if that is still
    // known.
    template <class Relate>
    void visit(std::uint32_t node, std::uint64_t bytes, Relate relate) {
        const auto known =
            std::find_if(list_.begin(), list_.end(), [&](const Entry& e) { return e.node == node; });
        if (known != list_.end()) {
            for (auto at = list_.begin(); at != known; ++at) relate(at->node);
            bytes_ -= known->bytes;
            list_.erase(known);
        }
        list_.push_front({node, bytes});
        bytes_ += bytes;
        while (list_.size() > 1 && (bytes_ > window_ || list_.size() > kMost)) {
            bytes_ -= list_.back().bytes;
            list_.pop_back();
        }
    }

  private:
    static constexpr std::size_t kMost = 32;
    struct Entry {
        std::uint32_t node;
        std::uint64_t bytes;
    };
    std::deque<Entry> list_;
    std::uint64_t window_;
    std::uint64_t bytes_ = 0;
};

double density(double weight, double bytes) { return bytes == 0 ? 0 : weight / bytes; }

// Chains of nodes, joined until nothing can be gained.
struct Cluster {
    std::vector<std::uint32_t> nodes;
    double weight = 0;
    double bytes = 0;
    std::uint64_t first_seen = ~std::uint64_t{0};
};

std::vector<Cluster> one_each(const Graph& graph) {
    std::vector<Cluster> clusters(graph.nodes.size());
    for (std::uint32_t i = 0; i < clusters.size(); ++i)
        clusters[i] = {.nodes = {i},
                       .weight = graph.nodes[i].entries,
                       .bytes = static_cast<double>(graph.nodes[i].bytes),
                       .first_seen = graph.nodes[i].first_seen};
    return clusters;
}

void append(Cluster& to, Cluster& from) {
    to.nodes.insert(to.nodes.end(), from.nodes.begin(), from.nodes.end());
    to.weight += from.weight;
    to.bytes += from.bytes;
    to.first_seen = std::min(to.first_seen, from.first_seen);
    from.nodes.clear();
}

// Densest first; ties in order of first touch, so that the result depends on the recording only.
Order by_density_of_clusters(const Graph& graph, std::vector<Cluster> clusters) {
    std::erase_if(clusters, [](const Cluster& c) { return c.nodes.empty(); });
    std::stable_sort(clusters.begin(), clusters.end(), [](const Cluster& a, const Cluster& b) {
        const double da = density(a.weight, a.bytes);
        const double db = density(b.weight, b.bytes);
        return da != db ? da > db : a.first_seen < b.first_seen;
    });
    Order order;
    for (const Cluster& cluster : clusters)
        for (const std::uint32_t node : cluster.nodes) order.push_back(graph.nodes[node].unit);
    return order;
}

std::vector<Edge> undirected(const Graph& graph) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, double> sums;
    for (const Edge& edge : graph.edges) sums[std::minmax(edge.from, edge.to)] += edge.count;
    std::vector<Edge> edges;
    for (const auto& [ends, count] : sums)
        edges.push_back({.from = ends.first, .to = ends.second, .offset = 0, .count = count});
    return edges;
}

std::vector<Edge> directed(const Graph& graph) {
    std::map<std::pair<std::uint32_t, std::uint32_t>, double> sums;
    for (const Edge& edge : graph.edges) sums[{edge.from, edge.to}] += edge.count;
    std::vector<Edge> edges;
    for (const auto& [ends, count] : sums)
        edges.push_back({.from = ends.first, .to = ends.second, .offset = 0, .count = count});
    return edges;
}

}  // namespace

Graph graph_of(const Image& image, const Units& units, std::span<const Trace* const> traces,
               std::span<const double> weights, std::uint64_t reach) {
    Graph graph;
    std::vector<std::uint32_t> node_of(units.size(), kNoPiece);
    // First touches: recording after recording.
    std::vector<std::tuple<std::size_t, std::uint64_t, std::uint32_t>> seen;
    std::vector<bool> listed(units.size());
    for (std::size_t t = 0; t < traces.size(); ++t) {
        const std::size_t before = seen.size();
        for (std::uint32_t piece = 0; piece < image.pieces.size(); ++piece) {
            const auto unit = units.of_piece(piece);
            if (!unit || traces[t]->uses[piece].first_seen == 0) continue;
            seen.emplace_back(t, traces[t]->uses[piece].first_seen, *unit);
        }
        std::sort(seen.begin() + static_cast<std::ptrdiff_t>(before), seen.end());
    }
    for (const auto& [t, when, unit] : seen) {
        if (listed[unit]) continue;
        listed[unit] = true;
        node_of[unit] = static_cast<std::uint32_t>(graph.nodes.size());
        graph.nodes.push_back({.unit = unit,
                               .bytes = units[unit].bytes,
                               .entries = 0,
                               .references = 0,
                               .first_seen = graph.nodes.size() + 1});
    }
    const auto node_of_piece = [&](std::uint32_t piece) -> std::uint32_t {
        const auto unit = units.of_piece(piece);
        return unit ? node_of[*unit] : kNoPiece;
    };
    std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>, double> edges;
    explain::FlatMap<Pair, double> affinity;
    std::array<std::uint32_t, kPartShares.size()> part{};
    for (auto& parts : graph.parts) parts.resize(graph.nodes.size());
    for (std::size_t t = 0; t < traces.size(); ++t) {
        const Trace& trace = *traces[t];
        for (std::uint32_t piece = 0; piece < image.pieces.size(); ++piece) {
            const std::uint32_t node = node_of_piece(piece);
            if (node == kNoPiece) continue;
            graph.nodes[node].entries += weights[t] * static_cast<double>(trace.uses[piece].entries);
            graph.nodes[node].references += weights[t] * static_cast<double>(trace.uses[piece].references);
        }
        for (const Call& call : trace.calls) {
            const std::uint32_t from = node_of_piece(call.from);
            const std::uint32_t to = node_of_piece(call.to);
            if (from == kNoPiece || to == kNoPiece || from == to) continue;
            edges[{from, to, call.from_offset}] += weights[t] * static_cast<double>(call.count);
        }
        Recent recent(2 * trace.image_shift.bytes());
        std::array<std::uint64_t, kPartShares.size()> in_part{};
        const auto visit = [&](std::uint32_t element) {
            const Visit& v = trace.visits[element];
            if (v.piece == kNoPiece) return;
            const std::uint32_t node = node_of_piece(v.piece);
            if (node == kNoPiece) return;
            for (std::size_t share = 0; share < kPartShares.size(); ++share) {
                auto& parts = graph.parts[share][node];
                if (!parts.empty() && parts.back() == part[share]) continue;
                if (in_part[share] >= reach / kPartShares[share]) {
                    in_part[share] = 0;
                    ++part[share];
                }
                parts.push_back(part[share]);
                in_part[share] += graph.nodes[node].bytes;
            }
            recent.visit(node, graph.nodes[node].bytes, [&](std::uint32_t other) {
                affinity[{std::min(node, other), std::max(node, other)}] += weights[t];
            });
        };
        // A loop's passes are alike: two tell the relations, whatever their number.
        const auto walk = [&](auto& self, std::span<const std::uint32_t> elements) -> void {
            for (const std::uint32_t element : elements) {
                if (element < kChange) {
                    visit(element);
                } else if ((element & kLoop) != 0) {
                    const Loop& loop = trace.loops[element & ~kLoop];
                    for (int pass = 0; pass < 2; ++pass)
                        self(self, std::span(trace.bodies).subspan(loop.first, loop.length));
                }
            }
        };
        for (const CpuTrace& cpu : trace.cpus) {
            walk(walk, cpu.elements);
            for (std::uint32_t& number : part) ++number;
            in_part = {};
        }
    }
    for (const auto& [key, count] : edges)
        graph.edges.push_back(
            {.from = std::get<0>(key), .to = std::get<1>(key), .offset = std::get<2>(key), .count = count});
    affinity.for_each([&](const Pair& pair, double count) {
        graph.affinity.push_back({.from = pair.a, .to = pair.b, .offset = 0, .count = count});
    });
    std::sort(graph.affinity.begin(), graph.affinity.end(),
              [](const Edge& a, const Edge& b) { return std::tie(a.from, a.to) < std::tie(b.from, b.to); });
    return graph;
}

Order by_density(const Graph& graph) {
    std::vector<std::uint32_t> nodes(graph.nodes.size());
    std::iota(nodes.begin(), nodes.end(), 0U);
    std::stable_sort(nodes.begin(), nodes.end(), [&](std::uint32_t a, std::uint32_t b) {
        return density(graph.nodes[a].references, static_cast<double>(graph.nodes[a].bytes)) >
               density(graph.nodes[b].references, static_cast<double>(graph.nodes[b].bytes));
    });
    Order order;
    for (const std::uint32_t node : nodes) order.push_back(graph.nodes[node].unit);
    return order;
}

Order by_first_touch(const Graph& graph) {
    Order order;
    for (const Node& node : graph.nodes) order.push_back(node.unit);
    return order;
}

Order pettis_hansen(const Graph& graph) {
    constexpr double kLargestCluster = 1 << 20;
    std::vector<Cluster> clusters = one_each(graph);
    std::vector<std::uint32_t> home(clusters.size());
    std::iota(home.begin(), home.end(), 0U);
    std::vector<Edge> edges = undirected(graph);
    std::map<std::pair<std::uint32_t, std::uint32_t>, double> between;
    for (const Edge& edge : edges) between[{edge.from, edge.to}] = edge.count;
    const auto weight = [&](std::uint32_t a, std::uint32_t b) {
        const auto known = between.find(std::minmax(a, b));
        return known == between.end() ? 0.0 : known->second;
    };
    // Edges between clusters, heaviest first; the lists are merged with the clusters.
    std::vector<std::map<std::uint32_t, double>> to(clusters.size());
    using Entry = std::tuple<double, std::uint32_t, std::uint32_t>;  // -weight, clusters
    std::set<Entry> queue;
    for (const Edge& edge : edges) {
        to[edge.from][edge.to] = edge.count;
        to[edge.to][edge.from] = edge.count;
        queue.emplace(-edge.count, edge.from, edge.to);
    }
    while (!queue.empty()) {
        const auto [negative, a, b] = *queue.begin();
        queue.erase(queue.begin());
        Cluster& left = clusters[a];
        Cluster& right = clusters[b];
        if (left.bytes + right.bytes > kLargestCluster) continue;
        // The ends that the heaviest edge joins meet.
        const double end_start = weight(left.nodes.back(), right.nodes.front());
        const double end_end = weight(left.nodes.back(), right.nodes.back());
        const double start_start = weight(left.nodes.front(), right.nodes.front());
        const double start_end = weight(left.nodes.front(), right.nodes.back());
        const double best = std::max({end_start, end_end, start_start, start_end});
        if (best == end_start) {
        } else if (best == end_end) {
            std::reverse(right.nodes.begin(), right.nodes.end());
        } else if (best == start_start) {
            std::reverse(left.nodes.begin(), left.nodes.end());
        } else {
            std::swap(left.nodes, right.nodes);
        }
        append(left, right);
        for (const auto& [other, count] : to[b]) {
            queue.erase({-count, std::min(b, other), std::max(b, other)});
            to[other].erase(b);
            if (other == a) continue;
            if (const auto known = to[a].find(other); known != to[a].end())
                queue.erase({-known->second, std::min(a, other), std::max(a, other)});
            const double sum = (to[a][other] += count);
            to[other][a] = sum;
            queue.emplace(-sum, std::min(a, other), std::max(a, other));
        }
        to[b].clear();
    }
    return by_density_of_clusters(graph, std::move(clusters));
}

Order c3(const Graph& graph, std::uint64_t cap) {
    constexpr double kLeastShareOfCalls = 0.1;
    constexpr double kMostThinning = 8;
    std::vector<Cluster> clusters = one_each(graph);
    std::vector<std::uint32_t> home(clusters.size());
    std::iota(home.begin(), home.end(), 0U);
    std::vector<double> called(clusters.size(), 0);
    std::vector<std::pair<double, std::uint32_t>> heaviest(clusters.size(), {0, kNoPiece});
    for (const Edge& edge : directed(graph)) {
        called[edge.to] += edge.count;
        if (edge.count > heaviest[edge.to].first) heaviest[edge.to] = {edge.count, edge.from};
    }
    std::vector<std::uint32_t> nodes(clusters.size());
    std::iota(nodes.begin(), nodes.end(), 0U);
    std::stable_sort(nodes.begin(), nodes.end(), [&](std::uint32_t a, std::uint32_t b) {
        return density(clusters[a].weight, clusters[a].bytes) >
               density(clusters[b].weight, clusters[b].bytes);
    });
    for (const std::uint32_t node : nodes) {
        const auto [calls, caller] = heaviest[node];
        if (caller == kNoPiece || calls <= kLeastShareOfCalls * called[node]) continue;
        Cluster& to = clusters[home[caller]];
        Cluster& from = clusters[home[node]];
        if (&to == &from || to.bytes + from.bytes > static_cast<double>(cap)) continue;
        if (density(to.weight + from.weight, to.bytes + from.bytes) <
            density(to.weight, to.bytes) / kMostThinning)
            continue;
        const std::uint32_t target = home[caller];
        for (const std::uint32_t moved : from.nodes) home[moved] = target;
        append(to, from);
    }
    return by_density_of_clusters(graph, std::move(clusters));
}

namespace {

// Constants of LLVM's CDSortConfig.
constexpr double kCacheEntries = 16;
constexpr double kCacheBytes = 2048;
constexpr std::size_t kLongestChain = 128;
constexpr double kDistancePower = 0.25;
constexpr double kFrequencyScale = 0.25;

class CacheDirectedSort {
  public:
    explicit CacheDirectedSort(const Graph& graph)
        : graph_(graph), chains_(one_each(graph)), home_(chains_.size()) {
        std::iota(home_.begin(), home_.end(), 0U);
        for (const Node& node : graph.nodes) total_ += node.entries;
        jumps_.resize(chains_.size());
        for (std::uint32_t i = 0; i < graph.edges.size(); ++i) {
            const Edge& edge = graph.edges[i];
            jumps_[std::min(edge.from, edge.to)][std::max(edge.from, edge.to)].push_back(i);
            if (edge.from != edge.to)
                jumps_[std::max(edge.from, edge.to)][std::min(edge.from, edge.to)].push_back(i);
        }
        offset_.resize(chains_.size());
    }

    Order sorted() {
        std::set<std::tuple<double, std::uint32_t, std::uint32_t>> queue;  // -gain, chains
        std::map<std::pair<std::uint32_t, std::uint32_t>, double> gains;
        const auto offer = [&](std::uint32_t a, std::uint32_t b) {
            const auto key = std::minmax(a, b);
            if (const auto known = gains.find(key); known != gains.end()) {
                queue.erase({-known->second, key.first, key.second});
                gains.erase(known);
            }
            if (chains_[a].nodes.size() + chains_[b].nodes.size() > kLongestChain) return;
            const double gain = gain_of(key.first, key.second).first;
            if (gain <= 0) return;
            gains[key] = gain;
            queue.emplace(-gain, key.first, key.second);
        };
        for (std::uint32_t a = 0; a < chains_.size(); ++a)
            for (const auto& [b, list] : jumps_[a])
                if (a < b) offer(a, b);
        while (!queue.empty()) {
            const auto [negative, a, b] = *queue.begin();
            queue.erase(queue.begin());
            gains.erase({a, b});
            const bool swapped = gain_of(a, b).second;
            if (swapped) std::swap(chains_[a].nodes, chains_[b].nodes);
            append(chains_[a], chains_[b]);
            for (const std::uint32_t node : chains_[a].nodes) home_[node] = a;
            auto moved = std::move(jumps_[b]);
            jumps_[b].clear();
            for (auto& [other, list] : moved) {
                jumps_[other].erase(b);
                if (const auto known = gains.find(std::minmax(b, other)); known != gains.end()) {
                    const auto key = std::minmax(b, other);
                    queue.erase({-known->second, key.first, key.second});
                    gains.erase(known);
                }
                if (other == a || other == b) continue;
                auto& merged = jumps_[a][other];
                merged.insert(merged.end(), list.begin(), list.end());
                jumps_[other][a] = merged;
            }
            for (const auto& [other, list] : jumps_[a])
                if (other != a) offer(a, other);
        }
        return by_density_of_clusters(graph_, std::move(chains_));
    }

  private:
    [[nodiscard]] double misses(double weight, double bytes) const {
        const double in_page = density(weight, bytes) * kCacheBytes;
        if (in_page >= total_) return 0;
        return weight * std::pow(1 - in_page / total_, kCacheEntries);
    }

    // What putting `a` before `b` (or, second: `b` before `a`) gains.
    std::pair<double, bool> gain_of(std::uint32_t a, std::uint32_t b) {
        const Cluster& left = chains_[a];
        const Cluster& right = chains_[b];
        const double fewer = misses(left.weight, left.bytes) + misses(right.weight, right.bytes) -
                             misses(left.weight + right.weight, left.bytes + right.bytes);
        const double before = closeness(a, b, left, right);
        const double behind = closeness(a, b, right, left);
        const double gain = std::max(before, behind) + kFrequencyScale * fewer;
        return {gain / std::max(1.0, std::min(left.bytes, right.bytes)), behind > before};
    }

    double closeness(std::uint32_t a, std::uint32_t b, const Cluster& first, const Cluster& second) {
        double at = 0;
        for (const Cluster* chain : {&first, &second})
            for (const std::uint32_t node : chain->nodes) {
                offset_[node] = at;
                at += static_cast<double>(graph_.nodes[node].bytes);
            }
        double sum = 0;
        const auto known = jumps_[a].find(b);
        if (known == jumps_[a].end()) return 0;
        for (const std::uint32_t i : known->second) {
            const Edge& edge = graph_.edges[i];
            const double distance = std::abs(offset_[edge.from] + edge.offset - offset_[edge.to]);
            if (distance > 0) sum += edge.count * std::pow(distance, -kDistancePower);
        }
        return sum;
    }

    const Graph& graph_;
    std::vector<Cluster> chains_;
    std::vector<std::uint32_t> home_;
    std::vector<std::map<std::uint32_t, std::vector<std::uint32_t>>>
        jumps_;  // by chain: other chain -> edges
    std::vector<double> offset_;
    double total_ = 0;
};

}  // namespace

Order cdsort(const Graph& graph) { return CacheDirectedSort(graph).sorted(); }

Order temporal(const Graph& graph, std::uint64_t page) {
    std::vector<Cluster> clusters = one_each(graph);
    std::vector<std::uint32_t> home(clusters.size());
    std::iota(home.begin(), home.end(), 0U);
    std::vector<Edge> edges = graph.affinity;
    std::stable_sort(edges.begin(), edges.end(),
                     [](const Edge& a, const Edge& b) { return a.count > b.count; });
    const auto join = [&](std::uint64_t cap) {
        for (const Edge& edge : edges) {
            const std::uint32_t a = home[edge.from];
            const std::uint32_t b = home[edge.to];
            if (a == b || clusters[a].bytes + clusters[b].bytes > static_cast<double>(cap)) continue;
            for (const std::uint32_t node : clusters[b].nodes) home[node] = a;
            append(clusters[a], clusters[b]);
        }
    };
    join(page);
    // Pages that are used together lie together, so that a page boundary within a function costs least.
    join(16 * page);
    for (Cluster& cluster : clusters) {
        cluster.weight = 0;
        for (const std::uint32_t node : cluster.nodes) cluster.weight += graph.nodes[node].references;
    }
    return by_density_of_clusters(graph, std::move(clusters));
}

namespace {

// Splits nodes in two halves of equal bytes so that few parts of the run use both, then each half again.
class Partition {
  public:
    Partition(const Graph& graph, std::uint64_t page, std::size_t share) : graph_(graph), page_(page) {
        // More parts than this tell nothing new and cost time: every so many-th is kept.
        constexpr std::uint32_t kMostParts = 8192;
        std::uint32_t parts = 0;
        for (const auto& list : graph.parts[share])
            if (!list.empty()) parts = std::max(parts, list.back() + 1);
        const std::uint32_t step = parts / kMostParts + 1;
        uses_.resize(graph.nodes.size());
        for (std::size_t node = 0; node < uses_.size(); ++node)
            for (const std::uint32_t part : graph.parts[share][node])
                if (part % step == 0) uses_[node].push_back(part / step);
        left_.resize(parts / step + 1);
        right_.resize(parts / step + 1);
    }

    Order order() {
        std::vector<std::uint32_t> nodes(graph_.nodes.size());
        std::iota(nodes.begin(), nodes.end(), 0U);
        split(nodes, 0);
        Order order;
        for (const std::uint32_t node : nodes) order.push_back(graph_.nodes[node].unit);
        return order;
    }

  private:
    void split(std::span<std::uint32_t> nodes, int depth) {
        std::uint64_t bytes = 0;
        for (const std::uint32_t node : nodes) bytes += graph_.nodes[node].bytes;
        if (nodes.size() < 2 || bytes <= page_ / 2 || depth > 24) return;
        // The first half by bytes, in order of first touch.
        std::sort(nodes.begin(), nodes.end());
        std::size_t middle = 0;
        for (std::uint64_t sum = 0; middle + 1 < nodes.size() && sum < bytes / 2; ++middle)
            sum += graph_.nodes[nodes[middle]].bytes;
        middle = std::max<std::size_t>(middle, 1);
        constexpr int kRounds = 40;
        for (int round = 0; round < kRounds; ++round)
            if (!improve(nodes, middle)) break;
        split(nodes.first(middle), depth + 1);
        split(nodes.subspan(middle), depth + 1);
    }

    // A part used by `a` functions of one half and `b` of the other.
    static double cost(double a, double b) { return -(a * std::log2(a + 1) + b * std::log2(b + 1)); }

    bool improve(std::span<std::uint32_t> nodes, std::size_t middle) {
        for (auto* side : {&left_, &right_}) std::fill(side->begin(), side->end(), 0U);
        for (std::size_t i = 0; i < nodes.size(); ++i)
            for (const std::uint32_t part : uses_[nodes[i]]) ++(i < middle ? left_ : right_)[part];
        std::vector<std::pair<double, std::size_t>> gains[2];
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            double gain = 0;
            const auto& here = i < middle ? left_ : right_;
            const auto& there = i < middle ? right_ : left_;
            for (const std::uint32_t part : uses_[nodes[i]])
                gain += cost(here[part], there[part]) - cost(here[part] - 1.0, there[part] + 1.0);
            gains[i < middle ? 0 : 1].emplace_back(-gain, i);
        }
        for (auto& list : gains) std::sort(list.begin(), list.end());
        bool any = false;
        for (std::size_t i = 0; i < std::min(gains[0].size(), gains[1].size()); ++i) {
            if (gains[0][i].first + gains[1][i].first >= 0) break;
            std::swap(nodes[gains[0][i].second], nodes[gains[1][i].second]);
            any = true;
        }
        return any;
    }

    const Graph& graph_;
    std::uint64_t page_;
    std::vector<std::vector<std::uint32_t>> uses_;  // by node: parts
    std::vector<std::uint32_t> left_;
    std::vector<std::uint32_t> right_;
};

}  // namespace

Order partition(const Graph& graph, std::uint64_t page, std::size_t share) {
    return Partition(graph, page, share).order();
}

}  // namespace tlbscope::layout
