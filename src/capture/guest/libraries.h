// Which shared libraries a program loads, found as its dynamic linker would find them (ld.so(8)) but without
// running anything of the program: ldd executes the program's own interpreter, which may be for another
// machine or hostile.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "capture/guest/elf_file.h"

namespace tlbscope::capture {

struct Library {
    std::string name = {};            // as asked for
    std::filesystem::path path = {};  // empty when not found
    bool by_default = false;     // found in a folder that every dynamic linker searches, without its cache
    std::string wanted_by = {};  // the file that asked first
};

class LibraryFinder {
  public:
    // Reads the system's cache of libraries (ldconfig -p).
    static LibraryFinder of_system();
    // For tests: a cache of your own, name -> paths in order of preference.
    explicit LibraryFinder(std::map<std::string, std::vector<std::filesystem::path>> cache)
        : cache_(std::move(cache)) {}

    // All libraries `program` needs, directly or not, in the order the dynamic linker loads them.
    [[nodiscard]] std::vector<Library> needed_by(const std::filesystem::path& program) const;

  private:
    std::map<std::string, std::vector<std::filesystem::path>> cache_;
};

}  // namespace tlbscope::capture
