// One pass over a recording: how much of what it holds, and a digest of the content.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "core/error.h"
#include "recording/recording.h"

namespace tlbscope::recording {

struct Summary {
    // References by kind * 4 + mode * 2 + side; iterations of repeated string instructions included.
    std::array<std::uint64_t, 8> references{};
    // Distinct 4 KiB pages, by kind * 2 + side.
    std::array<std::uint64_t, 4> pages{};
    std::uint64_t loads = 0;  // granularity full only, like the following
    std::uint64_t stores = 0;
    std::uint64_t repeats =
        0;  // instruction references that are further iterations of a repeated string instruction
    std::uint64_t executions = 0;
    std::array<std::uint64_t, 16> events{};         // by EventType
    std::array<std::uint64_t, 32> invalidations{};  // by Invalidation
    std::array<std::uint64_t, 4> barriers{};        // by Barrier
    // A 44x guest counts the misses of its own TLB by running these; nothing where the kernel has them not.
    struct OwnMisses {
        std::uint64_t refills = 0;              // executions of finish_tlb_load_44x
        std::uint64_t data_handler = 0;         // of DataTLBError44x: refills and page faults
        std::uint64_t instruction_handler = 0;  // of InstructionTLBError44x
    };
    std::optional<OwnMisses> own_misses;
    // Lowest and highest address of each side; lowest > highest when the side has none.
    std::array<std::uint64_t, 2> lowest{~std::uint64_t{0}, ~std::uint64_t{0}};
    std::array<std::uint64_t, 2> highest{};
    // Equal for two recordings exactly when they hold the same executions, accesses and events in the same
    // order (but for chance: 64 bits); free of file layout and host time.
    std::uint64_t digest = 0;

    [[nodiscard]] std::uint64_t of(Kind kind, Side side) const {
        const auto at = static_cast<std::size_t>(kind) * 4 + static_cast<std::size_t>(side);
        return references[at] + references[at + 2];
    }
    [[nodiscard]] std::uint64_t of_mode(Kind kind, Mode mode) const {
        const auto at = static_cast<std::size_t>(kind) * 4 + static_cast<std::size_t>(mode) * 2;
        return references[at] + references[at + 1];
    }
    [[nodiscard]] std::uint64_t total() const {
        std::uint64_t sum = 0;
        for (const std::uint64_t n : references) sum += n;
        return sum;
    }
};

// Reads all of the recording. Time linear in it; memory: a bit per 4 KiB page touched, in tables of 32 pages.
[[nodiscard]] Result<Summary> summarise(const Recording& recording);

}  // namespace tlbscope::recording
