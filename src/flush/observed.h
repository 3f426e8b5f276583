// What the kernel was seen doing, counted in the same kinds as a policy's account, so that the two can stand
// side by side.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/tlb_operation.h"

namespace tlbscope::flush {

struct Observed {
    using ByScope = std::array<std::uint64_t, kTlbScopes>;
    // powerpc:tlbie, which reports each instruction. The kernel's own translations have PID 0.
    ByScope local{};
    ByScope global{};
    ByScope kernel_local{};
    ByScope kernel_global{};
    // tlb:tlb_flush, which reports each flush: by reason.
    static constexpr std::size_t kFlushReasons = 6;
    static constexpr std::size_t kTaskSwitch = 0;
    static constexpr std::size_t kSentToOthers = 4;
    std::array<std::uint64_t, kFlushReasons + 1> flushes{};  // the last: reasons unknown here
    std::array<std::uint64_t, kFlushReasons + 1> full_flushes{};
    std::array<std::uint64_t, kFlushReasons + 1> pages{};  // of the others
    std::uint64_t tlbies = 0;
    std::uint64_t tlb_flushes = 0;

    void add(const TlbOperation& operation);
};

[[nodiscard]] constexpr std::string_view flush_reason_name(std::size_t reason) {
    // include/trace/events/tlb.h and mm_types.h, in today's words.
    constexpr std::string_view kNames[] = {"task switch",
                                           "remote shootdown",
                                           "local shootdown",
                                           "local MM shootdown",
                                           "remote IPI send",
                                           "remote wrong CPU",
                                           "other"};
    return kNames[reason];
}

}  // namespace tlbscope::flush
