#include "advise/remedies.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>

#include "core/numbers.h"
#include "machine/handler.h"

namespace tlbscope::advise {

namespace {

using addrspace::Region;

constexpr std::uint32_t kAllUser =
    bit(Region::kUserText) | bit(Region::kUserHeap) | bit(Region::kUserStack) | bit(Region::kUserMmap);
constexpr std::uint32_t kAllKernel = bit(Region::kKernelText) | bit(Region::kKernelLinear) |
                                     bit(Region::kKernelVmalloc) | bit(Region::kKernelStack) |
                                     bit(Region::kKernelVmemmap) | bit(Region::kKernelPercpu) |
                                     bit(Region::kKernelIo);

// What a mapping remedy makes larger.
struct Scope {
    std::array<const char*, 2> words;  // of --map; the second may be missing
    std::uint32_t regions;
    // Only where each of its regions misses: otherwise a smaller scope says the same.
    bool needs_all;
};
constexpr Scope kScopes[] = {
    {{"kernel-linear", nullptr}, bit(Region::kKernelLinear), true},
    {{"kernel-text", nullptr}, bit(Region::kKernelText), true},
    {{"kernel-text", "kernel-linear"}, bit(Region::kKernelText) | bit(Region::kKernelLinear), true},
    {{"kernel-vmalloc", nullptr}, bit(Region::kKernelVmalloc), true},
    {{"kernel", nullptr}, kAllKernel, false},
    {{"user-text", nullptr}, bit(Region::kUserText), true},
    {{"user-heap", nullptr}, bit(Region::kUserHeap), true},
    {{"user-stack", nullptr}, bit(Region::kUserStack), true},
    {{"user-mmap", nullptr}, bit(Region::kUserMmap), true},
    {{"user", nullptr}, kAllUser, false},
};

void large_pages(const Facts& facts, std::vector<Remedy>& remedies) {
    const std::uint32_t missing = facts.survey.regions_missed();
    for (const Scope& scope : kScopes) {
        const std::uint32_t here = missing & scope.regions;
        if (here == 0 || (scope.needs_all && here != scope.regions)) continue;
        if (!scope.needs_all && std::has_single_bit(here)) continue;
        for (const PageShift size : facts.machine.pages.sizes) {
            if (size <= facts.machine.pages.base) continue;
            const std::string bytes = size_name(size.bytes());
            Remedy remedy{.family = Family::kMap, .title = {}, .change = {}, .regions = scope.regions};
            std::string words;
            for (const char* word : scope.words) {
                if (word == nullptr) continue;
                words += (words.empty() ? "" : " and ") + std::string(word);
                remedy.change.maps.push_back(fmt::format("{}={}", word, bytes));
            }
            if (!scope.needs_all) words = "all of " + words;
            remedy.title = fmt::format("{} in {} pages", words, bytes);
            remedies.push_back(std::move(remedy));
        }
    }
}

void base_pages(const Facts& facts, std::vector<Remedy>& remedies) {
    constexpr PageShift kMost{16};  // larger ones are no size for every page of a system
    for (const PageShift size : facts.machine.pages.sizes)
        if (size > facts.machine.pages.base && size <= kMost)
            remedies.push_back({.family = Family::kBase,
                                .title = fmt::format("base pages of {}", size_name(size.bytes())),
                                .change = {.sets = {"pages.base=" + size_name(size.bytes())}}});
}

void handlers(const Facts& facts, std::vector<Remedy>& remedies) {
    // Against a fixed cost per miss a derived one would prove nothing.
    if (!facts.machine.refill.derived || !facts.machine.refill.handler) return;
    const auto family = [](const std::string& format) { return format.substr(0, format.find('-')); };
    const machine::Handler& own = *facts.machine.refill.handler;
    for (const std::string& name : machine::handler_names()) {
        const auto handler = machine::load_handler(name);
        if (!handler || handler->name == own.name || family(handler->format) != family(own.format)) continue;
        remedies.push_back(
            {.family = Family::kHandler, .title = "handler " + name, .change = {.handler = name}});
    }
}

void more_entries(const Facts& facts, std::vector<Remedy>& remedies) {
    const auto& tlbs = facts.machine.tlbs;
    const auto add = [&](const std::string& title, std::uint32_t factor, auto chosen) {
        Remedy remedy{.family = Family::kEntries, .title = title, .change = {}};
        for (const machine::TlbDescription& tlb : tlbs)
            if (chosen(tlb))
                remedy.change.sets.push_back(
                    fmt::format("tlb.{}.entries={}", tlb.name, tlb.geometry.entries * factor));
        remedies.push_back(std::move(remedy));
    };
    for (const std::uint32_t factor : {2u, 4u}) {
        add(fmt::format("{} times the entries", factor), factor, [](const auto&) { return true; });
        if (tlbs.size() < 2) continue;
        for (const machine::TlbDescription& one : tlbs)
            add(fmt::format("{} times the entries of tlb.{}", factor, one.name), factor,
                [&](const auto& tlb) { return tlb.name == one.name; });
    }
}

void other_replacement(const Facts& facts, std::vector<Remedy>& remedies) {
    using machine::Replacement;
    const auto plain = [](Replacement policy) {
        return policy == Replacement::kFifoDown ? Replacement::kFifo : policy;
    };
    for (const Replacement policy : {Replacement::kLru, Replacement::kTreePlru, Replacement::kNru,
                                     Replacement::kFifo, Replacement::kRandom}) {
        Remedy remedy{.family = Family::kReplacement,
                      .title = fmt::format("{} replacement", machine::name_of(policy)),
                      .change = {}};
        for (const machine::TlbDescription& tlb : facts.machine.tlbs)
            if (plain(tlb.geometry.replacement) != policy)
                remedy.change.sets.push_back(
                    fmt::format("tlb.{}.replacement={}", tlb.name, machine::name_of(policy)));
        if (!remedy.change.sets.empty()) remedies.push_back(std::move(remedy));
    }
}

void more_asids(const Facts& facts, std::vector<Remedy>& remedies) {
    constexpr std::uint32_t kMost = 1022;  // that a replay tells apart
    const std::uint32_t count = facts.machine.asids.count;
    const bool costs = count < 2 ? facts.ledger.space_switches > 0 : facts.ledger.asid_reuses > 0;
    if (!costs || count >= kMost) return;
    const std::uint32_t more = std::clamp(count * 4, 16u, kMost);
    remedies.push_back({.family = Family::kAsids,
                        .title = fmt::format("{} address-space identifiers", more),
                        .change = {.sets = {fmt::format("asid.count={}", more)}}});
}

using Maker = void (*)(const Facts&, std::vector<Remedy>&);
constexpr Maker kMakers[] = {large_pages, base_pages, handlers, more_entries, other_replacement, more_asids};

}  // namespace

std::string Change::options() const {
    std::string text;
    const auto add = [&text](const char* option, const std::string& value) {
        text += fmt::format("{}{} {}", text.empty() ? "" : " ", option, value);
    };
    for (const std::string& set : sets) add("--set", set);
    if (!maps.empty()) add("--map", fmt::format("{}", fmt::join(maps, ",")));
    if (!pins.empty()) add("--pin", fmt::format("{}", fmt::join(pins, ",")));
    if (!handler.empty()) add("--handler", handler);
    return text;
}

Change Change::with(const Change& other) const {
    Change sum = *this;
    sum.sets.insert(sum.sets.end(), other.sets.begin(), other.sets.end());
    sum.maps.insert(sum.maps.end(), other.maps.begin(), other.maps.end());
    sum.pins.insert(sum.pins.end(), other.pins.begin(), other.pins.end());
    if (!other.handler.empty()) sum.handler = other.handler;
    return sum;
}

std::string_view name_of(Family family) {
    switch (family) {
        case Family::kMap:
            return "map";
        case Family::kPin:
            return "pin";
        case Family::kBase:
            return "base-pages";
        case Family::kHandler:
            return "handler";
        case Family::kEntries:
            return "entries";
        case Family::kReplacement:
            return "replacement";
        case Family::kAsids:
            break;
    }
    return "asids";
}

std::vector<Remedy> remedies_for(const Facts& facts) {
    std::vector<Remedy> remedies;
    for (const Maker maker : kMakers) maker(facts, remedies);
    return remedies;
}

Remedy both(const Remedy& a, const Remedy& b) {
    return {.family = a.family,
            .title = a.title + " + " + b.title,
            .change = a.change.with(b.change),
            .regions = a.regions | b.regions};
}

bool independent(const Remedy& a, const Remedy& b) {
    if (a.family != b.family) return true;
    return a.family == Family::kMap && (a.regions & b.regions) == 0;
}

}  // namespace tlbscope::advise
