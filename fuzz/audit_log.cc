// Any log: the auditor and the reader of strace logs end, keep count, and name lines that exist.
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "import_strace/strace.h"
#include "import_text/input.h"
#include "tables/audit.h"
#include "tables/proc_maps.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace tlbscope;
    tables::Auditor auditor({.switch_flushes = size % 2 == 1, .most_findings = 100});
    import::Lines lines(import::Input::of_bytes("fuzz", {data, size}).value());
    for (;;) {
        const auto line = lines.next();
        if (!line || !*line) break;
        auditor.line(**line, lines.number());
    }
    auditor.finish();
    if (auditor.findings().size() > 100 || auditor.found() < auditor.findings().size()) std::abort();
    for (const tables::Finding& finding : auditor.findings())
        if (finding.line > lines.number() || finding.earlier > lines.number() || finding.what.empty())
            std::abort();

    import::Lines again(import::Input::of_bytes("fuzz", {data, size}).value());
    if (const auto log = import::read_strace(again))
        for (const MemoryEvent& event : log->events)
            if (event.position > again.number()) std::abort();
    import::Lines maps(import::Input::of_bytes("fuzz", {data, size}).value());
    (void)tables::read_maps(maps, 4);
    return 0;
}
