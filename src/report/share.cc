#include "report/report.h"

namespace tlbscope::report {

Share share_of(const replay::Ledger& ledger, const std::optional<double>& elapsed,
               const std::optional<double>& clock) {
    Share share;
    share.clock = clock.value_or(ledger.machine.clock.hertz);
    const auto refill = static_cast<double>(ledger.refill_cycles().value());
    share.refill_seconds = refill / share.clock;
    share.estimate = !elapsed.has_value();
    // Every fetch counts here, repeated iterations too: each moves data, which takes any machine a cycle at
    // least.
    share.run_cycles = elapsed ? *elapsed * share.clock
                               : static_cast<double>(ledger.references.of(Kind::kInstruction)) *
                                         ledger.machine.clock.cycles_per_instruction +
                                     refill;
    share.fraction = share.run_cycles > 0 ? refill / share.run_cycles : 0;
    return share;
}

}  // namespace tlbscope::report
