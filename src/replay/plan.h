// A machine made ready for replaying: its routes, its mapping, and what both allow the engine to leave out.
#pragma once

#include <vector>

#include "addrspace/mapping.h"
#include "core/error.h"
#include "machine/machine.h"
#include "machine/routes.h"

namespace tlbscope::replay {

// Something that software does to the TLBs besides reloading them after a miss: given by whoever replays, or
// recorded with its operand.
struct TlbEvent {
    enum class What : std::uint8_t {
        kInvalidatePage,  // the entry that translates `address`: tlbie, invlpg
        kInvalidateAll,   // tlbia
        kLoad,            // an entry for the base page at `address` is written though nothing missed
    };
    What what = What::kInvalidatePage;
    VirtAddr address;
    std::uint64_t execution =
        0;  // before this many block executions of all CPUs had begun, it did not happen

    [[nodiscard]] std::string text() const;  // "tlbie 0xc0123000"
};

struct Plan {
    machine::Machine machine;
    machine::Routes routes;
    addrspace::Mapping mapping;
    addrspace::RegionOf region_of;
    std::vector<TlbEvent> events;  // by execution

    // Keys of touches are the keys of entries.
    [[nodiscard]] bool same_keys() const { return mapping.plain() && routes.sizes().size() == 1; }
    [[nodiscard]] bool has_pins() const;
    // Split first-level arrays of one size and nothing behind them: each kind's list can be looked up by
    // itself, and the order of the misses does not matter.
    [[nodiscard]] bool simple() const { return routes.simple() && same_keys() && !machine.refill.derived; }
    // Fetches and accesses must be looked up in program order.
    [[nodiscard]] bool in_order() const;
    // Each touch must be through before the next is looked up: what one refill does, the next lookup sees.
    [[nodiscard]] bool one_by_one() const;
};

[[nodiscard]] Result<Plan> make_plan(machine::Machine machine, addrspace::RegionOf region_of,
                                     std::vector<TlbEvent> events);

}  // namespace tlbscope::replay
