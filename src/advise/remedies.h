// Remedies: changes of the mapping, the machine or its miss handler, in the words of `replay`'s options, so
// that what a remedy is said to leave is what a replay with these options leaves.
//
// remedies_for() goes through one table of makers; a new kind of remedy is a new entry there.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "addrspace/regions.h"
#include "advise/survey.h"
#include "core/types.h"
#include "machine/machine.h"
#include "recording/metadata.h"
#include "replay/ledger.h"

namespace tlbscope::advise {

struct Change {
    std::vector<std::string> sets;  // --set
    std::vector<std::string> maps;  // --map
    std::vector<std::string> pins;  // --pin
    std::string handler;            // --handler

    // "--set pages.base=16K --map kernel-linear=8M"
    [[nodiscard]] std::string options() const;
    // This change, then the other.
    [[nodiscard]] Change with(const Change& other) const;
};

enum class Family : std::uint8_t { kMap, kPin, kBase, kHandler, kEntries, kReplacement, kAsids };
[[nodiscard]] std::string_view name_of(Family family);

struct Remedy {
    Family family = Family::kMap;
    std::string title;  // "kernel-linear in 8M pages"
    Change change;
    std::uint32_t regions = 0;  // that a mapping covers: a bit each

    // Takes another chip, where the others take other software.
    [[nodiscard]] bool hardware() const { return family >= Family::kEntries; }
};

[[nodiscard]] constexpr std::uint32_t bit(addrspace::Region region) {
    return std::uint32_t{1} << static_cast<unsigned>(region);
}

// What makers look at.
struct Facts {
    const machine::Machine& machine;
    const recording::Metadata& metadata;
    const replay::Ledger& ledger;  // of the machine as it is
    const Survey& survey;
};

// Every remedy that could change something, in a fixed order. Pins are searched for (advise/pins.h).
[[nodiscard]] std::vector<Remedy> remedies_for(const Facts& facts);

// Both at once; nothing is said about whether that makes sense.
[[nodiscard]] Remedy both(const Remedy& a, const Remedy& b);
// Whether the two change different things.
[[nodiscard]] bool independent(const Remedy& a, const Remedy& b);

}  // namespace tlbscope::advise
