// Stacks and per-CPU data, found by what the instructions do.
//
// Problem: on x86_64 a kernel stack lies in vmalloc space like much else, a thread's stack in an anonymous
// mapping, and the CPU's own data somewhere in the linear map. Idea: the dictionary has every instruction's
// bytes, so one pass over the recording finds the pages that were addressed through the stack pointer
// (pushes, pops, calls, returns, operands based on it) or, in an x86 kernel, through %gs. That is certain. A
// stack's other pages are touched through other registers too, so in vmalloc space the whole aligned block of
// a stack's size counts once one of its pages is certain, and so do pages of the linear map between two
// per-CPU pages that lie close together. That is inferred, and counted apart. Rejected: the frame pointer,
// which is a general register in most builds.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "addrspace/regions.h"
#include "core/error.h"
#include "core/types.h"
#include "recording/recording.h"

namespace tlbscope::explain {

using addrspace::KernelLayout;
using addrspace::Region;

class StackPages {
  public:
    // kKernelStack, kKernelPercpu, or kUnknown when the address alone says. Pages have 4 KiB.
    [[nodiscard]] Region kernel_region(std::uint64_t page) const;
    [[nodiscard]] bool is_user_stack(SpaceId space, std::uint64_t page) const;
    // What was found and how sure it is, in one sentence; empty when nothing was.
    [[nodiscard]] std::string note() const;

    struct Found {
        std::size_t certain = 0;
        std::size_t inferred = 0;
    };
    [[nodiscard]] Found stacks() const { return stacks_; }
    [[nodiscard]] Found percpu() const { return percpu_; }

  private:
    friend class StackFinder;
    std::unordered_map<std::uint64_t, Region> kernel_;  // by page
    std::map<SpaceId, std::unordered_set<std::uint64_t>> user_;
    Found stacks_;
    Found percpu_;
    std::uint64_t stack_bytes_ = 0;
};

[[nodiscard]] Result<StackPages> find_stacks(const recording::Recording& recording,
                                             const KernelLayout& layout, unsigned threads);

}  // namespace tlbscope::explain
