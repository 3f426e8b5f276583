#include "machine/cache.h"

#include <bit>

namespace tlbscope::machine {

Cache::Cache(const CacheDescription& description)
    : line_shift_(static_cast<unsigned>(std::countr_zero(description.line))),
      set_mask_(description.sets() - 1),
      ways_(description.ways),
      tags_(std::size_t{description.sets()} * description.ways, ~std::uint64_t{0}) {}

}  // namespace tlbscope::machine
