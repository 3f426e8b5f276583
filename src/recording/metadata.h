// What a recording knows about itself besides the references.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/types.h"

namespace tlbscope::recording {

enum class Granularity : std::uint8_t {
    kFull,  // every reference
    kPage,  // changes of page
    kNone,  // no references: counts of invalidations, and the kernel's events
};
[[nodiscard]] constexpr std::string_view name_of(Granularity granularity) {
    constexpr std::string_view kNames[] = {"full", "page", "none"};
    return kNames[static_cast<std::size_t>(granularity)];
}

// A range of a space's addresses and the file behind it, as the guest mapped it.
struct MappedRange {
    SpaceId space;
    VirtAddr start;
    VirtAddr end;
    std::uint64_t file_offset = 0;
    std::string protection;  // "r-xp"
    std::string path;        // file, or a name in brackets
    std::string build_id;    // hex; empty when unknown
    friend bool operator==(const MappedRange&, const MappedRange&) = default;
};

struct Space {
    SpaceId id;
    std::uint32_t pid = 0;   // 0 when unknown
    std::string name;        // command name; empty when unknown
    std::uint64_t task = 0;  // what identified it in the run (address of the kernel's task), 0 in user mode
    friend bool operator==(const Space&, const Space&) = default;
};

struct Metadata {
    std::string tool_version;
    std::vector<std::string> command;
    std::string target;   // QEMU's name of the architecture: x86_64, ppc, ppc64, aarch64 ...
    bool system = false;  // kernel and user code of a whole machine, or one user program
    std::uint64_t kernel_base = ~std::uint64_t{0};  // addresses from here up are the kernel's side
    std::string qemu_version;
    std::string cpu_model;
    std::string kernel;  // release and version line
    std::string kernel_command_line;
    std::string kernel_build_id;
    std::uint32_t cpus = 1;
    bool deterministic = false;
    std::uint32_t interface_version = 0;  // of QEMU's plugin interface
    Granularity granularity = Granularity::kFull;
    std::string window;                     // what bounded the run, in words
    std::string outcome;                    // how the command ended, in words
    std::vector<std::string> not_recorded;  // what a reader must know is missing, one sentence each
    std::vector<Space> spaces;
    std::vector<MappedRange> maps;
    std::uint64_t early_ends = 0;  // executions that a fault ended midway
    std::uint64_t uncertain_instructions =
        0;  // most instructions that may be counted wrongly because of them
    // Invalidating instructions and barriers that were executed, by Invalidation and Barrier; what the events
    // of a recording of granularity `full` say as well.
    std::array<std::uint64_t, 32> invalidations{};
    std::array<std::uint64_t, 4> barriers{};
    std::uint32_t page_bytes = 0;          // the guest kernel's base page; 0 when unknown
    bool kernel_events = false;            // the kernel's own events were recorded (kernel_events.h)
    std::uint64_t lost_kernel_events = 0;  // of them, those its buffers had no room for

    [[nodiscard]] Side side(std::uint64_t address) const {
        return address >= kernel_base ? Side::kKernel : Side::kUser;
    }
};

}  // namespace tlbscope::recording
