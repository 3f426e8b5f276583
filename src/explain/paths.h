// Following paths through a recording: which executions belong to a call of `sys_read`, or lie between two
// marks.
//
// Problem: a recording is one stream per CPU in which a call is interrupted, preempted, and ends without a
// word. Idea: each task keeps a list of the calls it is in, made of the call and return instructions in the
// dictionary: a call notes the address behind itself, and what runs after a return instruction ends the
// innermost call that noted its address. A path's call begins with its function's first instruction, however
// control got there, and ends when the call that was innermost then has ended; so tail calls and retpolines
// do not matter. On x86 an interrupt or exception begins at its entry code (asm_sysvec_*, asm_exc_*,
// asm_common_interrupt) and ends with an iret; what runs in between is counted apart, as are other tasks.
// Rejected: comparing stack pointers, which the recording has only where an instruction happens to store
// through them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/error.h"
#include "explain/names.h"
#include "recording/recording.h"

namespace tlbscope::explain {

// A function by name, or "mark:1..mark:2".
struct Path {
    std::string text;
    bool between_marks = false;
    std::uint64_t first_mark = 0;
    std::uint64_t last_mark = 0;
    std::vector<FunctionPlace> functions;
};

[[nodiscard]] Result<Path> parse_path(const std::string& text, const recording::Recording& recording,
                                      const Names& names);

// One execution of a block as part of a call.
struct Execution {
    std::uint32_t block = 0;
    SpaceId space;
    std::uint16_t instructions = 0;            // that began
    std::span<const std::uint64_t> addresses;  // of its accesses
    std::uint32_t index = 0;                   // of the batch's executions
};

// What a call took that is not its own.
struct Apart {
    std::uint64_t interrupts = 0;         // interrupts and exceptions within
    std::uint64_t interrupt_fetches = 0;  // instructions fetched in them
    std::uint64_t elsewhere_fetches = 0;  // by other tasks on the CPU meanwhile
};

// Told what happens, in order. `call` counts the calls of a path from 0.
class PathSink {
  public:
    virtual ~PathSink() = default;
    // Before the execution with this index of the batch, whose next access has this index.
    virtual Result<void> begin(std::size_t path, std::uint64_t call, CpuId cpu, std::uint32_t block_index,
                               std::uint32_t access_index) = 0;
    virtual void execution(std::size_t path, std::uint64_t call, const Execution& execution) = 0;
    virtual Result<void> end(std::size_t path, std::uint64_t call, CpuId cpu, std::uint32_t block_index,
                             std::uint32_t access_index, const Apart& apart) = 0;
};

class PathTracker {
  public:
    PathTracker(const recording::Recording& recording, const Names& names, std::vector<Path> paths);

    Result<void> consume(const recording::Batch& batch, PathSink& sink);
    // Calls that had not ended when the recording did.
    [[nodiscard]] std::uint64_t unfinished(std::size_t path) const;
    // Whether interrupts are recognised on this target.
    [[nodiscard]] bool knows_interrupts() const { return knows_interrupts_; }
    [[nodiscard]] const std::vector<Path>& paths() const { return paths_; }

  private:
    enum Flag : std::uint8_t {
        kCall = 1,
        kReturn = 2,
        kInterruptReturn = 4,
        kInterruptEntry = 8,
        kVectorStub = 16,  // leads to an interrupt entry and is part of the interrupt
        kPathEntry = 32,
    };
    struct Active {
        std::size_t path = 0;
        std::uint64_t call = 0;
        std::size_t depth = 0;  // it ends when fewer calls than this are open; 0 for marks
        std::uint32_t nesting = 0;
        std::uint64_t fetched_before = 0;  // on the CPU
        std::uint64_t own_fetches = 0;
        Apart apart;
    };
    struct Task {
        std::vector<std::uint64_t> calls;  // return addresses, the innermost last
        std::uint32_t nesting = 0;         // of interrupts
        bool after_return = false;
        bool in_stub = false;
        std::vector<Active> active;
    };
    struct Cpu {
        SpaceId space;
        Task* task = nullptr;
        std::uint64_t fetched = 0;
    };
    struct At {
        CpuId cpu;
        std::uint32_t block = 0;
        std::uint32_t access = 0;
    };

    void classify();
    void switch_to(Cpu& cpu, CpuId id, SpaceId space);
    static void forget_outermost(Task& task, std::size_t count);
    Result<void> mark(Cpu& cpu, std::uint64_t number, const At& at, PathSink& sink);
    Result<void> begin(Cpu& cpu, std::size_t path, std::size_t depth, const At& at, PathSink& sink);
    Result<void> end(Cpu& cpu, std::size_t index, const At& at, PathSink& sink);
    Result<void> close_calls(Cpu& cpu, std::uint64_t address, const At& at, PathSink& sink);
    Result<void> enter(Cpu& cpu, std::uint64_t address, const At& at, PathSink& sink);

    const recording::Recording& recording_;
    const Names& names_;
    std::vector<Path> paths_;
    bool system_;
    bool knows_interrupts_ = false;
    std::vector<std::uint8_t> flags_;  // by dictionary entry
    std::unordered_multimap<std::uint64_t, std::pair<std::size_t, const FunctionPlace*>> entries_;
    std::map<std::uint32_t, Cpu> cpus_;
    std::map<std::uint32_t, Task> tasks_;  // by space, in user mode by CPU
    std::vector<std::uint64_t> calls_;     // begun, by path
};

}  // namespace tlbscope::explain
