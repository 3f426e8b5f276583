// Finding QEMU and our plugin, and running it.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace tlbscope::capture {

// The full path of a QEMU program ("qemu-ppc"), or an error that names the Debian package to install.
Result<std::filesystem::path> find_qemu(const std::string& name);

// The Debian package it is in.
[[nodiscard]] std::string qemu_package(std::string_view name);

// "7.2.22" as `--version` prints it; empty when it prints something else.
[[nodiscard]] std::string qemu_version(const std::filesystem::path& qemu);

// libtlbscope-plugin.so beside this program or in ../lib/tlbscope, or where TLBSCOPE_PLUGIN says.
Result<std::filesystem::path> find_plugin();

// The folder of the running program.
[[nodiscard]] std::filesystem::path program_folder();

// Where Debian's cross compilers keep the libraries of a target ("/usr/powerpc-linux-gnu"); empty when
// absent.
[[nodiscard]] std::string library_prefix(const std::string& target);

struct Spawn {
    std::vector<std::string> arguments;  // arguments[0] is the program's path
    int keep_fd = -1;                    // stays open in the child
    bool own_group = false;              // out of the terminal's reach: ctrl-C does not get to it
    std::filesystem::path log;           // nothing of ours: input from /dev/null, output into this file
};

// Starts the program; it is killed when this thread ends. Returns its process id.
Result<pid_t> spawn(const Spawn& what);

}  // namespace tlbscope::capture
