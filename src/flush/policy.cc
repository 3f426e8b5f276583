#include "flush/policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "core/nearest.h"
#include "flush/broadcast.h"
#include "flush/radix.h"
#include "flush/x86.h"

namespace tlbscope::flush {

const std::vector<Policy>& policies() {
    static const std::vector<Policy> kPolicies = {
        {"before", "radix", "power9",
         "POWER radix before the series of 2017 (Linux 4.14): mostly PID flushes"},
        {"patch1", "radix", "power9", "before, and one barrier pair around the pages of a range"},
        {"patch2", "radix", "power9", "before, and the VA-range helper (moves code, changes no count)"},
        {"patch3", "radix", "power9", "before, and flush_tlb_range flushes the range"},
        {"patch4", "radix", "power9", "before, and a ceiling of its own for local flushes"},
        {"patch5", "radix", "power9", "before, and freed tables cost a walk-cache flush, not a PID flush"},
        {"patch6", "radix", "power9", "before, and single-threaded processes get their cpumask trimmed"},
        {"patch7", "radix", "power9", "before, and a spurious fault flushes locally"},
        {"series", "radix", "power9", "all seven patches"},
        {"today", "radix", "power9", "Linux 6.1: flush_type_needed with trimming of lazy CPUs"},
        {"today-ipi", "radix", "power9", "Linux 6.1 with tlbie disabled: IPIs and tlbiel"},
        {"x86", "x86", "skylake", "Linux 6.1 on x86: ceiling 33, IPIs, generations"},
        {"invlpgb", "x86", "zen4", "Linux 6.14 on AMD: INVLPGB for spaces active on three CPUs"},
        {"arm64", "arm64", "neoverse-n1", "Linux 6.1 on arm64: TLBI broadcast, by page below MAX_DVM_OPS"},
        {"arm64-range", "arm64", "neoverse-n1", "the same with range TLBI (FEAT_TLBIRANGE)"},
        {"riscv", "riscv", "sifive-u74", "Linux 6.1 on RISC-V: 64 pages, remote fences"},
    };
    return kPolicies;
}

Result<std::vector<Policy>> policies_named(const std::string& names) {
    std::vector<Policy> chosen;
    std::istringstream words(names);
    for (std::string word; std::getline(words, word, ',');) {
        std::vector<Policy> found;
        for (const Policy& policy : policies())
            if (policy.name == word || word == "all" ||
                (word == "patches" && policy.name.starts_with("patch")))
                found.push_back(policy);
        if (found.empty()) {
            std::vector<std::string> known = {"all", "patches"};
            for (const Policy& policy : policies()) known.emplace_back(policy.name);
            const std::string guess = nearest(word, known);
            return std::unexpected(Error{.where = "",
                                         .what = fmt::format("there is no flush policy \"{}\"", word),
                                         .hint = guess.empty() ? "`tlbscope flush --help` lists them"
                                                               : fmt::format("did you mean {}?", guess),
                                         .error_class = ErrorClass::kUsage});
        }
        for (const Policy& policy : found)
            if (std::none_of(chosen.begin(), chosen.end(),
                             [&](const Policy& other) { return other.name == policy.name; }))
                chosen.push_back(policy);
    }
    if (chosen.empty())
        return std::unexpected(Error{.where = "",
                                     .what = "--policy names none",
                                     .hint = "`tlbscope flush --help` lists them",
                                     .error_class = ErrorClass::kUsage});
    return chosen;
}

namespace {

std::unique_ptr<Flusher> make_rules(const Policy& policy, const machine::Machine& machine, PageShift page) {
    const machine::FlushCosts& numbers = machine.flush;
    if (policy.family == "x86") {
        X86Rules rules{.ceiling = numbers.ceiling,
                       .asids = machine.asids.count > 1 ? 6U : 0U,
                       .broadcast_pages = numbers.pages_at_once,
                       .page_bytes = page.bytes()};
        rules.broadcast = policy.name == "invlpgb";
        return std::make_unique<X86>(rules);
    }
    if (policy.family == "arm64")
        return std::make_unique<Arm64>(Arm64Rules{.range = policy.name == "arm64-range",
                                                  .most_operations = numbers.ceiling,
                                                  .page_bytes = page.bytes()});
    if (policy.family == "riscv")
        return std::make_unique<Riscv>(RiscvRules{
            .ceiling = numbers.ceiling, .asids = machine.asids.count > 1, .page_bytes = page.bytes()});
    const bool series = policy.name == "series";
    const auto has = [&](char number) {
        return series || (policy.name.starts_with("patch") && policy.name.back() == number);
    };
    RadixRules rules{.batch_barriers = has('1'),
                     .range_flush = has('3'),
                     .local_ceiling = has('4'),
                     .tables_by_range = has('5'),
                     .reset_cpumask = has('6'),
                     .local_spurious = has('7'),
                     .today = policy.name.starts_with("today"),
                     .no_tlbie = policy.name == "today-ipi",
                     .ceiling = numbers.ceiling,
                     .local_ceiling_pages = numbers.local_ceiling,
                     .pid_instructions = numbers.pid_instructions,
                     .page_bytes = page.bytes()};
    // The errata were found after the series.
    if (policy.name == "today") rules.fixups = numbers.fixups;
    return std::make_unique<Radix>(rules);
}

}  // namespace

std::unique_ptr<Flusher> make_flusher(const Policy& policy, const machine::Machine& machine, PageShift page) {
    auto flusher = make_rules(policy, machine, page);
    flusher->set_entries(machine.flush.entries);
    return flusher;
}

machine::Duration Cost::total() const {
    double squares = 0;
    machine::Duration sum;
    for (const machine::Duration& part : {instructions, barriers, interrupts, refills}) {
        sum.nanoseconds += part.nanoseconds;
        squares += part.error * part.error;
    }
    sum.error = std::sqrt(squares);
    return sum;
}

Cost cost_of(const Tally& tally, const machine::FlushCosts& costs) {
    const auto sum = [](std::initializer_list<std::pair<std::uint64_t, machine::Duration>> parts) {
        machine::Duration total;
        double squares = 0;
        for (const auto& [count, each] : parts) {
            total.nanoseconds += static_cast<double>(count) * each.nanoseconds;
            const double error = static_cast<double>(count) * each.error;
            squares += error * error;
        }
        total.error = std::sqrt(squares);
        return total;
    };
    const auto pid = static_cast<std::size_t>(TlbScope::kPid);
    const auto all = static_cast<std::size_t>(TlbScope::kAll);
    const std::uint64_t by_space = tally.local_instructions[pid] + tally.local_instructions[all];
    return {.instructions = sum({{tally.instructions(false) - by_space, costs.local},
                                 {by_space, costs.local_pid},
                                 {tally.instructions(true), costs.global}}),
            .barriers = sum(
                {{tally.local_barriers, costs.local_barrier}, {tally.global_barriers, costs.global_barrier}}),
            .interrupts = sum({{tally.ipis, costs.interrupt}, {tally.interrupted, costs.interrupted}}),
            .refills = sum({{tally.refills, costs.refill}})};
}

}  // namespace tlbscope::flush
