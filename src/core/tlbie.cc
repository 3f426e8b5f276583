#include "core/tlbie.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/numbers.h"

namespace tlbscope {

namespace {

// Bits of rb, counted from the low end: IS 11:10, and with IS=0 AP 7:5 and the address above 12; with IS=1
// and tlbiel the set 21:12.
constexpr std::uint64_t is_of(std::uint64_t rb) { return (rb >> 10) & 3; }
constexpr std::uint64_t ap_of(std::uint64_t rb) { return (rb >> 5) & 7; }
constexpr std::uint64_t set_of(std::uint64_t rb) { return (rb >> 12) & 0x3ff; }

// Actual page size encodings of a radix TLB; 0 for one that is none. [R]
constexpr std::uint64_t bytes_of_ap(std::uint64_t ap) {
    switch (ap) {
        case 0:
            return std::uint64_t{1} << 12;
        case 5:
            return std::uint64_t{1} << 16;
        case 1:
            return std::uint64_t{1} << 21;
        case 2:
            return std::uint64_t{1} << 30;
        default:
            return 0;
    }
}

std::uint64_t ap_for(std::uint64_t bytes) {
    for (const std::uint64_t ap : {0, 5, 1, 2})
        if (bytes_of_ap(ap) == bytes) return ap;
    return 0;
}

}  // namespace

TlbOperation operation_of(const TlbieOperands& o) {
    TlbOperation operation{.source = TlbOperation::Source::kTlbie};
    operation.operands = o;
    operation.local = o.local;
    operation.walk_cache = o.ric != 0;
    operation.hardware = o.prs == 1 ? o.rs >> 32 : o.lpid;
    switch (is_of(o.rb)) {
        case 0:
            operation.scope = TlbScope::kPage;
            operation.bytes = bytes_of_ap(ap_of(o.rb));
            operation.start = VirtAddr(o.rb & ~std::uint64_t{0xfff});
            break;
        case 1:
        case 2:
            operation.scope = TlbScope::kPid;
            break;
        default:
            operation.scope = TlbScope::kAll;
    }
    if (o.ric == 1) operation.scope = TlbScope::kWalkCache;
    return operation;
}

std::string in_words(const TlbieOperands& o) {
    std::string what;
    const std::string owner = o.prs == 1 ? fmt::format("PID {}", o.rs >> 32)
                                         : fmt::format("partition {}", o.lpid != 0 ? o.lpid : o.rs);
    switch (is_of(o.rb)) {
        case 0: {
            const std::uint64_t bytes = bytes_of_ap(ap_of(o.rb));
            what = fmt::format(
                "page {:#x} ({}) of {}", o.rb & ~std::uint64_t{0xfff},
                bytes == 0 ? fmt::format("unknown size, AP {}", ap_of(o.rb)) : size_name(bytes), owner);
            break;
        }
        case 1:
            what = o.prs == 1 ? owner : "all of the current PID";
            break;
        case 2:
            what = o.prs == 1 ? fmt::format("every PID of partition {}", o.lpid) : owner;
            break;
        default:
            what = "every partition";
    }
    // tlbiel goes set by set; the walk cache is one operation, whatever the set.
    if (is_of(o.rb) != 0 && o.local && o.ric != 1) what = fmt::format("set {} of {}", set_of(o.rb), what);
    constexpr std::string_view kCaches[] = {"translations", "walk cache",
                                            "translations, walk cache and process table entry",
                                            "translations of a cluster"};
    return fmt::format("{}: {}, {}{}{}", o.local ? "tlbiel" : "tlbie", what, kCaches[o.ric & 3],
                       o.prs == 1 ? "" : ", partition-scoped", o.r == 1 ? "" : ", hashed");
}

std::string kind_in_words(const TlbieOperands& o) {
    constexpr std::string_view kCaches[] = {"translations", "walk cache",
                                            "translations, walk cache and process table entry",
                                            "translations of a cluster"};
    const std::uint64_t bytes = bytes_of_ap(ap_of(o.rb));
    const bool kernel = o.prs == 1 && o.rs >> 32 == 0;
    const std::string what =
        is_of(o.rb) == 0   ? fmt::format("a page of {}", bytes == 0 ? "unknown size" : size_name(bytes))
          : is_of(o.rb) == 1 ? std::string(o.local && o.ric != 1 ? "a set of a PID" : "a PID")
        : is_of(o.rb) == 2 ? std::string("a partition")
                           : std::string("every partition");
    return fmt::format("{}: {}, {}{}{}{}", o.local ? "tlbiel" : "tlbie", what, kCaches[o.ric & 3],
                       kernel ? ", the kernel's own" : "", o.prs == 1 ? "" : ", partition-scoped",
                       o.r == 1 ? "" : ", hashed");
}

std::optional<TlbieOperands> parse_tlbie(std::string_view text) {
    TlbieOperands operands{.prs = 1, .r = 1};
    bool have_rb = false;
    bool have_rs = false;
    std::size_t at = 0;
    const auto word_char = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    while (at < text.size()) {
        const std::size_t equals = text.find('=', at);
        if (equals == std::string_view::npos) break;
        std::size_t begin = equals;
        while (begin > at && word_char(text[begin - 1])) --begin;
        const std::string_view name = text.substr(begin, equals - begin);
        std::size_t end = equals + 1;
        while (end < text.size() && word_char(text[end])) ++end;
        std::string_view digits = text.substr(equals + 1, end - equals - 1);
        at = std::max(end, equals + 1);
        int base = 10;
        if (digits.starts_with("0x") || digits.starts_with("0X")) {
            digits.remove_prefix(2);
            base = 16;
        }
        std::uint64_t value = 0;
        const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
        if (error != std::errc() || rest != digits.data() + digits.size()) return std::nullopt;
        if (name == "lpid")
            operands.lpid = value;
        else if (name == "local")
            operands.local = value != 0;
        else if (name == "rb") {
            operands.rb = value;
            have_rb = true;
        } else if (name == "rs") {
            operands.rs = value;
            have_rs = true;
        } else if (name == "ric")
            operands.ric = value;
        else if (name == "prs")
            operands.prs = value;
        else if (name == "r")
            operands.r = value;
    }
    if (!have_rb || !have_rs) return std::nullopt;
    return operands;
}

TlbieOperands tlbie_page(std::uint64_t address, std::uint64_t page_bytes, std::uint64_t pid, bool local) {
    return {.lpid = 0,
            .local = local,
            .rb = (address & ~std::uint64_t{0xfff}) | ap_for(page_bytes) << 5,
            .rs = pid << 32,
            .ric = 0,
            .prs = 1,
            .r = 1};
}

TlbieOperands tlbie_pid(std::uint64_t pid, std::uint64_t set, std::uint64_t ric, bool local) {
    return {
        .lpid = 0, .local = local, .rb = 0x400 | set << 12, .rs = pid << 32, .ric = ric, .prs = 1, .r = 1};
}

}  // namespace tlbscope
