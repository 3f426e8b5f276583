// What a kernel was seen doing to its TLBs: one instruction that a tracepoint reported, or one flush where
// the tracepoint reports those (x86's tlb:tlb_flush).
#pragma once

#include <cstdint>
#include <string_view>

#include "core/types.h"

namespace tlbscope {

enum class TlbScope : std::uint8_t {
    kPage = 0,       // one page
    kRange = 1,      // several pages
    kPid = 2,        // everything of one space
    kAll = 3,        // everything of every space
    kWalkCache = 4,  // the page-walk cache only: entries of tables, no translations
};
inline constexpr std::size_t kTlbScopes = 5;

[[nodiscard]] constexpr std::string_view name_of(TlbScope scope) {
    constexpr std::string_view kNames[] = {"page", "range", "pid", "all", "walk_cache"};
    return kNames[static_cast<std::size_t>(scope)];
}

// Operands of POWER's tlbie and tlbiel as the tracepoint powerpc:tlbie prints them.
struct TlbieOperands {
    std::uint64_t lpid = 0;
    bool local = false;  // tlbiel
    std::uint64_t rb = 0;
    std::uint64_t rs = 0;
    std::uint64_t ric = 0;  // 0: TLB, 1: page-walk cache, 2: both and the process table's entry
    std::uint64_t prs = 0;  // 1: process-scoped, 0: partition-scoped
    std::uint64_t r = 0;    // 1: radix, 0: hashed
    friend bool operator==(const TlbieOperands&, const TlbieOperands&) = default;
};

struct TlbOperation {
    // Where it was seen.
    enum class Source : std::uint8_t {
        kTlbie = 1,     // powerpc:tlbie, one instruction
        kTlbFlush = 2,  // tlb:tlb_flush (x86), one flush
    };
    Source source = Source::kTlbie;
    TlbScope scope = TlbScope::kPage;
    bool local = false;       // of this CPU only
    bool walk_cache = false;  // it empties the page-walk cache too
    std::uint32_t cpu = 0;
    std::uint64_t time = 0;      // nanoseconds; 0: unknown
    std::uint64_t hardware = 0;  // kTlbie: the PID (or LPID) it names; 0 for the kernel's own or unknown
    VirtAddr start;              // page and range
    std::uint64_t bytes = 0;     // page and range; kTlbFlush: pages x page size, start unknown
    TlbieOperands operands;      // kTlbie
    std::uint32_t reason = 0;    // kTlbFlush: the number in parentheses
    std::uint64_t position = 0;  // line of the log, or ordinal in the recording
    friend bool operator==(const TlbOperation&, const TlbOperation&) = default;
};

}  // namespace tlbscope
