// Machines from TOML files: found by name, checked key by key, changed by --set.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/error.h"
#include "machine/machine.h"

namespace tlbscope::machine {

// Where machines are looked for, in order: $TLBSCOPE_MACHINES (folders separated by colons), machines/ beside
// the program, ../share/tlbscope/machines, and the source tree the program was built from.
[[nodiscard]] std::vector<std::filesystem::path> machine_folders();

// A machine by name, or by path when the name has a slash or ends in ".toml". `changes` are "key=value"
// overrides, applied in order before anything is checked.
[[nodiscard]] Result<Machine> load_machine(const std::string& name_or_path,
                                           const std::vector<std::string>& changes = {});
// The same from text; `file` is for messages.
[[nodiscard]] Result<Machine> parse_machine(const std::string& text, const std::string& file,
                                            const std::vector<std::string>& changes = {});

// Names of all machines that the folders hold, sorted; of equal names the first folder's counts.
[[nodiscard]] std::vector<std::string> machine_names();

}  // namespace tlbscope::machine
