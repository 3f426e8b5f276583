#include "explain/question.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/nearest.h"

namespace tlbscope::explain {

namespace {

std::unexpected<Error> wrong(std::string what, std::string hint) {
    return std::unexpected(Error{
        .where = "", .what = std::move(what), .hint = std::move(hint), .error_class = ErrorClass::kUsage});
}

std::vector<std::string> all_names() {
    std::vector<std::string> names;
    names.reserve(kDimensions.size());
    for (const Dimension dimension : kDimensions) names.emplace_back(name_of(dimension));
    return names;
}

Result<Dimension> dimension_named(const std::string& option, const std::string& name) {
    for (const Dimension dimension : kDimensions)
        if (name_of(dimension) == name) return dimension;
    const std::string guess = nearest(name, all_names());
    return wrong(fmt::format("{}: misses have no {}", option, name.empty() ? "nameless part" : name),
                 guess.empty() ? fmt::format("they have {}", fmt::join(all_names(), ", "))
                               : fmt::format("did you mean {}?", guess));
}

}  // namespace

std::string_view name_of(Dimension dimension) {
    constexpr std::array<std::string_view, kDimensions.size()> kNames{
        "mode", "kind", "side", "region", "function", "object", "page", "space", "cause"};
    return kNames[static_cast<std::size_t>(dimension)];
}

bool Question::needs(Dimension dimension) const {
    return std::find(by.begin(), by.end(), dimension) != by.end() ||
           std::any_of(filters.begin(), filters.end(),
                       [&](const Filter& filter) { return filter.dimension == dimension; });
}

Result<std::vector<Dimension>> parse_dimensions(const std::string& text) {
    std::vector<Dimension> dimensions;
    for (std::size_t from = 0; from <= text.size();) {
        const std::size_t comma = std::min(text.find(',', from), text.size());
        const std::string name = text.substr(from, comma - from);
        const auto dimension = dimension_named("--by", name);
        if (!dimension) return std::unexpected(dimension.error());
        if (std::find(dimensions.begin(), dimensions.end(), *dimension) != dimensions.end())
            return wrong(fmt::format("--by names {} twice", name), "once is enough");
        dimensions.push_back(*dimension);
        from = comma + 1;
    }
    return dimensions;
}

Result<Filter> parse_filter(const std::string& text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos)
        return wrong(fmt::format("--filter {}: it has no =", text), "for example --filter function=^sys_");
    const auto dimension = dimension_named("--filter", text.substr(0, equals));
    if (!dimension) return std::unexpected(dimension.error());
    try {
        return Filter{
            .dimension = *dimension,
            .text = text,
            .regex = std::regex(text.substr(equals + 1), std::regex::ECMAScript | std::regex::optimize)};
    } catch (const std::regex_error& problem) {
        return wrong(fmt::format("--filter {}: not a regular expression: {}", text, problem.what()),
                     "escape what is meant literally with a backslash");
    }
}

}  // namespace tlbscope::explain
