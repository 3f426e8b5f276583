// Learns an order from recordings: every method asked for, all judged by the same replay, the best kept.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "layout/bound.h"
#include "layout/evaluate.h"
#include "layout/image.h"
#include "layout/linker.h"
#include "layout/methods.h"
#include "layout/trace.h"
#include "machine/machine.h"
#include "recording/recording.h"

namespace tlbscope::layout {

enum class Method : std::uint8_t {
    kAsLinked,
    kDensity,
    kFirstTouch,
    kPettisHansen,
    kC3Page,
    kC3,
    kCdsort,
    kTemporal,
    kPartition,
    kSearch,
};
inline constexpr std::size_t kMethods = 10;
[[nodiscard]] std::string_view name_of(Method method);
[[nodiscard]] std::optional<Method> method_named(std::string_view name);

struct OrderingOptions {
    std::vector<Method> methods;  // search needs no other: it makes those that it starts from
    std::uint64_t seed = 1;
    std::uint64_t budget = 0;  // trace elements that a search may replay
    unsigned threads = 1;
    // What is being done, how much of it is done (0 to 1); false: stop with the best so far.
    std::function<bool(std::string_view, double)> progress;
};

struct MethodResult {
    Method method = Method::kAsLinked;
    Order order;
    double cost = 0;  // weighted misses of the training recordings
    std::vector<Misses> trained;
    std::vector<Misses> tested;
};

// Touched pieces that stay, for one reason, under the chosen order.
struct Stayed {
    std::uint64_t pieces = 0;
    std::uint64_t touched_bytes = 0;
    std::uint64_t misses = 0;
    std::vector<std::pair<std::string, std::uint64_t>> most;  // name and misses, the most first
};

struct Ordering {
    std::vector<MethodResult> methods;  // as asked
    std::size_t chosen = 0;
    Graph graph;
    std::uint64_t tried = 0;  // orders that the search replayed
    bool stopped = false;     // before the search's budget was spent

    // Of all training recordings together.
    std::uint64_t touched_pieces = 0;
    std::uint64_t movable_pieces = 0;
    std::uint64_t touched_bytes = 0;       // of all touched pieces of the image, bytes touched
    std::uint64_t movable_bytes = 0;       // of touched pieces that move: bytes touched
    std::uint64_t movable_size = 0;        // the same: their size
    std::uint64_t cold_bytes_inside = 0;   // bytes never touched within touched pieces
    std::array<Stayed, kStays> stayed;     // by Stays; that of kMoves is empty
    std::uint64_t other_misses = 0;        // of other code, under the chosen order
    std::uint64_t image_pages_linked = 0;  // of the first training recording
    std::uint64_t image_pages = 0;
    std::vector<Bound> bounds;  // by training recording: fewest misses of any order
};

// `traces` to learn from, with as many weights, and `tests` to try the results on. Fails when no touched
// piece can move.
[[nodiscard]] Result<Ordering> make_ordering(const Image& image, const Units& units, Linker linker,
                                             const machine::Machine& machine,
                                             std::span<const Trace* const> traces,
                                             std::span<const double> weights,
                                             std::span<const Trace* const> tests,
                                             const OrderingOptions& options);

}  // namespace tlbscope::layout
