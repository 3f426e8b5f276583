// Whose an address is: the function and the region it lies in, for every space of a recording.
//
// The recording has the maps, the kernel's symbols and the build-ids; functions of programs and libraries
// come from their files, which must be the builds that ran. What cannot be read costs names, never the
// answer: warnings() say what is missing and how to get it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "addrspace/regions.h"
#include "core/error.h"
#include "core/types.h"
#include "recording/recording.h"

namespace tlbscope::explain {

using addrspace::KernelLayout;
using addrspace::Region;

inline constexpr std::string_view kUnknownFunction = "[unknown]";

struct Name {
    std::string_view function = kUnknownFunction;
    std::string_view object;  // path of the file, "[kernel]", "[module]", "[vdso]", "[jit]"; or a map's name
    std::uint32_t function_id = 0;  // dense; 0 is [unknown]. The same function has one id in all spaces
    // The function is known by its boundaries only; `function` is its file and offset in brackets.
    bool unnamed = false;
};

// Where a function is: in the kernel, or in one space.
struct FunctionPlace {
    bool kernel = false;
    SpaceId space;  // of a user function
    VirtAddr start;
    std::uint32_t function_id = 0;
};

struct NameOptions {
    std::vector<std::filesystem::path> debug_folders;  // searched before /usr/lib/debug
    std::filesystem::path sysroot;                     // files of the recording are below this folder
    std::filesystem::path jit_map;                     // instead of /tmp/perf-PID.map
    std::filesystem::path kernel_symbols;              // instead of the recording's: kallsyms or System.map
    bool demangle = true;
    // Finding stacks and per-CPU data takes a pass over the recording.
    bool find_stacks = true;
    unsigned threads = 1;
};

class Names {
  public:
    static Result<Names> load(const recording::Recording& recording, const NameOptions& options);
    Names(Names&&) noexcept;
    Names& operator=(Names&&) noexcept;
    Names(const Names&) = delete;
    Names& operator=(const Names&) = delete;
    ~Names();

    // Both may be called from several threads; texts live as long as the object. Logarithmic: callers keep
    // the answer per block or page.
    [[nodiscard]] Name function_at(SpaceId space, VirtAddr address) const;
    [[nodiscard]] Region region_of(SpaceId space, VirtAddr address) const;

    // The kernel's own code and data; empty when unknown.
    [[nodiscard]] addrspace::AddressRange kernel_image() const;

    [[nodiscard]] Name name_of(std::uint32_t function_id) const;
    // Bytes of all its parts.
    [[nodiscard]] std::uint64_t bytes_of(std::uint32_t function_id) const;
    // Functions of this name, mangled or not, and the system call wrappers of a sys_NAME: __x64_sys_NAME,
    // __ia32_sys_NAME, __arm64_sys_NAME ... In every space that has them.
    [[nodiscard]] std::vector<FunctionPlace> functions_named(std::string_view name) const;
    // Ids are below this.
    [[nodiscard]] std::uint32_t function_count() const;
    [[nodiscard]] std::span<const std::string> warnings() const;
    // How kernel stacks were found and how sure that is; empty when there was nothing to find out.
    [[nodiscard]] const std::string& stack_note() const;

  private:
    struct State;
    explicit Names(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace tlbscope::explain
