#include "advise/pins.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "core/numbers.h"

namespace tlbscope::advise {

namespace {

constexpr std::size_t kCandidates = 8;
constexpr double kFlat = 0.01;     // of the cycles as it is
constexpr PageShift kLargest{24};  // 16M: larger pages are memory maps, not entries to spare

// "0xc0000000:8M", the pages that miss most first. The kernel's side only where programs come and go: a pin
// of theirs would be an entry for each.
std::vector<std::string> candidates(const Laboratory& laboratory) {
    const machine::Machine& machine = laboratory.base().machine;
    PageShift size = machine.pages.base;
    for (const PageShift other : machine.pages.sizes)
        if (other <= kLargest) size = std::max(size, other);
    std::map<std::uint64_t, std::uint64_t> misses;  // by large page
    for (const TouchedPage& page : laboratory.pages())
        if (page.space == explain::kKernelSpace || !laboratory.metadata().system)
            misses[page.address >> size.value()] += page.misses;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> order(misses.begin(), misses.end());
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    std::vector<std::string> pins;
    for (const auto& [page, count] : order)
        if (pins.size() < kCandidates && count > 0)
            pins.push_back(fmt::format("{:#x}:{}", page << size.value(), size_name(size.bytes())));
    return pins;
}

}  // namespace

Result<std::vector<Trial>> best_pins(Laboratory& laboratory) {
    std::vector<Trial> best;
    std::vector<std::string> left = candidates(laboratory);
    const auto least =
        static_cast<std::uint64_t>(kFlat * static_cast<double>(laboratory.base().cycles.value()));
    std::vector<std::string> pinned;
    while (best.size() < laboratory.options().most_pins && !left.empty()) {
        std::vector<Remedy> round;
        for (const std::string& pin : left) {
            Remedy remedy{.family = Family::kPin,
                          .title = fmt::format("pin {} entr{} of {}", pinned.size() + 1,
                                               pinned.empty() ? "y" : "ies", pin.substr(pin.rfind(':') + 1)),
                          .change = {.pins = pinned}};
            remedy.change.pins.push_back(pin);
            round.push_back(std::move(remedy));
        }
        auto trials = laboratory.attempt(
            round, fmt::format("pins, {} of at most {}", best.size() + 1, laboratory.options().most_pins));
        if (!trials) return std::unexpected(trials.error());
        // Of a round that was stopped the best pin is not known.
        if (trials->empty() || laboratory.stopped()) break;
        const auto winner =
            std::min_element(trials->begin(), trials->end(),
                             [](const Trial& a, const Trial& b) { return a.cycles < b.cycles; });
        const Cycles before = best.empty() ? laboratory.base().cycles : best.back().cycles;
        if (winner->cycles >= before ||
            before.value() - winner->cycles.value() < std::max<std::uint64_t>(least, 1))
            break;
        pinned = winner->remedy.change.pins;
        std::erase(left, pinned.back());
        best.push_back(std::move(*winner));
    }
    return best;
}

}  // namespace tlbscope::advise
