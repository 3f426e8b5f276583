#include "layout/ordering.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "layout/search.h"

namespace tlbscope::layout {

namespace {

constexpr std::array<std::string_view, kMethods> kNames{
    "as-linked", "density", "first-touch", "pettis-hansen", "c3-4k",
    "c3",        "cdsort",  "temporal",    "partition",     "search"};
constexpr std::uint64_t kPageCap = 4096;
constexpr std::uint64_t kWideCap = 1 << 20;

std::size_t variants_of(Method method) { return method == Method::kPartition ? kPartShares.size() : 1; }

Order order_of(Method method, const Graph& graph, std::uint64_t page, std::size_t variant) {
    switch (method) {
        case Method::kDensity:
            return by_density(graph);
        case Method::kFirstTouch:
            return by_first_touch(graph);
        case Method::kPettisHansen:
            return pettis_hansen(graph);
        case Method::kC3Page:
            return c3(graph, kPageCap);
        case Method::kC3:
            return c3(graph, kWideCap);
        case Method::kCdsort:
            return cdsort(graph);
        case Method::kTemporal:
            return temporal(graph, page);
        case Method::kPartition:
            return partition(graph, page, variant);
        case Method::kAsLinked:
        case Method::kSearch:
            break;
    }
    return {};
}

// Bytes of each piece that any of the traces touched; the largest of them where several do, since what they
// share is not known.
std::vector<std::uint64_t> touched_bytes(const Image& image, std::span<const Trace* const> traces) {
    std::vector<std::uint64_t> bytes(image.pieces.size());
    for (const Trace* trace : traces)
        for (std::size_t i = 0; i < bytes.size(); ++i)
            bytes[i] = std::max(bytes[i], trace->uses[i].touched_bytes);
    return bytes;
}

void count_pieces(const Image& image, const Units& units, std::span<const Trace* const> traces,
                  Ordering& ordering) {
    const std::vector<std::uint64_t> bytes = touched_bytes(image, traces);
    for (std::uint32_t i = 0; i < bytes.size(); ++i) {
        if (bytes[i] == 0) continue;
        const Piece& piece = image.pieces[i];
        ++ordering.touched_pieces;
        ordering.touched_bytes += bytes[i];
        ordering.cold_bytes_inside += piece.size - std::min(piece.size, bytes[i]);
        if (units.of_piece(i)) {
            ++ordering.movable_pieces;
            ordering.movable_bytes += bytes[i];
            ordering.movable_size += piece.size;
        } else {
            const Stays stays = piece.stays == Stays::kMoves ? Stays::kUnnamed : piece.stays;
            ++ordering.stayed[static_cast<std::size_t>(stays)].pieces;
            ordering.stayed[static_cast<std::size_t>(stays)].touched_bytes += bytes[i];
        }
    }
}

void count_stayed(const Image& image, const Units& units, const machine::Machine& machine,
                  std::span<const Trace* const> traces, const Placement& placement, Ordering& ordering) {
    std::vector<std::uint64_t> by_piece(image.pieces.size());
    for (std::size_t t = 0; t < traces.size(); ++t) {
        Evaluator evaluator(*traces[t], machine);
        const Evaluator::Detail detail = evaluator.detail(placement);
        if (t == 0) {
            ordering.image_pages = detail.image_pages;
            ordering.image_pages_linked = evaluator.detail(as_linked(image)).image_pages;
        }
        ordering.other_misses += detail.misses.other;
        for (std::size_t visit = 0; visit < detail.by_visit.size(); ++visit)
            if (const std::uint32_t piece = traces[t]->visits[visit].piece; piece != kNoPiece)
                by_piece[piece] += detail.by_visit[visit];
    }
    constexpr std::size_t kMost = 5;
    for (std::uint32_t i = 0; i < by_piece.size(); ++i) {
        if (by_piece[i] == 0 || units.of_piece(i)) continue;
        const Stays stays = image.pieces[i].stays == Stays::kMoves ? Stays::kUnnamed : image.pieces[i].stays;
        Stayed& stayed = ordering.stayed[static_cast<std::size_t>(stays)];
        stayed.misses += by_piece[i];
        stayed.most.emplace_back(image.pieces[i].name(), by_piece[i]);
    }
    for (Stayed& stayed : ordering.stayed) {
        std::stable_sort(stayed.most.begin(), stayed.most.end(),
                         [](const auto& a, const auto& b) { return a.second > b.second; });
        if (stayed.most.size() > kMost) stayed.most.resize(kMost);
    }
}

}  // namespace

std::string_view name_of(Method method) { return kNames[static_cast<std::size_t>(method)]; }

std::optional<Method> method_named(std::string_view name) {
    for (std::size_t i = 0; i < kMethods; ++i)
        if (kNames[i] == name) return static_cast<Method>(i);
    return std::nullopt;
}

Result<Ordering> make_ordering(const Image& image, const Units& units, Linker linker,
                               const machine::Machine& machine, std::span<const Trace* const> traces,
                               std::span<const double> weights, std::span<const Trace* const> tests,
                               const OrderingOptions& options) {
    Ordering ordering;
    count_pieces(image, units, traces, ordering);
    if (ordering.touched_pieces == 0)
        return fail(image.path, "nothing of it ran in the recordings to learn from",
                    "record a run of this file, or name another with --image");
    // A few pieces of a library that was built with function sections do not make an order worth writing.
    const std::uint64_t not_split = ordering.stayed[static_cast<std::size_t>(Stays::kNotSplit)].touched_bytes;
    if (ordering.movable_pieces == 0 || ordering.movable_bytes * 10 < not_split) {
        if (linker == Linker::kMold)
            return fail(image.path,
                        "mold moves whole object files, and what ran comes from no file of its own",
                        "give the link map with --map, and link objects rather than archives");
        return fail(
            image.path,
            fmt::format(
                "only {} of the {} bytes that ran lie in sections of their own, so a linker can move next "
                "to nothing",
                ordering.movable_bytes, ordering.touched_bytes),
            "build with -ffunction-sections and link again; or without building again, if it was linked with "
            "-Wl,--emit-relocs, let BOLT move its functions: --format bolt");
    }
    ordering.graph = graph_of(
        image, units, traces, weights,
        std::uint64_t{machine.tlb(traces[0]->kind).geometry.entries} << traces[0]->image_shift.value());
    std::vector<std::unique_ptr<Judge>> judges;
    for (unsigned i = 0; i < std::max(options.threads, 1U); ++i)
        judges.push_back(std::make_unique<Judge>(image, units, linker, machine,
                                                 std::vector<const Trace*>(traces.begin(), traces.end()),
                                                 std::vector<double>(weights.begin(), weights.end())));
    std::unique_ptr<Judge> test_judge;
    if (!tests.empty())
        test_judge = std::make_unique<Judge>(image, units, linker, machine,
                                             std::vector<const Trace*>(tests.begin(), tests.end()),
                                             std::vector<double>(tests.size(), 1.0));
    const bool searches =
        std::find(options.methods.begin(), options.methods.end(), Method::kSearch) != options.methods.end();
    std::vector<Method> needed;
    for (std::size_t i = 0; i < kMethods; ++i) {
        const auto method = static_cast<Method>(i);
        if (method == Method::kSearch) continue;
        if (searches || method == Method::kAsLinked ||
            std::find(options.methods.begin(), options.methods.end(), method) != options.methods.end())
            needed.push_back(method);
    }
    std::vector<MethodResult> results;
    double spent = 0;
    const auto go_on = [&](std::string_view what, double share) {
        return !options.progress || options.progress(what, share);
    };
    for (const Method method : needed) {
        if (!go_on("trying methods", spent / static_cast<double>(needed.size()))) ordering.stopped = true;
        if (ordering.stopped && results.size() > 1) break;
        MethodResult result;
        for (std::size_t variant = 0; variant < variants_of(method); ++variant) {
            MethodResult tried;
            tried.method = method;
            tried.order =
                order_of(method, ordering.graph, std::uint64_t{1} << traces[0]->image_shift.value(), variant);
            tried.cost =
                method == Method::kAsLinked ? judges[0]->cost_as_linked() : judges[0]->cost(tried.order);
            tried.trained.assign(judges[0]->misses().begin(), judges[0]->misses().end());
            if (variant == 0 || tried.cost < result.cost) result = std::move(tried);
        }
        results.push_back(std::move(result));
        ++spent;
    }
    const auto best = [](const std::vector<MethodResult>& list) {
        return static_cast<std::size_t>(
            std::min_element(list.begin(), list.end(),
                             [](const MethodResult& a, const MethodResult& b) { return a.cost < b.cost; }) -
            list.begin());
    };
    if (searches) {
        // The order that beats all may be none at all; a search needs one to change.
        std::size_t start = results.size() > 1 ? 1 : 0;
        for (std::size_t i = start; i < results.size(); ++i)
            if (results[i].cost < results[start].cost) start = i;
        SearchResult found;
        if (!ordering.stopped)
            found = search(judges, results[start].order, units,
                           {.seed = options.seed,
                            .budget = options.budget,
                            .threads = options.threads,
                            .progress = [&](double share, double) { return go_on("searching", share); }});
        if (!found.order.empty()) {
            MethodResult result;
            result.method = Method::kSearch;
            result.order = std::move(found.order);
            result.cost = judges[0]->cost(result.order);
            result.trained.assign(judges[0]->misses().begin(), judges[0]->misses().end());
            results.push_back(std::move(result));
            ordering.tried = found.tried;
            ordering.stopped = found.stopped;
        }
    }
    if (test_judge)
        for (MethodResult& result : results) {
            static_cast<void>(result.method == Method::kAsLinked ? test_judge->cost_as_linked()
                                                                 : test_judge->cost(result.order));
            result.tested.assign(test_judge->misses().begin(), test_judge->misses().end());
        }
    // Those that were only made to start the search from are left out, except the baseline.
    std::erase_if(results, [&](const MethodResult& result) {
        return result.method != Method::kAsLinked && std::find(options.methods.begin(), options.methods.end(),
                                                               result.method) == options.methods.end();
    });
    ordering.methods = std::move(results);
    ordering.chosen = best(ordering.methods);
    const MethodResult& chosen = ordering.methods[ordering.chosen];
    Placer placer(image, units, linker);
    count_stayed(image, units, machine, traces,
                 chosen.method == Method::kAsLinked ? as_linked(image) : placer.placed(chosen.order),
                 ordering);
    for (const Trace* trace : traces) ordering.bounds.push_back(bound_of(*trace, machine));
    return ordering;
}

}  // namespace tlbscope::layout
