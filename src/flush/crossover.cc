#include "flush/crossover.h"

#include <algorithm>
#include <cmath>

namespace tlbscope::flush {

namespace {

using machine::Duration;

Duration sum(std::initializer_list<std::pair<double, Duration>> parts) {
    Duration total;
    double squares = 0;
    for (const auto& [count, each] : parts) {
        total.nanoseconds += count * each.nanoseconds;
        squares += count * each.error * count * each.error;
    }
    total.error = std::sqrt(squares);
    return total;
}

}  // namespace

Duration Curve::by_page(std::uint64_t pages) const {
    const auto n = static_cast<double>(pages);
    if (!others) return sum({{1, costs.local_barrier}, {n, costs.local}});
    // A broadcast; where there is none, another CPU is interrupted and does the pages as this one does.
    if (costs.global.nanoseconds > 0)
        return sum({{1, costs.global_barrier},
                    {std::ceil(n / static_cast<double>(costs.pages_at_once)), costs.global}});
    return sum({{1, costs.interrupt}, {1, costs.interrupted}, {1, costs.local_barrier}, {n, costs.local}});
}

Duration Curve::by_space(double lost) const {
    if (!others)
        return sum({{1, costs.local_barrier},
                    {static_cast<double>(costs.pid_instructions), costs.local_pid},
                    {lost, costs.refill}});
    if (costs.global.nanoseconds > 0)
        return sum({{1, costs.global_barrier}, {1, costs.global}, {lost, costs.refill}});
    return sum({{1, costs.interrupt},
                {1, costs.interrupted},
                {1, costs.local_barrier},
                {static_cast<double>(costs.pid_instructions), costs.local_pid},
                {lost, costs.refill}});
}

Curve::Crossing Curve::crossing(double lost) const {
    // by_page grows with the pages and by_space does not depend on them. What both have in common (barriers,
    // interrupts) has no part in where they cross, so neither has its error.
    const Duration each = others && costs.global.nanoseconds > 0 ? costs.global : costs.local;
    const double at_once =
        others && costs.global.nanoseconds > 0 ? static_cast<double>(costs.pages_at_once) : 1;
    const Duration whole =
        others && costs.global.nanoseconds > 0
            ? sum({{1, costs.global}, {lost, costs.refill}})
            : sum({{static_cast<double>(costs.pid_instructions), costs.local_pid}, {lost, costs.refill}});
    const auto pages = [&](double nanoseconds, double price) {
        constexpr double kMost = 1e12;
        return price > 0 ? static_cast<std::uint64_t>(std::min(
                               kMost, std::floor(std::max(0.0, nanoseconds) / price + 1e-9) * at_once))
                         : static_cast<std::uint64_t>(kMost);
    };
    return {.pages = pages(whole.nanoseconds, each.nanoseconds),
            .least = pages(whole.nanoseconds - whole.error, each.nanoseconds + each.error),
            .most = pages(whole.nanoseconds + whole.error, each.nanoseconds - each.error)};
}

double Curve::total(std::uint64_t ceiling, double lost) const {
    double nanoseconds = 0;
    for (std::uint64_t pages = 0; pages < flushes.size(); ++pages)
        if (flushes[pages] > 0)
            nanoseconds += static_cast<double>(flushes[pages]) *
                           (pages <= ceiling && pages + 1 < flushes.size() ? by_page(pages).nanoseconds
                                                                           : by_space(lost).nanoseconds);
    return nanoseconds;
}

std::uint64_t Curve::best_ceiling(double lost) const {
    std::uint64_t best = 0;
    double least = total(0, lost);
    for (std::uint64_t ceiling = 1; ceiling < flushes.size(); ++ceiling)
        if (const double nanoseconds = total(ceiling, lost); nanoseconds < least) {
            least = nanoseconds;
            best = ceiling;
        }
    return best;
}

std::uint64_t Curve::kernel_ceiling() const { return others ? costs.ceiling : costs.local_ceiling; }

std::vector<Curve> crossover(const FlushSizes& sizes, const machine::FlushCosts& costs) {
    std::vector<Curve> curves;
    const double lost =
        sizes.requests == 0 ? 0 : static_cast<double>(sizes.resident) / static_cast<double>(sizes.requests);
    for (const bool others : {false, true}) {
        const auto& counts = others ? sizes.global : sizes.local;
        curves.push_back(
            {.others = others, .costs = costs, .flushes = {counts.begin(), counts.end()}, .lost_most = lost});
    }
    return curves;
}

}  // namespace tlbscope::flush
