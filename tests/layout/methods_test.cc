#include "layout/methods.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "machine/random.h"
#include "support/traces.h"

namespace tlbscope::layout {
namespace {

Node node(std::uint32_t unit, std::uint64_t bytes, double entries, double references) {
    return {
        .unit = unit, .bytes = bytes, .entries = entries, .references = references, .first_seen = unit + 1U};
}

Graph chain() {
    Graph graph;
    // 0 calls 1 a hundred times, 1 calls 2 ninety times; 3 is called by 0 once; 4 stands alone and is
    // hottest.
    graph.nodes = {node(0, 100, 10, 500), node(1, 100, 100, 900), node(2, 100, 90, 800), node(3, 100, 1, 10),
                   node(4, 10, 200, 9000)};
    graph.edges = {{.from = 0, .to = 1, .offset = 0, .count = 100},
                   {.from = 0, .to = 3, .offset = 0, .count = 1},
                   {.from = 1, .to = 2, .offset = 0, .count = 90}};
    graph.affinity = {{.from = 0, .to = 1, .offset = 0, .count = 100},
                      {.from = 1, .to = 2, .offset = 0, .count = 90}};
    for (auto& parts : graph.parts) parts = {{0, 1}, {0, 1}, {0, 1}, {2}, {0, 1, 2}};
    return graph;
}

TEST(Methods, Density) { EXPECT_EQ(by_density(chain()), (Order{4, 1, 2, 0, 3})); }
TEST(Methods, FirstTouch) { EXPECT_EQ(by_first_touch(chain()), (Order{0, 1, 2, 3, 4})); }

TEST(Methods, C3AppendsCalleesToTheirHeaviestCallers) {
    EXPECT_EQ(c3(chain(), 1 << 20), (Order{4, 0, 1, 2, 3}));
    // A cap of two functions: 1 joins 0 first (it is denser than 2), 2 stays apart.
    EXPECT_EQ(c3(chain(), 200), (Order{4, 2, 0, 1, 3}));
}

TEST(Methods, PettisHansenPutsEndsOfTheHeaviestEdgeTogether) {
    // 0 1, then 0 1 2; for the edge from 0 to 3 the chain turns round.
    EXPECT_EQ(pettis_hansen(chain()), (Order{4, 2, 1, 0, 3}));
}

TEST(Methods, CdsortKeepsCallersBeforeCallees) {
    const Order order = cdsort(chain());
    const auto at = [&](std::uint32_t unit) {
        return std::find(order.begin(), order.end(), unit) - order.begin();
    };
    EXPECT_EQ(order.size(), 5U);
    EXPECT_EQ(at(1) - at(0), 1);
    EXPECT_EQ(at(2) - at(1), 1);
}

TEST(Methods, PartitionKeepsWhatIsUsedTogetherTogether) {
    Graph graph;
    // Units 0, 2, 4 run in one part and 1, 3, 5 in the other; a page holds three.
    for (std::uint32_t i = 0; i < 6; ++i) graph.nodes.push_back(node(i, 1000, 1, 1));
    for (auto& parts : graph.parts) parts = {{0}, {1}, {0}, {1}, {0}, {1}};
    const Order order = partition(graph, 4096, 0);
    std::set<std::uint32_t> first(order.begin(), order.begin() + 3);
    EXPECT_TRUE(first == (std::set<std::uint32_t>{0, 2, 4}) || first == (std::set<std::uint32_t>{1, 3, 5}));
}

// Whatever the graph: each touched unit once.
TEST(Methods, EachIsAPermutation) {
    machine::Random random(reference::seed());
    for (int round = 0; round < 50; ++round) {
        Graph graph;
        const std::uint32_t size = 1 + random.below(40);
        for (auto& parts : graph.parts) parts.resize(size);
        for (std::uint32_t i = 0; i < size; ++i) {
            graph.nodes.push_back(node(i * 3, 1 + random.below(5000), random.below(50), random.below(1000)));
            for (auto& parts : graph.parts)
                for (std::uint32_t part = 0; part < 10; ++part)
                    if (random.below(3) == 0) parts[i].push_back(part);
        }
        for (std::uint32_t i = 0; i < size; ++i)
            for (std::uint32_t k = random.below(4); k > 0; --k) {
                const std::uint32_t to = random.below(size);
                if (to == i) continue;
                graph.edges.push_back(
                    {.from = i, .to = to, .offset = random.below(64), .count = 1.0 + random.below(90)});
                graph.affinity.push_back({.from = std::min(i, to),
                                          .to = std::max(i, to),
                                          .offset = 0,
                                          .count = 1.0 + random.below(90)});
            }
        Order all;
        for (const Node& n : graph.nodes) all.push_back(n.unit);
        for (Order order :
             {by_density(graph), by_first_touch(graph), pettis_hansen(graph), c3(graph, 4096),
              c3(graph, 1 << 20), cdsort(graph), temporal(graph, 4096), partition(graph, 4096, 1)}) {
            std::sort(order.begin(), order.end());
            ASSERT_EQ(order, all);
        }
    }
}

}  // namespace
}  // namespace tlbscope::layout
