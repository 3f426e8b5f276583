// Options about machines and what is mapped how, for every command that replays.
#pragma once

#include "cli/command.h"
#include "explain/names.h"
#include "machine/machine.h"
#include "replay/plan.h"

namespace tlbscope::cli {

struct MachineOptions {
    std::string names = kDefaultMachine;  // separated by commas
    std::vector<std::string> changes;     // --set
    std::vector<std::string> maps;
    std::vector<std::string> pins;
    std::vector<std::string> events;
    std::string handler;
};

// Adds --machine, --set, --map and --pin.
void add_machine_options(CLI::App& app, const std::shared_ptr<MachineOptions>& options);
// Adds --handler and --event.
void add_refill_options(CLI::App& app, const std::shared_ptr<MachineOptions>& options);

[[nodiscard]] Result<std::vector<machine::Machine>> load_machines(const MachineOptions& options);
// Refuses machines that `what` cannot follow entry by entry: any but those with one array per kind, each
// looked up for base pages only.
[[nodiscard]] Result<void> check_plain(const machine::Machine& machine, const std::string& what);
// "tlbie:0xc0123000@1000": at an address, before an execution.
[[nodiscard]] Result<std::vector<replay::TlbEvent>> parse_events(const std::vector<std::string>& texts);

// Bounds the pins of `machine` where a region's bounds are known, and reserves as many entries as they take
// in each array that holds them. `names` may be nullptr when no rule names a region.
[[nodiscard]] Result<void> place_pins(machine::Machine& machine, const explain::Names* names);
[[nodiscard]] bool needs_regions(const std::vector<machine::Machine>& machines, bool kernel_recorded);

// What a replay of these machines needs to know of the recording's regions; keep it as long as the replay.
class Regions {
  public:
    // Loads names only where a rule asks for a region.
    static Result<Regions> of(const recording::Recording& recording, std::vector<machine::Machine>& machines);
    [[nodiscard]] addrspace::RegionOf look_up() const;

  private:
    std::shared_ptr<const explain::Names> names_;
};

}  // namespace tlbscope::cli
