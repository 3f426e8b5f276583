#include "replay/plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace tlbscope::replay {

std::string TlbEvent::text() const {
    switch (what) {
        case What::kInvalidatePage:
            return fmt::format("an invalidation of {:#x}", address.value());
        case What::kInvalidateAll:
            return "an invalidation of everything";
        case What::kLoad:
            break;
    }
    return fmt::format("a reload of the page at {:#x}", address.value());
}

bool Plan::has_pins() const {
    return std::any_of(mapping.rules().begin(), mapping.rules().end(),
                       [](const addrspace::MappingRule& rule) { return rule.pinned; });
}

bool Plan::in_order() const { return !routes.split() || one_by_one(); }

bool Plan::one_by_one() const {
    const auto& tlbs = machine.tlbs;
    return std::any_of(tlbs.begin(), tlbs.end(),
                       [](const machine::TlbDescription& tlb) { return tlb.inclusive; }) ||
           (machine.refill.derived && machine.refill.handler && machine.refill.handler->virtual_table);
}

Result<Plan> make_plan(machine::Machine machine, addrspace::RegionOf region_of,
                       std::vector<TlbEvent> events) {
    auto routes = machine::Routes::of(machine);
    if (!routes) {
        Error error = routes.error();
        error.where = machine.name;
        return std::unexpected(error);
    }
    Plan plan{.machine = std::move(machine),
              .routes = std::move(*routes),
              .mapping = {},
              .region_of = std::move(region_of),
              .events = std::move(events)};
    plan.mapping = plan.machine.mapping();
    std::stable_sort(plan.events.begin(), plan.events.end(),
                     [](const TlbEvent& a, const TlbEvent& b) { return a.execution < b.execution; });
    return plan;
}

}  // namespace tlbscope::replay
