#include "flush/observed.h"

#include <algorithm>

namespace tlbscope::flush {

void Observed::add(const TlbOperation& operation) {
    if (operation.source == TlbOperation::Source::kTlbie) {
        ++tlbies;
        const bool kernel = operation.hardware == 0;
        ByScope& counts =
            operation.local ? (kernel ? kernel_local : local) : (kernel ? kernel_global : global);
        ++counts[static_cast<std::size_t>(operation.scope)];
        return;
    }
    ++tlb_flushes;
    const std::size_t reason = std::min<std::size_t>(operation.reason, kFlushReasons);
    ++flushes[reason];
    if (operation.scope == TlbScope::kPid || operation.scope == TlbScope::kAll)
        ++full_flushes[reason];
    else
        pages[reason] += operation.bytes / 4096;
}

}  // namespace tlbscope::flush
