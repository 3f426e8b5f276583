// A strategy: how a kernel gives up page tables, whether it keeps them for the next process, and what a fork
// does with them. Its name is its parts joined by '+': scan-32-pairs, range+linux24, scan+lazy-fork.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "pagetable/table_cache.h"
#include "pagetable/tree.h"

namespace tlbscope::tables {

struct Strategy {
    bool range = false;  // tables go with the range that is unmapped; otherwise everything is scanned at exit
    pagetable::Scan scan;  // how
    pagetable::CachePolicy cache = pagetable::CachePolicy::kNone;
    bool lazy_fork = false;  // a fork shares the lowest tables until somebody changes one

    [[nodiscard]] std::string name() const;
};

// "scan", "scan-32", "scan-pairs", "scan-32-pairs" or "range", then any of "+linux22", "+linux24",
// "+quicklist",
// "+lazy-fork".
[[nodiscard]] Result<Strategy> parse_strategy(std::string_view text);
// What `tables` compares when nothing is said: thread 2's three, and what caches and ranges give alone.
[[nodiscard]] std::vector<Strategy> usual_strategies();

}  // namespace tlbscope::tables
