// The flush policies by name: which kernel's rules, on which machine's numbers.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "flush/flusher.h"
#include "machine/machine.h"

namespace tlbscope::flush {

struct Policy {
    std::string_view name;
    std::string_view family;   // of the machine whose numbers it takes
    std::string_view machine;  // that numbers come from when the user names none of this family
    std::string_view summary;
};

[[nodiscard]] const std::vector<Policy>& policies();
// Names separated by commas; `patches` is the seven of the series, `all` every one.
[[nodiscard]] Result<std::vector<Policy>> policies_named(const std::string& names);
// `page` is the size of the pages that the log's machine had.
[[nodiscard]] std::unique_ptr<Flusher> make_flusher(const Policy& policy, const machine::Machine& machine,
                                                    PageShift page);

// The cost of an account on a machine, by what it is for.
struct Cost {
    machine::Duration instructions;
    machine::Duration barriers;
    machine::Duration interrupts;
    machine::Duration refills;
    [[nodiscard]] machine::Duration total() const;
};
// Errors of one number add up over its uses, since it is the same number that is wrong; those of different
// numbers are independent.
[[nodiscard]] Cost cost_of(const Tally& tally, const machine::FlushCosts& costs);

}  // namespace tlbscope::flush
