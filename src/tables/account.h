// The tables account: the same events carried out under several strategies, counted and, when asked, timed.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "import_text/problems.h"
#include "pagetable/format.h"
#include "pagetable/table_cache.h"
#include "tables/events.h"
#include "tables/life.h"
#include "tables/meter.h"
#include "tables/strategy.h"

namespace tlbscope::tables {

// What one kind of event took, all of them together.
struct KindCounts {
    std::uint64_t events = 0;
    Accesses accesses;
};

struct Timing {
    std::vector<std::uint64_t> all;       // nanoseconds on tables, one for each round
    std::vector<std::uint64_t> teardown;  // of these, giving up tables
    [[nodiscard]] static std::uint64_t median(std::vector<std::uint64_t> values);
};

struct Ledger {
    Strategy strategy;
    Accesses accesses;
    std::array<KindCounts, kEventKinds> kinds{};  // by MemoryEventKind
    pagetable::CacheCounts tables;                // up to the end of the events
    std::uint64_t links = 0;                      // accesses to the links of cached tables
    std::uint64_t peak_bytes = 0;                 // of tables, used and cached
    std::uint64_t after_bytes = 0;                // when the events end
    std::uint64_t after_cached_bytes = 0;         // of these, on the lists
    std::uint64_t most_of_a_process = 0;          // bytes of tables
    std::uint64_t processes = 0;
    std::uint64_t implied = 0;  // pages that a fault alone told of
    std::uint64_t cycles = 0;
    import::Problems problems;
    std::optional<Timing> timing;
};

// The data cache of the machine that made the format known, and the costs of its parts; sources say what is
// remembered.
[[nodiscard]] DataCache usual_cache(const pagetable::Format& format);
[[nodiscard]] Costs usual_costs(const pagetable::Format& format);
[[nodiscard]] std::uint64_t cycles_of(const Ledger& ledger, const Costs& costs);

struct AccountOptions {
    DataCache cache;
    Costs costs;
    std::uint32_t timed_rounds = 0;  // 0: count only
    std::function<void(std::uint64_t done, std::uint64_t total)> progress;
};

// One ledger for each strategy, in their order. An error only when a strategy does its work wrong (a table
// freed twice, in use, or never), which no input should be able to make happen. Linear in the events and in
// what they do.
[[nodiscard]] Result<std::vector<Ledger>> account(const Events& events, const pagetable::Format& format,
                                                  const std::vector<Strategy>& strategies,
                                                  const AccountOptions& options);

}  // namespace tlbscope::tables
