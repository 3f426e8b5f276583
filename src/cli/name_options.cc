#include "cli/name_options.h"

namespace tlbscope::cli {

void add_name_options(CLI::App& app, const std::shared_ptr<explain::NameOptions>& options) {
    app.add_option_function<std::vector<std::string>>(
           "--debug-path",
           [options](const std::vector<std::string>& folders) {
               options->debug_folders.assign(folders.begin(), folders.end());
           },
           "a folder with separate debug files, besides /usr/lib/debug; repeatable")
        ->type_name("DIR")
        ->expected(1)
        ->take_all();
    app.add_option_function<std::string>(
           "--sysroot", [options](const std::string& folder) { options->sysroot = folder; },
           "the folder that holds the files that ran, if not /")
        ->type_name("DIR");
    app.add_option_function<std::string>(
           "--jit-map", [options](const std::string& file) { options->jit_map = file; },
           "names of just-in-time compiled code, if not /tmp/perf-PID.map")
        ->type_name("FILE");
    app.add_option_function<std::string>(
           "--kernel-symbols", [options](const std::string& file) { options->kernel_symbols = file; },
           "System.map or kallsyms instead of the recording's")
        ->type_name("FILE");
    app.add_flag_callback(
        "--no-demangle", [options] { options->demangle = false; }, "print C++ and Rust names as they are");
}

Result<explain::Names> load_names(const recording::Recording& recording, const explain::NameOptions& options,
                                  Console& console) {
    auto names = explain::Names::load(recording, options);
    if (names)
        for (const std::string& warning : names->warnings()) console.note(warning);
    return names;
}

}  // namespace tlbscope::cli
