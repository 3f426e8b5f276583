#include "replay/notes.h"

#include <fmt/format.h>

#include <bit>
#include <set>

#include "addrspace/asids.h"
#include "addrspace/spaces.h"
#include "core/numbers.h"

namespace tlbscope::replay {

namespace {

std::size_t spaces_in(const recording::Metadata& metadata) {
    addrspace::Spaces spaces;
    std::set<SpaceId> different;
    for (const recording::Space& space : metadata.spaces) spaces.add(space.id, space.pid);
    for (const recording::Space& space : metadata.spaces) different.insert(spaces.same_as(space.id));
    return different.size();
}

}  // namespace

std::vector<std::string> notes_of(const Ledger& ledger, const recording::Metadata& metadata) {
    std::vector<std::string> notes;
    const machine::Machine& machine = ledger.machine;
    const unsigned page_shift = machine.pages.base.value();
    const unsigned needed = page_shift + static_cast<unsigned>(std::bit_width(ledger.pages_missed));
    if (needed > machine.address_bits)
        notes.push_back(fmt::format(
            "{} has {}-bit addresses and the recording uses more ({}): page numbers are kept whole, "
            "and a refill costs a fixed {} cycles",
            machine.name, machine.address_bits, metadata.target, machine.refill.cycles.value()));
    for (const UnusedRule& rule : ledger.unused_rules)
        // Machines come with rules for the kernel, which a lone program does without.
        if (!rule.own || !rule.kernel || metadata.system)
            notes.push_back(fmt::format("{}{} maps nothing: not referenced, or a later rule takes it",
                                        rule.own ? machine.name + "'s rule " : "the rule ", rule.text));
    if (!ledger.full())
        notes.emplace_back(
            "the recording keeps changes of page only: counts are exact, but repeated string instructions "
            "are not "
            "told from their iterations");
    if (!ledger.full() && page_shift > 12)
        notes.emplace_back(
            "a reference across the end of a 4K page counts as two lookups, though pages are larger here");
    const std::size_t spaces = spaces_in(metadata);
    if (!ledger.full() && spaces > 1)
        notes.push_back(fmt::format("{} address spaces are not told apart at this granularity", spaces));
    if (ledger.asid_reuses > 0) {
        std::uint64_t dropped = 0;
        for (const LevelCounts& level : ledger.levels) dropped += level.dropped;
        notes.push_back(
            fmt::format("address spaces took an identifier from another {} times (the machine has {}), "
                        "which dropped {} entries",
                        grouped(ledger.asid_reuses), machine.asids.count, grouped(dropped)));
    }
    if (machine.asids.count == 0 && ledger.space_switches > 0)
        notes.push_back(
            fmt::format("the machine has no identifiers: {} switches of address space flushed its TLBs",
                        grouped(ledger.space_switches)));
    if (machine.asids.count > addrspace::kMostAsids && spaces > addrspace::kMostAsids)
        notes.push_back(fmt::format("a replay tells {} identifiers apart; the machine has {}",
                                    addrspace::kMostAsids, machine.asids.count));
    if (ledger.invalidations_ignored > 0)
        notes.push_back(
            fmt::format("{} invalidations that the guest ran for its own MMU ({}) are not replayed",
                        grouped(ledger.invalidations_ignored), metadata.target));
    if (ledger.gaps > 0)
        notes.push_back(fmt::format("references are missing in {} places", grouped(ledger.gaps)));
    if (metadata.uncertain_instructions > 0)
        notes.push_back(
            fmt::format("faults ended {} executions midway; at most {} instructions are counted wrongly",
                        grouped(metadata.early_ends), grouped(metadata.uncertain_instructions)));
    for (const std::string& missing : metadata.not_recorded) notes.push_back("not recorded: " + missing);
    return notes;
}

}  // namespace tlbscope::replay
