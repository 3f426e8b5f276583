// Options about where names come from, for every command that prints some.
#pragma once

#include "cli/command.h"
#include "explain/names.h"

namespace tlbscope::cli {

// Adds --debug-path, --sysroot, --jit-map, --kernel-symbols and --no-demangle.
void add_name_options(CLI::App& app, const std::shared_ptr<explain::NameOptions>& options);

// Loads the names and notes on the console what is missing.
[[nodiscard]] Result<explain::Names> load_names(const recording::Recording& recording,
                                                const explain::NameOptions& options, Console& console);

}  // namespace tlbscope::cli
