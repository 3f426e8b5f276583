#include "tables/account.h"

#include <fmt/format.h>

#include <algorithm>

namespace tlbscope::tables {

std::uint64_t Timing::median(std::vector<std::uint64_t> values) {
    if (values.empty()) return 0;
    const std::size_t middle = values.size() / 2;
    std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(middle), values.end());
    return values[middle];
}

DataCache usual_cache(const pagetable::Format& format) {
    if (format.name.starts_with("sparc64"))
        return {.bytes = 16 << 10,
                .ways = 1,
                .line = 32,
                .write_allocate = false,
                .source =
                    "UltraSPARC user's manual: 16 K direct-mapped, 32-byte lines, writes do not allocate; "
                    "its two "
                    "sub-blocks a line are not told apart"};
    if (format.name.starts_with("mpc8xx"))
        return {.bytes = 4 << 10,
                .ways = 2,
                .line = 16,
                .write_allocate = true,
                .source = "MPC855T: 4 K, 2 ways, 16-byte lines [R]"};
    if (format.name.starts_with("radix"))
        return {.bytes = 32 << 10,
                .ways = 8,
                .line = 128,
                .write_allocate = false,
                .source = "POWER9: 32 K, 8 ways, 128-byte lines [R]"};
    return {.bytes = 32 << 10,
            .ways = 8,
            .line = 64,
            .write_allocate = true,
            .source = "32 K, 8 ways, 64-byte lines: the usual first level [R]"};
}

Costs usual_costs(const pagetable::Format& format) {
    // Round numbers from memory, none fitted to a measurement of page-table work.
    const bool old = format.name.starts_with("sparc64") || format.name.starts_with("mpc8xx");
    return {.entry = 3,
            .fetch = old ? 10U : 14U,
            .store = 1,
            .clear = old ? 4U : 2U,
            .allocate = old ? 100U : 200U,
            .cached = 4,
            .source =
                "chosen, in cycles: load, test and branch 3; a line from the next cache 10 to 14; the "
                "allocator's path 100 "
                "to 200; a list 4, as thread 2 counts its instructions [R]"};
}

std::uint64_t cycles_of(const Ledger& ledger, const Costs& costs) {
    const Accesses& a = ledger.accesses;
    return a.loads * costs.entry + (a.lines_fetched + a.lines_evicted) * costs.fetch +
           (a.entries_written + ledger.links) * costs.store + a.lines_cleared * costs.clear +
           (ledger.tables.allocated + ledger.tables.freed) * costs.allocate +
           (ledger.tables.from_cache + ledger.tables.to_cache) * costs.cached;
}

namespace {

std::unexpected<Error> wrong(const Strategy& strategy, const std::string& mistake) {
    return fail(strategy.name(), mistake, "this is an error of tlbscope: please report it with the input");
}

Result<Ledger> counted(const Events& events, const pagetable::Format& format, const Strategy& strategy,
                       const AccountOptions& options, std::uint64_t& done, std::uint64_t total) {
    Ledger ledger;
    ledger.strategy = strategy;
    pagetable::Arena arena(kArenaBase, kArenaBytes);
    Meter meter(arena, kArenaBase, kArenaBytes, options.cache);
    Life<Meter> life(format, strategy, events.cpus, false, meter, arena);
    life.imply(events.imply);
    std::uint64_t since = 0;
    for (const MemoryEvent& event : events.events) {
        const Accesses before = meter.counts();
        meter.begin();
        life.apply(event);
        KindCounts& kind = ledger.kinds[static_cast<std::size_t>(event.kind)];
        ++kind.events;
        kind.accesses += meter.counts() - before;
        if (options.progress && ++since == 4096) {
            done += since;
            since = 0;
            options.progress(done, total);
        }
    }
    done += since;
    ledger.accesses = meter.counts();
    ledger.links = meter.links();
    ledger.tables = life.cache().counts();
    ledger.peak_bytes = life.peak_bytes();
    ledger.after_bytes = arena.bytes_in_use();
    ledger.after_cached_bytes = life.cache().bytes_held();
    ledger.most_of_a_process = life.most_bytes_of_a_process();
    ledger.processes = life.processes_seen();
    ledger.problems = life.problems();
    ledger.implied = life.implied();
    ledger.cycles = cycles_of(ledger, options.costs);
    life.end();
    if (const std::string mistake = life.mistake(); !mistake.empty()) return wrong(strategy, mistake);
    if (arena.blocks_in_use() != 0)
        return wrong(strategy, fmt::format("{} tables were never freed", arena.blocks_in_use()));
    // Every kind's share adds up to the whole.
    Accesses sum;
    for (const KindCounts& kind : ledger.kinds) sum += kind.accesses;
    if (!(sum == ledger.accesses)) return wrong(strategy, "the events' shares do not add up to the total");
    return ledger;
}

Result<Times> timed(const Events& events, const pagetable::Format& format, const Strategy& strategy) {
    pagetable::Arena arena(kArenaBase, kArenaBytes);
    LiveMeter meter(arena, kArenaBase, kArenaBytes);
    Life<LiveMeter> life(format, strategy, events.cpus, true, meter, arena);
    life.imply(events.imply);
    for (const MemoryEvent& event : events.events) life.apply(event);
    const Times times = life.times();
    life.end();
    if (const std::string mistake = life.mistake(); !mistake.empty()) return wrong(strategy, mistake);
    return times;
}

}  // namespace

Result<std::vector<Ledger>> account(const Events& events, const pagetable::Format& format,
                                    const std::vector<Strategy>& strategies, const AccountOptions& options) {
    std::vector<Ledger> ledgers;
    const std::uint64_t total = events.events.size() * strategies.size() * (1 + options.timed_rounds);
    std::uint64_t done = 0;
    for (const Strategy& strategy : strategies) {
        auto ledger = counted(events, format, strategy, options, done, total);
        if (!ledger) return std::unexpected(ledger.error());
        ledgers.push_back(std::move(*ledger));
    }
    // In turns, so that whatever else the machine does meets all of them; one round first for warming up.
    for (std::uint32_t round = 0; options.timed_rounds != 0 && round <= options.timed_rounds; ++round)
        for (Ledger& ledger : ledgers) {
            const auto times = timed(events, format, ledger.strategy);
            if (!times) return std::unexpected(times.error());
            if (round != 0) {
                if (!ledger.timing) ledger.timing.emplace();
                ledger.timing->all.push_back(times->all);
                ledger.timing->teardown.push_back(times->teardown);
            }
            done += events.events.size();
            if (options.progress) options.progress(std::min(done, total), total);
        }
    return ledgers;
}

}  // namespace tlbscope::tables
