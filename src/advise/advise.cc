#include "advise/advise.h"

#include <algorithm>

#include "advise/pins.h"

namespace tlbscope::advise {

namespace {

constexpr std::size_t kPaired = 6;
constexpr double kNearlyAsGood = 0.95;

void rank(std::vector<Trial>& trials) {
    std::stable_sort(trials.begin(), trials.end(), [](const Trial& a, const Trial& b) {
        if (a.cycles != b.cycles) return a.cycles < b.cycles;
        return a.costs.memory < b.costs.memory;
    });
}

// The best software remedies, of those that map the same regions the best only.
std::vector<Remedy> to_pair(const Advice& advice) {
    std::vector<Remedy> chosen;
    for (const Trial& trial : advice.trials) {
        const Remedy& remedy = trial.remedy;
        if (remedy.hardware() || advice.saved(trial) <= 0 || chosen.size() == kPaired) continue;
        if (std::none_of(chosen.begin(), chosen.end(), [&](const Remedy& other) {
                return other.family == remedy.family && other.regions == remedy.regions;
            }))
            chosen.push_back(remedy);
    }
    return chosen;
}

}  // namespace

std::optional<std::size_t> what_first(const Advice& advice) {
    std::int64_t most = 0;
    for (const Trial& trial : advice.trials)
        if (!trial.remedy.hardware()) most = std::max(most, advice.saved(trial));
    std::optional<std::size_t> first;
    for (std::size_t i = 0; i < advice.trials.size(); ++i) {
        const Trial& trial = advice.trials[i];
        const std::int64_t saved = advice.saved(trial);
        if (saved <= 0 || (most > 0 && trial.remedy.hardware()) ||
            static_cast<double>(saved) < kNearlyAsGood * static_cast<double>(most))
            continue;
        // They are ranked: of equals the first saves the most.
        if (!first || (most > 0 && trial.costs.memory < advice.trials[*first].costs.memory)) first = i;
    }
    return first;
}

Result<Advice> advise(const recording::Recording& recording, const Options& options) {
    Laboratory laboratory(recording, options);
    if (auto done = laboratory.measure_base(); !done) return std::unexpected(done.error());
    Advice advice{.ledger = laboratory.base_ledger(), .base = laboratory.base()};

    const Facts facts{.machine = advice.base.machine,
                      .metadata = recording.metadata(),
                      .ledger = advice.ledger,
                      .survey = laboratory.survey()};
    auto trials = laboratory.attempt(remedies_for(facts), "remedies");
    if (!trials) return std::unexpected(trials.error());
    advice.trials = std::move(*trials);

    if (!laboratory.stopped()) {
        auto pins = best_pins(laboratory);
        if (!pins) return std::unexpected(pins.error());
        advice.pins = std::move(*pins);
    }
    if (!advice.pins.empty()) advice.trials.push_back(advice.pins.back());
    rank(advice.trials);
    advice.first = what_first(advice);

    const std::vector<Remedy> best = to_pair(advice);
    std::vector<Remedy> pairs;
    for (std::size_t a = 0; a < best.size(); ++a)
        for (std::size_t b = a + 1; b < best.size(); ++b)
            if (independent(best[a], best[b])) pairs.push_back(both(best[a], best[b]));
    auto paired = laboratory.attempt(pairs, "pairs");
    if (!paired) return std::unexpected(paired.error());
    advice.pairs = std::move(*paired);
    rank(advice.pairs);
    if (!advice.pairs.empty() && advice.saved(advice.pairs.front()) > 0)
        advice.pair_helps = std::all_of(advice.trials.begin(), advice.trials.end(), [&](const Trial& trial) {
            return trial.remedy.hardware() || advice.pairs.front().cycles < trial.cycles;
        });
    advice.stopped = laboratory.stopped();
    advice.untried = laboratory.untried();
    advice.refusals = laboratory.refusals();
    advice.passes = laboratory.passes();
    advice.replays = laboratory.replays();
    return advice;
}

}  // namespace tlbscope::advise
