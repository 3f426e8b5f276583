#include "machine/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/numbers.h"

namespace tlbscope::machine {

namespace {

// The largest of the array's sizes that is not larger than the page.
std::optional<PageShift> size_in(const TlbDescription& tlb, PageShift page) {
    std::optional<PageShift> size;
    for (const PageShift candidate : tlb.pages)
        if (candidate <= page) size = candidate;
    return size;
}

}  // namespace

Result<Routes> Routes::of(const Machine& machine) {
    Routes routes;
    routes.levels_ = machine.levels();
    std::set<PageShift> used{machine.pages.base};
    for (const addrspace::MappingRule& rule : machine.rules) used.insert(rule.size);

    // Sizes first, as numbers depend on all of them.
    struct Choice {
        std::uint32_t array = 0;
        PageShift size;
    };
    std::set<PageShift> sizes;
    std::vector<std::array<std::array<std::optional<Choice>, kMostLevels>, 2>> choices;
    for (const PageShift page : used) {
        auto& of_page = choices.emplace_back();
        for (const Kind kind : {Kind::kInstruction, Kind::kData})
            for (std::uint32_t level = 1; level <= routes.levels_; ++level) {
                std::optional<Choice>& choice = of_page[static_cast<std::size_t>(kind)][level - 1];
                std::string two;  // the second array of two
                for (std::uint32_t i = 0; i < machine.tlbs.size(); ++i) {
                    const TlbDescription& tlb = machine.tlbs[i];
                    const auto size = size_in(tlb, page);
                    if (tlb.level != level || !tlb.serves(kind) || !size) continue;
                    if (choice && choice->size == *size) two = "tlb." + tlb.name;
                    if (!choice || *size > choice->size) {
                        choice = Choice{.array = i, .size = *size};
                        two.clear();
                    }
                }
                const char* word = kind == Kind::kInstruction ? "instruction" : "data";
                if (!two.empty())
                    return fail(two,
                                fmt::format("two arrays of level {} hold {} pages for {} references", level,
                                            size_name(page.bytes()), word),
                                "list each size in one array's pages only");
                if (level == 1 && !choice)
                    return fail("",
                                fmt::format("no first-level array holds {} pages for {} references",
                                            size_name(page.bytes()), word),
                                "add the size, or a smaller one, to the pages of an array");
                if (choice) sizes.insert(choice->size);
            }
    }
    routes.sizes_.assign(sizes.begin(), sizes.end());
    if (routes.sizes_.size() > kMostSizes)
        return fail("",
                    fmt::format("this mapping uses entries of {} sizes; a replay tells {} apart",
                                routes.sizes_.size(), kMostSizes),
                    "use fewer page sizes in one replay");

    std::array<std::set<std::uint32_t>, 2> first;
    std::size_t at = 0;
    for (const PageShift page : used) {
        Page entry{.size = page, .routes = {}};
        for (const std::size_t kind : {0, 1})
            for (std::uint32_t level = 0; level < routes.levels_; ++level)
                if (const auto& choice = choices[at][kind][level]) {
                    const auto number = std::find(routes.sizes_.begin(), routes.sizes_.end(), choice->size) -
                                        routes.sizes_.begin();
                    entry.routes[kind][level] =
                        Stop{.array = choice->array, .size = static_cast<std::uint8_t>(number)};
                    if (level == 0) first[kind].insert(choice->array);
                }
        ++at;
        routes.pages_.push_back(entry);
    }
    routes.split_ = first[0].size() == 1 && first[1].size() == 1 && *first[0].begin() != *first[1].begin();
    routes.simple_ = routes.split_ && routes.levels_ == 1 && routes.sizes_.size() == 1 && used.size() == 1;
    return routes;
}

const Routes::Route& Routes::route(Kind kind, PageShift page) const {
    const auto found =
        std::find_if(pages_.begin(), pages_.end(), [page](const Page& p) { return p.size == page; });
    return found->routes[static_cast<std::size_t>(kind)];
}

}  // namespace tlbscope::machine
