#include "replay/replay.h"

#include <fmt/format.h>

#include <algorithm>

#include "replay/engine.h"
#include "replay/pipeline.h"

namespace tlbscope::replay {

namespace {

Result<void> replay_pages(const recording::Recording& recording, Engine& engine,
                          const std::function<Result<void>()>& stopped,
                          const std::function<void(std::size_t)>& chunk_done) {
    for (std::size_t chunk = 0; chunk < recording.chunks().size(); ++chunk) {
        if (auto go_on = stopped(); !go_on) return go_on;
        auto touches = recording.touches(chunk);
        if (!touches) return std::unexpected(touches.error());
        if (auto done = engine.consume(recording.chunks()[chunk].cpu, *touches); !done) return done;
        chunk_done(chunk);
    }
    return {};
}

}  // namespace

Result<std::vector<Ledger>> replay(const recording::Recording& recording,
                                   const std::vector<machine::Machine>& machines, const Options& options) {
    if (recording.metadata().granularity == recording::Granularity::kNone)
        return fail(recording.path().string(), "it was recorded without references (--granularity none)",
                    "record again without that option; 'tlbscope info' says what it holds");
    std::vector<Plan> plans;
    for (const machine::Machine& machine : machines) {
        auto plan = make_plan(machine, options.region_of, options.events);
        if (!plan) return std::unexpected(plan.error());
        plans.push_back(std::move(*plan));
    }
    RecordedTotals totals;
    for (const recording::ChunkInfo& chunk : recording.chunks()) {
        totals.instructions += chunk.instructions;
        totals.accesses += chunk.accesses;
    }
    const std::uint64_t all = totals.instructions + totals.accesses;
    std::uint64_t done = 0;
    const auto chunk_done = [&](std::size_t chunk) {
        done += recording.chunks()[chunk].instructions + recording.chunks()[chunk].accesses;
        if (options.progress) options.progress(done, all);
    };
    const auto stopped = [&]() -> Result<void> {
        if (!options.stop || !options.stop()) return {};
        return std::unexpected(
            Error{.where = "", .what = "stopped", .hint = "", .error_class = ErrorClass::kInterrupted});
    };

    Engine engine(recording.dictionary(), recording.metadata(), std::move(plans), options.observers);
    Result<void> replayed;
    if (recording.metadata().granularity == recording::Granularity::kPage) {
        replayed = replay_pages(recording, engine, stopped, chunk_done);
    } else {
        // Replaying outruns two decoders but not three.
        const unsigned decoders = std::min(options.threads - 1, 3u);
        replayed = for_each_batch(
            recording, decoders,
            [&](const recording::Batch& batch) {
                auto go_on = stopped();
                return go_on ? engine.consume(batch) : go_on;
            },
            chunk_done);
    }
    if (!replayed) {
        Error error = replayed.error();
        if (error.where.empty() && error.error_class != ErrorClass::kInterrupted)
            error.where = recording.path().string();
        return std::unexpected(error);
    }
    auto ledgers = engine.finish(recording.metadata(), totals);
    if (!ledgers) {
        Error error = ledgers.error();
        error.where = recording.path().string();
        return std::unexpected(error);
    }
    if (!recording.whole())
        for (Ledger& ledger : *ledgers)
            ledger.notes.insert(ledger.notes.begin(),
                                fmt::format("the recording is not whole ({}): this is what it still holds",
                                            recording.damage()));
    return ledgers;
}

}  // namespace tlbscope::replay
