// A call's cache lines are collected as it runs; at its end they are sorted once, and every larger unit is
// counted from that list. Blocks and lines that a call already had are recognised by the call's number in a
// table, so that nothing is cleared between calls.
#include "explain/footprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "replay/pipeline.h"

namespace tlbscope::explain {

namespace {

using recording::Block;

// A set of numbers that empties in no time: a slot counts only if it carries the present stamp.
class StampedSet {
  public:
    StampedSet() : slots_(1024) {}
    void clear() {
        ++stamp_;
        members_.clear();
        last_ = ~std::uint64_t{0};
    }
    void add(std::uint64_t value) {
        if (value == last_) return;
        last_ = value;
        Slot* slot = find(value);
        if (slot->stamp == stamp_) return;
        *slot = {value, stamp_};
        members_.push_back(value);
        if (members_.size() * 2 > slots_.size()) grow();
    }
    [[nodiscard]] std::vector<std::uint64_t>& members() { return members_; }

  private:
    struct Slot {
        std::uint64_t value = 0;
        std::uint64_t stamp = 0;
    };
    Slot* find(std::uint64_t value) {
        std::size_t at = value * 0x9e3779b97f4a7c15ULL >> 20 & (slots_.size() - 1);
        while (slots_[at].stamp == stamp_ && slots_[at].value != value) at = (at + 1) & (slots_.size() - 1);
        return &slots_[at];
    }
    void grow() {
        slots_.assign(slots_.size() * 2, {});
        for (const std::uint64_t value : members_) *find(value) = {value, stamp_};
    }
    std::vector<Slot> slots_;
    std::vector<std::uint64_t> members_;
    std::uint64_t stamp_ = 1;
    std::uint64_t last_ = ~std::uint64_t{0};
};

std::uint64_t distinct(const std::vector<std::uint64_t>& sorted, unsigned shift) {
    std::uint64_t count = 0;
    std::uint64_t last = ~std::uint64_t{0};
    for (const std::uint64_t value : sorted) {
        count += value >> shift != last ? 1 : 0;
        last = value >> shift;
    }
    return count;
}

// Function of each dictionary entry, per space; looked up once.
class BlockFunctions {
  public:
    BlockFunctions(const recording::Recording& recording, const Names& names)
        : recording_(recording), names_(names) {}
    std::uint32_t of(std::uint32_t block, SpaceId space) {
        const VirtAddr address = recording_.dictionary()[block].address;
        if (address.value() >= recording_.metadata().kernel_base) space = SpaceId(0);
        auto& known = ids_[space.value()];
        const auto [at, is_new] = known.try_emplace(block, 0);
        if (is_new) at->second = names_.function_at(space, address).function_id;
        return at->second;
    }

  private:
    const recording::Recording& recording_;
    const Names& names_;
    std::unordered_map<std::uint32_t, std::unordered_map<std::uint32_t, std::uint32_t>> ids_;
};

// What the call of a path that is under way has used. Tasks can be in the same path at once.
struct CallSets {
    StampedSet blocks;  // space << 32 | dictionary entry
    StampedSet data_lines;
    std::uint64_t fetches = 0;
};

class Collector : public PathSink {
  public:
    Collector(const recording::Recording& recording, const Names& names, const std::vector<Path>& paths,
              const FootprintOptions& options)
        : dictionary_(recording.dictionary()),
          options_(options),
          functions_(recording, names),
          names_(names) {
        for (const Path& path : paths) {
            PathFootprint& result = results_.emplace_back();
            result.path = path.text;
            for (const FunctionPlace& place : path.functions) {
                const std::string name(names.name_of(place.function_id).function);
                if (std::find(result.functions_meant.begin(), result.functions_meant.end(), name) ==
                    result.functions_meant.end())
                    result.functions_meant.push_back(name);
            }
            for (const PageShift shift : options.pages)
                result.pages.push_back({.shift = shift, .code = {}, .data = {}, .fewest = 0});
        }
        open_.resize(paths.size());
        spare_.resize(paths.size());
        in_calls_.resize(paths.size());
    }

    Result<void> begin(std::size_t path, std::uint64_t call, CpuId, std::uint32_t, std::uint32_t) override {
        CallSets sets = spare_[path].empty() ? CallSets{} : std::move(spare_[path].back());
        if (!spare_[path].empty()) spare_[path].pop_back();
        sets.blocks.clear();
        sets.data_lines.clear();
        sets.fetches = 0;
        open_[path].insert_or_assign(call, std::move(sets));
        return {};
    }

    void execution(std::size_t path, std::uint64_t call, const Execution& execution) override {
        CallSets& sets = open_[path].find(call)->second;
        sets.fetches += execution.instructions;
        sets.blocks.add(std::uint64_t{execution.space.value()} << 32 | execution.block);
        for (const std::uint64_t address : execution.addresses)
            sets.data_lines.add(address >> options_.line_shift);
    }

    Result<void> end(std::size_t path, std::uint64_t call, CpuId, std::uint32_t, std::uint32_t,
                     const Apart& apart) override {
        const auto at = open_[path].find(call);
        CallSets& sets = at->second;
        PathFootprint& result = results_[path];
        ++result.calls;
        result.fetches.add(sets.fetches);
        lines_.clear();
        ids_.clear();
        for (const std::uint64_t key : sets.blocks.members()) {
            const auto entry = static_cast<std::uint32_t>(key);
            const Block& block = dictionary_[entry];
            const std::uint64_t first = block.address.value() >> options_.line_shift;
            const std::uint64_t last = (block.address.value() + block.bytes - 1) >> options_.line_shift;
            for (std::uint64_t line = first; line <= last; ++line) lines_.push_back(line);
            if (const std::uint32_t id = functions_.of(entry, SpaceId(static_cast<std::uint32_t>(key >> 32))))
                ids_.push_back(id);
        }
        std::sort(lines_.begin(), lines_.end());
        std::vector<std::uint64_t>& data = sets.data_lines.members();
        std::sort(data.begin(), data.end());
        result.code_lines.add(distinct(lines_, 0));
        result.data_lines.add(data.size());
        for (PageFootprint& pages : result.pages) {
            pages.code.add(distinct(lines_, pages.shift.value() - options_.line_shift));
            pages.data.add(distinct(data, pages.shift.value() - options_.line_shift));
        }
        std::sort(ids_.begin(), ids_.end());
        ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
        result.functions.add(ids_.size());
        for (const std::uint32_t id : ids_) ++in_calls_[path][id];
        result.apart.interrupts += apart.interrupts;
        result.apart.interrupt_fetches += apart.interrupt_fetches;
        result.apart.elsewhere_fetches += apart.elsewhere_fetches;
        result.calls_apart += apart.interrupts + apart.elsewhere_fetches > 0 ? 1 : 0;
        spare_[path].push_back(std::move(sets));
        open_[path].erase(at);
        return {};
    }

    std::vector<PathFootprint> take() {
        for (std::size_t path = 0; path < results_.size(); ++path) {
            PathFootprint& result = results_[path];
            result.functions_all = in_calls_[path].size();
            for (const auto& [id, calls] : in_calls_[path]) {
                if (calls * 2 < result.calls) continue;
                result.hot.push_back({.function_id = id, .calls = calls, .bytes = names_.bytes_of(id)});
                result.hot_bytes += result.hot.back().bytes;
            }
            for (PageFootprint& pages : result.pages)
                pages.fewest = (result.hot_bytes + pages.shift.bytes() - 1) >> pages.shift.value();
        }
        return std::move(results_);
    }

  private:
    const recording::Dictionary& dictionary_;
    const FootprintOptions& options_;
    BlockFunctions functions_;
    const Names& names_;
    std::vector<PathFootprint> results_;
    std::vector<std::map<std::uint64_t, CallSets>> open_;           // by path, by call
    std::vector<std::vector<CallSets>> spare_;                      // by path
    std::vector<std::map<std::uint32_t, std::uint64_t>> in_calls_;  // by path: function -> calls
    std::vector<std::uint64_t> lines_;
    std::vector<std::uint32_t> ids_;
};

}  // namespace

Result<std::vector<PathFootprint>> footprint(const recording::Recording& recording, const Names& names,
                                             const std::vector<Path>& paths,
                                             const FootprintOptions& options) {
    if (recording.metadata().granularity != recording::Granularity::kFull)
        return fail(recording.path().string(), "it keeps pages only, and paths need every execution",
                    "record with --granularity full");
    PathTracker tracker(recording, names, paths);
    Collector collector(recording, names, tracker.paths(), options);
    std::uint64_t total = 0;
    std::uint64_t done = 0;
    for (const recording::ChunkInfo& chunk : recording.chunks()) total += chunk.executions;
    auto followed = replay::for_each_batch(
        recording, std::min(options.threads - 1, 3U),
        [&](const recording::Batch& batch) { return tracker.consume(batch, collector); },
        [&](std::size_t chunk) {
            done += recording.chunks()[chunk].executions;
            if (options.progress) options.progress(done, total);
        });
    if (!followed) {
        Error error = followed.error();
        if (error.where.empty()) error.where = recording.path().string();
        return std::unexpected(error);
    }
    std::vector<PathFootprint> results = collector.take();
    for (std::size_t path = 0; path < results.size(); ++path)
        results[path].unfinished = tracker.unfinished(path);
    return results;
}

}  // namespace tlbscope::explain
