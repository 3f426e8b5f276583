#include "explain/miss_totals.h"

#include <fmt/format.h>

namespace tlbscope::explain {

namespace {

std::string file_name(std::string_view path) { return std::string(path.substr(path.find_last_of('/') + 1)); }

void add(KindCounts& to, const KindCounts& from) {
    to[0] += from[0];
    to[1] += from[1];
}

}  // namespace

void MissTotals::looked_up(const replay::Lookups& lookups) {
    if (lookups.walked.empty()) return;
    replay::locate(lookups, misses_);
    shift_ = lookups.shift;
    for (const replay::Miss& miss : misses_) {
        const auto kind = static_cast<std::size_t>(miss.kind);
        const bool kernel = miss.side == Side::kKernel;
        ++pages_[{miss.page, kernel ? 0 : lookups.recorded.value()}][kind];
        if (miss.block == replay::kNoBlock) {
            ++unknown_[""][kind];
            continue;
        }
        const recording::Dictionary& dictionary = recording_.dictionary();
        const recording::Block& block = dictionary[miss.block];
        const VirtAddr address = dictionary.instruction_address(block, miss.instruction);
        const Name name = names_.function_at(lookups.recorded, address);
        if (name.function_id != 0)
            ++functions_[name.function_id][kind];
        else
            ++unknown_[file_name(name.object)][kind];
    }
}

std::map<RowName, KindCounts> MissTotals::by_function() const {
    std::map<RowName, KindCounts> rows;
    for (const auto& [id, counts] : functions_) {
        const Name name = names_.name_of(id);
        add(rows[{std::string(name.function), file_name(name.object)}], counts);
    }
    for (const auto& [object, counts] : unknown_) add(rows[{std::string(kUnknownFunction), object}], counts);
    return rows;
}

std::map<RowName, KindCounts> MissTotals::by_region() const {
    std::map<RowName, KindCounts> rows;
    for (const auto& [key, counts] : pages_) {
        const Region region = names_.region_of(SpaceId(key.space), VirtAddr(key.page << shift_.value()));
        add(rows[{std::string(addrspace::name_of(region)), ""}], counts);
    }
    return rows;
}

std::map<RowName, KindCounts> MissTotals::by_page() const {
    std::map<RowName, KindCounts> rows;
    for (const auto& [key, counts] : pages_) {
        const VirtAddr address(key.page << shift_.value());
        const Name name = names_.function_at(SpaceId(key.space), address);
        std::string object(addrspace::name_of(names_.region_of(SpaceId(key.space), address)));
        if (!name.object.empty() && name.object != "[kernel]") object += " " + file_name(name.object);
        add(rows[{fmt::format("{:#x}", address.value()), object}], counts);
    }
    return rows;
}

}  // namespace tlbscope::explain
