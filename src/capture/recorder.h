// Running QEMU with the plugin and turning what it says into a file, for user programs and whole machines
// alike.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "capture/collector.h"
#include "capture/transport.h"
#include "core/error.h"
#include "recording/metadata.h"

namespace tlbscope::capture {

struct RecordRequest {
    std::vector<std::string> qemu_arguments;  // complete but for -plugin, which is put behind arguments[0]
    recording::Metadata metadata;             // what is known before the run; the rest is filled in
    std::filesystem::path output;
    WindowPoint from;
    WindowPoint to;
    std::filesystem::path qemu_log;  // whole machines: where QEMU's own words go
    std::uint64_t most_references = ~std::uint64_t{0};
    // Whole machines: gets what the guest's agent sends; true once the guest has said everything. May still
    // set the window and the switch's code in the control block until the agent arms the plugin.
    std::function<Result<bool>(Control& control, std::span<const std::uint16_t> units)> on_channel;
    // Whole machines, may be empty: the vDSO's image, asked for once the guest has ended.
    std::function<std::string()> vdso;
    // Whole machines, may be empty: adds further chunks and says in the metadata what they are, once the
    // guest has ended.
    std::function<Result<void>(recording::Writer&, recording::Metadata&)> more;
    // Called several times a second; an error ends the run.
    std::function<Result<void>(const Control& control, const recording::Totals&)> on_tick;
};

// What a run left behind, before the file is closed.
struct RecordOutcome {
    int wait_status = 0;
    bool interrupted = false;    // the user stopped it
    bool limit_reached = false;  // most_references
    bool guest_done = false;     // the agent has said everything
    bool window_opened = false;
    bool window_closed = false;
    std::uint32_t forks = 0;
    std::uint32_t execs = 0;
    bool exited = false;              // QEMU came to its own end
    bool tells_flushed_page = false;  // a ppc32 kernel's invalidations carry their operand
    recording::Totals totals;
    std::vector<std::uint64_t> space_tasks;
    std::vector<CpuSwitches> switches;  // by CPU
};

// Runs to the end. `complete` then fills in the metadata that only the outcome tells, and may add kernel
// symbols; the file appears under its name afterwards. On a write error the earlier file stays, and the part
// that could be written is kept as NAME.partial.
Result<RecordOutcome> record(
    RecordRequest request,
    const std::function<Result<std::string>(const RecordOutcome&, recording::Metadata&)>& complete);

// Ranges of the guest's address space in a user-mode QEMU, from the text of its /proc/PID/maps.
[[nodiscard]] std::vector<recording::MappedRange> guest_maps(const std::string& text,
                                                             std::uint64_t guest_base);

}  // namespace tlbscope::capture
