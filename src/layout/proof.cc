#include "layout/proof.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "explain/flat_map.h"
#include "replay/engine.h"
#include "replay/pipeline.h"

namespace tlbscope::layout {

namespace {

using recording::Batch;
using recording::EventType;

std::unexpected<Error> stopped_error() {
    return std::unexpected(
        Error{.where = "", .what = "stopped", .hint = "", .error_class = ErrorClass::kInterrupted});
}

// The space each block of the user's side ran in first; for a recording of one program that is the first.
Result<std::vector<SpaceId>> first_spaces(const recording::Recording& recording, unsigned threads) {
    std::vector<SpaceId> spaces(recording.dictionary().size());
    if (!recording.metadata().system) return spaces;
    std::vector<bool> seen(spaces.size());
    std::map<std::uint32_t, SpaceId> running;
    auto read = replay::for_each_batch(
        recording, std::min(threads - 1, 3U),
        [&](const Batch& batch) -> Result<void> {
            SpaceId& space = running[batch.cpu.value()];
            auto event = batch.events.begin();
            for (std::uint32_t at = 0; at < batch.blocks.size(); ++at) {
                for (; event != batch.events.end() && event->position <= at; ++event)
                    if (event->type == EventType::kSwitchSpace)
                        space = SpaceId(static_cast<std::uint32_t>(event->a));
                const std::uint32_t id = batch.blocks[at];
                if (seen[id]) continue;
                seen[id] = true;
                spaces[id] = space;
            }
            for (; event != batch.events.end(); ++event)
                if (event->type == EventType::kSwitchSpace)
                    space = SpaceId(static_cast<std::uint32_t>(event->a));
            return {};
        },
        [](std::size_t) {});
    if (!read) return std::unexpected(read.error());
    return spaces;
}

// From an address of the run to where the placement has it.
class Mover {
  public:
    Mover(const Image& image, const Places& places, const Placement& placement, std::uint64_t kernel_base)
        : image_(image), places_(places), placement_(placement), kernel_base_(kernel_base) {}

    [[nodiscard]] std::uint64_t moved(SpaceId space, std::uint64_t address) const {
        if ((address >= kernel_base_) != places_.kernel()) return address;
        const auto bias = places_.bias(space);
        if (!bias) return address;
        const std::uint64_t at = address - *bias;
        if (at < places_.low() || at >= places_.high()) return address;
        const auto piece = image_.piece_at(at);
        if (!piece) return address;
        return address - image_.pieces[*piece].start + placement_[*piece];
    }

  private:
    const Image& image_;
    const Places& places_;
    const Placement& placement_;
    std::uint64_t kernel_base_;
};

// Counts misses of the image's pages, and those that belong to a call of a path.
class Watcher final : public replay::Observer {
  public:
    Watcher(const Image& image, const Places& places, const Placement& placement, std::size_t paths)
        : kind_(image.what == What::kText ? Kind::kInstruction : Kind::kData),
          places_(places),
          misses_(paths) {
        for (std::size_t i = 0; i < image.pieces.size(); ++i)
            if (image.pieces[i].size > 0)
                spans_.emplace_back(placement[i], placement[i] + image.pieces[i].size);
        std::sort(spans_.begin(), spans_.end());
    }

    // By execution of the next batch: which paths' calls it belongs to, a bit each.
    void set_paths(const std::vector<std::uint64_t>* paths) { in_paths_ = paths; }

    void looked_up(const replay::Lookups& lookups) override {
        if (lookups.kind == kind_)
            for (const std::uint64_t key : lookups.keys) static_cast<void>(is_image(lookups, key));
        for (const std::uint32_t at : lookups.missed) {
            if (lookups.kind == kind_ && is_image(lookups, lookups.keys[at])) ++image_misses_;
            if (lookups.kind != Kind::kInstruction || in_paths_ == nullptr || in_paths_->empty()) continue;
            const std::uint64_t paths = (*in_paths_)[lookups.ordinals[at]];
            for (std::size_t path = 0; path < misses_.size(); ++path) misses_[path] += paths >> path & 1;
        }
    }
    // An identifier may belong to another space from here on.
    void switching(const replay::SpaceSwitch& to) override {
        if (to.to.drop || to.to.flush) known_ = {};
    }

    [[nodiscard]] std::uint64_t image_misses() const { return image_misses_; }
    [[nodiscard]] std::uint64_t image_pages() const { return pages_.size(); }
    [[nodiscard]] const std::vector<std::uint64_t>& misses() const { return misses_; }

  private:
    bool is_image(const replay::Lookups& lookups, std::uint64_t key) {
        std::uint8_t& known = known_[{key}];
        if (known == 0) {
            known = lies_in_image(lookups, key) ? 2 : 1;
            if (known == 2) pages_.insert(key);
        }
        return known == 2;
    }
    bool lies_in_image(const replay::Lookups& lookups, std::uint64_t key) const {
        const bool kernel = machine::tag_of(key) == addrspace::kGlobalTag;
        const auto bias = places_.bias(lookups.recorded);
        if (kernel != places_.kernel() || !bias) return false;
        const std::uint64_t start = (machine::page_of(key) << lookups.shift.value()) - *bias;
        const std::uint64_t end = start + lookups.shift.bytes();
        const auto after = std::lower_bound(spans_.begin(), spans_.end(), std::pair(end, std::uint64_t{0}));
        return after != spans_.begin() && std::prev(after)->second > start;
    }

    struct Key {
        std::uint64_t key = 0;
        friend bool operator==(const Key&, const Key&) = default;
        [[nodiscard]] std::uint64_t hash() const { return key; }
    };

    Kind kind_;
    const Places& places_;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> spans_;
    explain::FlatMap<Key, std::uint8_t> known_;  // 1: other code, 2: the image's; of the present spaces
    std::unordered_set<std::uint64_t> pages_;
    const std::vector<std::uint64_t>* in_paths_ = nullptr;
    std::uint64_t image_misses_ = 0;
    std::vector<std::uint64_t> misses_;
};

// Which executions belong to calls, and the pages of each call with both dictionaries.
class PathSides final : public explain::PathSink {
  public:
    PathSides(const recording::Dictionary& before, const recording::Dictionary& after, PageShift shift,
              std::size_t paths)
        : dictionaries_{&before, &after}, shift_(shift), calls_(paths), open_(paths) {
        for (auto& sums : sums_) sums.resize(paths);
    }

    void start(std::size_t executions) { in_paths_.assign(executions, 0); }
    [[nodiscard]] const std::vector<std::uint64_t>& in_paths() const { return in_paths_; }
    [[nodiscard]] const std::vector<PathCost>& sums(int side) const { return sums_[side]; }
    [[nodiscard]] const std::vector<std::uint64_t>& calls() const { return calls_; }

    Result<void> begin(std::size_t path, std::uint64_t call, CpuId, std::uint32_t, std::uint32_t) override {
        open_[path][call] = {};
        return {};
    }
    void execution(std::size_t path, std::uint64_t call, const explain::Execution& execution) override {
        in_paths_[execution.index] |= std::uint64_t{1} << path;
        auto& pages = open_[path][call];
        for (int side = 0; side < 2; ++side) {
            const recording::Block& block = (*dictionaries_[side])[execution.block];
            if (execution.instructions == 0) continue;
            const std::uint64_t last = block.address.value() + block.bytes - 1;
            for (std::uint64_t page = block.address.page(shift_).value(); page <= last >> shift_.value();
                 ++page)
                pages[side].insert(page);
        }
    }
    Result<void> end(std::size_t path, std::uint64_t call, CpuId, std::uint32_t, std::uint32_t,
                     const explain::Apart&) override {
        const auto& pages = open_[path][call];
        ++calls_[path];
        for (int side = 0; side < 2; ++side) {
            sums_[side][path].pages += pages[side].size();
            sums_[side][path].most_pages =
                std::max<std::uint64_t>(sums_[side][path].most_pages, pages[side].size());
        }
        open_[path].erase(call);
        return {};
    }

  private:
    std::array<const recording::Dictionary*, 2> dictionaries_;
    PageShift shift_;
    std::array<std::vector<PathCost>, 2> sums_;
    std::vector<std::uint64_t> calls_;
    std::vector<std::map<std::uint64_t, std::array<std::set<std::uint64_t>, 2>>> open_;
    std::vector<std::uint64_t> in_paths_;
};

}  // namespace

Result<recording::Dictionary> moved_dictionary(const recording::Recording& recording, const Image& image,
                                               const Places& places, const Placement& placement,
                                               unsigned threads) {
    const auto spaces = first_spaces(recording, places.kernel() ? 1 : threads);
    if (!spaces) return std::unexpected(spaces.error());
    const Mover mover(image, places, placement, recording.metadata().kernel_base);
    recording::Dictionary moved;
    const recording::Dictionary& dictionary = recording.dictionary();
    for (std::uint32_t id = 0; id < dictionary.size(); ++id) {
        const recording::Block& block = dictionary[id];
        moved.add(VirtAddr(mover.moved((*spaces)[id], block.address.value())), dictionary.lengths(block),
                  dictionary.code(block), dictionary.shape(block), block.starts_with_repeat);
    }
    return moved;
}

Result<Proof> prove(const recording::Recording& recording, const Image& image, const Places& places,
                    const Placement& placement, const machine::Machine& machine, const explain::Names* names,
                    const std::vector<explain::Path>& paths, const ProofOptions& options) {
    if (recording.metadata().granularity != recording::Granularity::kFull)
        return fail(recording.path().string(), "it keeps pages only, and a proof moves functions",
                    "record with --granularity full");
    if (paths.size() > 64) return fail("", "more than 64 paths", "name fewer with --path");
    const bool text = image.what == What::kText;
    auto moved = text ? moved_dictionary(recording, image, places, placement, options.threads)
                      : Result<recording::Dictionary>(recording::Dictionary(recording.dictionary()));
    if (!moved) return std::unexpected(moved.error());
    const Placement linked = as_linked(image);
    std::array<Watcher, 2> watchers{Watcher(image, places, linked, paths.size()),
                                    Watcher(image, places, placement, paths.size())};
    auto plan = replay::make_plan(machine, {}, {});
    if (!plan) return std::unexpected(plan.error());
    replay::Engine before(recording.dictionary(), recording.metadata(), {*plan}, {&watchers[0]});
    replay::Engine after(*moved, recording.metadata(), {*plan}, {&watchers[1]});
    PathSides sides(recording.dictionary(), *moved, machine.pages.base, paths.size());
    std::optional<explain::PathTracker> tracker;
    if (!paths.empty()) {
        tracker.emplace(recording, *names, paths);
        for (Watcher& watcher : watchers) watcher.set_paths(&sides.in_paths());
    }
    const Mover mover(image, places, placement, recording.metadata().kernel_base);
    std::map<std::uint32_t, SpaceId> running;
    std::vector<std::uint64_t> addresses;
    // Accesses of a batch, moved; the space may change within it.
    const auto with_moved_data = [&](const Batch& batch) {
        addresses.assign(batch.addresses.begin(), batch.addresses.end());
        SpaceId& space = running[batch.cpu.value()];
        auto event = batch.events.begin();
        auto odd = batch.odd.begin();
        std::size_t access = 0;
        for (std::uint32_t at = 0; at < batch.blocks.size(); ++at) {
            for (; event != batch.events.end() && event->position <= at; ++event)
                if (event->type == EventType::kSwitchSpace)
                    space = SpaceId(static_cast<std::uint32_t>(event->a));
            std::size_t count = recording.dictionary()[batch.blocks[at]].slot_count;
            if (odd != batch.odd.end() && odd->ordinal == at) count = (odd++)->slot_count;
            for (std::size_t end = std::min(access + count, addresses.size()); access < end; ++access)
                addresses[access] = mover.moved(space, addresses[access]);
        }
        for (; event != batch.events.end(); ++event)
            if (event->type == EventType::kSwitchSpace) space = SpaceId(static_cast<std::uint32_t>(event->a));
        Batch result = batch;
        result.addresses = addresses;
        return result;
    };

    std::uint64_t done = 0;
    std::uint64_t total = 0;
    bool stopped = false;
    replay::RecordedTotals totals;
    for (const recording::ChunkInfo& chunk : recording.chunks()) {
        total += chunk.executions;
        totals.instructions += chunk.instructions;
        totals.accesses += chunk.accesses;
    }
    auto read = replay::for_each_batch(
        recording, std::min(options.threads - 1, 3U),
        [&](const Batch& batch) -> Result<void> {
            if (stopped) return stopped_error();
            if (tracker) {
                sides.start(batch.blocks.size());
                if (auto followed = tracker->consume(batch, sides); !followed) return followed;
            }
            if (auto replayed = before.consume(batch); !replayed) return replayed;
            return after.consume(text ? batch : with_moved_data(batch));
        },
        [&](std::size_t chunk) {
            done += recording.chunks()[chunk].executions;
            if (options.progress && !options.progress(done, total)) stopped = true;
        });
    const auto located = [&](Error error) {
        if (error.where.empty() && error.error_class != ErrorClass::kInterrupted)
            error.where = recording.path().string();
        return std::unexpected(error);
    };
    if (!read) return located(read.error());
    Proof proof;
    proof.calls = sides.calls();
    for (int side = 0; side < 2; ++side) {
        auto ledgers = (side == 0 ? before : after).finish(recording.metadata(), totals);
        if (!ledgers) return located(ledgers.error());
        ProofSide& to = side == 0 ? proof.before : proof.after;
        to.ledger = std::move(ledgers->front());
        to.image_misses = watchers[side].image_misses();
        to.image_pages = watchers[side].image_pages();
        to.paths = sides.sums(side);
        for (std::size_t path = 0; path < to.paths.size(); ++path)
            to.paths[path].misses = watchers[side].misses()[path];
    }
    return proof;
}

}  // namespace tlbscope::layout
