#include "tables/strategy.h"

#include <fmt/format.h>

#include "core/nearest.h"

namespace tlbscope::tables {

using pagetable::CachePolicy;

std::string Strategy::name() const {
    std::string text = range ? "range" : "scan";
    if (!range && scan.only_32_bit) text += "-32";
    if (!range && scan.pairs) text += "-pairs";
    static constexpr std::string_view kCaches[] = {"", "+linux22", "+linux24", "+quicklist"};
    text += kCaches[static_cast<std::size_t>(cache)];
    if (lazy_fork) text += "+lazy-fork";
    return text;
}

Result<Strategy> parse_strategy(std::string_view text) {
    Strategy strategy;
    bool first = true;
    bool cached = false;
    std::string_view rest = text;
    while (true) {
        const std::size_t plus = rest.find('+');
        const std::string_view word = rest.substr(0, plus);
        const std::vector<std::string> words =
            first ? std::vector<std::string>{"scan", "scan-32", "scan-pairs", "scan-32-pairs", "range"}
                  : std::vector<std::string>{"linux22", "linux24", "quicklist", "lazy-fork"};
        std::size_t which = 0;
        while (which < words.size() && words[which] != word) ++which;
        if (which == words.size() || (!first && which < 3 && cached)) {
            const std::string guess = nearest(word, words);
            return fail("", fmt::format("{} is no strategy", text),
                        which < words.size() ? "give one cache policy, not two"
                        : guess.empty()
                            ? fmt::format("{} one of {}", first ? "it begins with" : "after a + comes",
                                          fmt::join(words, ", "))
                            : fmt::format("did you mean {}?", guess));
        }
        if (first) {
            strategy.range = which == 4;
            strategy.scan = {.only_32_bit = which == 1 || which == 3, .pairs = which == 2 || which == 3};
        } else if (which == 3) {
            strategy.lazy_fork = true;
        } else {
            strategy.cache = static_cast<CachePolicy>(which + 1);
            cached = true;
        }
        first = false;
        if (plus == std::string_view::npos) return strategy;
        rest.remove_prefix(plus + 1);
    }
}

std::vector<Strategy> usual_strategies() {
    std::vector<Strategy> all;
    for (const char* name : {"scan", "scan-32-pairs", "range", "scan+linux24", "range+linux24"})
        all.push_back(parse_strategy(name).value());
    return all;
}

}  // namespace tlbscope::tables
