// A whole recording through machines: decodes on other threads when there are any, replays in order, and
// returns the same ledgers whatever their number.
#pragma once

#include <functional>
#include <vector>

#include "core/error.h"
#include "machine/machine.h"
#include "recording/recording.h"
#include "replay/ledger.h"
#include "replay/observer.h"
#include "replay/plan.h"

namespace tlbscope::replay {

struct Options {
    unsigned threads = 1;
    // Called now and then with the references replayed and those there are; may be empty.
    std::function<void(std::uint64_t done, std::uint64_t total)> progress;
    // Asked now and then; once it says yes the replay ends with an error of the class interrupted. May be
    // empty.
    std::function<bool()> stop;
    // Empty, or for each machine its observer or nullptr. Called on the calling thread.
    std::vector<Observer*> observers;
    // Where regions lie, for machines whose mapping names some; may be empty otherwise.
    addrspace::RegionOf region_of;
    // What happens to every machine's TLBs besides what the recording holds.
    std::vector<TlbEvent> events;
};

// One ledger per machine, in order.
[[nodiscard]] Result<std::vector<Ledger>> replay(const recording::Recording& recording,
                                                 const std::vector<machine::Machine>& machines,
                                                 const Options& options);

}  // namespace tlbscope::replay
