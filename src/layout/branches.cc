#include "layout/branches.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "explain/flat_map.h"
#include "replay/pipeline.h"

namespace tlbscope::layout {

namespace {

struct Step {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    friend bool operator==(const Step&, const Step&) = default;
    [[nodiscard]] std::uint64_t hash() const { return (std::uint64_t{from} << 32 | to) * 0xbf58476d1ce4e5b9; }
};

}  // namespace

// BOLT calls a local function NAME/FILE/N when the symbol table says the file, and NAME/N when not; N counts
// the locals of one such name by address.
std::string bolt_name(const Image& image, const Function& function) {
    if (!function.local) return function.name;
    std::size_t number = 1;
    for (const Function& other : image.functions) {
        if (other.start >= function.start) break;
        if (other.local && other.name == function.name && other.file == function.file) ++number;
    }
    return function.file.empty() ? fmt::format("{}/{}", function.name, number)
                                 : fmt::format("{}/{}/{}", function.name, function.file, number);
}

Result<void> add_branches(const recording::Recording& recording, const Image& image, const Places& places,
                          unsigned threads, std::vector<Branch>& branches) {
    explain::FlatMap<Step, std::uint64_t> steps;
    const recording::Dictionary& dictionary = recording.dictionary();
    const std::uint64_t kernel_base = recording.metadata().kernel_base;
    std::map<std::uint32_t, std::uint32_t> last;  // by CPU: the block before
    constexpr std::uint32_t kNone = ~std::uint32_t{0};
    SpaceId space;  // of the image, where one bias holds for all
    auto read = replay::for_each_batch(
        recording, std::min(threads - 1, 3U),
        [&](const recording::Batch& batch) -> Result<void> {
            auto [entry, is_new] = last.try_emplace(batch.cpu.value(), kNone);
            std::uint32_t before = entry->second;
            auto odd = batch.odd.begin();
            for (std::uint32_t at = 0; at < batch.blocks.size(); ++at) {
                const std::uint32_t id = batch.blocks[at];
                if (before != kNone) ++steps[{before, id}];
                before = id;
                if (odd != batch.odd.end() && odd->ordinal == at) {
                    // A fault ended it before its last instruction: what follows is no branch of it.
                    if (odd->instructions < dictionary[id].instructions) before = kNone;
                    ++odd;
                }
            }
            entry->second = before;
            return {};
        },
        [](std::size_t) {});
    if (!read) return read;
    const auto bias = places.bias(space);
    if (!bias) return {};
    std::map<std::tuple<std::string, std::uint64_t, std::string, std::uint64_t>, std::uint64_t> sums;
    for (const Branch& branch : branches)
        sums[{branch.from, branch.from_offset, branch.to, branch.to_offset}] += branch.count;
    std::map<const Function*, std::string> names;
    const auto name_of = [&](const Function& function) -> const std::string& {
        std::string& name = names[&function];
        if (name.empty()) name = bolt_name(image, function);
        return name;
    };
    steps.for_each([&](const Step& step, std::uint64_t count) {
        const recording::Block& from = dictionary[step.from];
        const recording::Block& to = dictionary[step.to];
        if (from.instructions == 0) return;
        if (to.address.value() == from.address.value() + from.bytes) return;  // it fell through
        // A string instruction's next iteration.
        if (from.starts_with_repeat && to.address == from.last_instruction()) return;
        for (const recording::Block* block : {&from, &to})
            if ((block->address.value() >= kernel_base) != places.kernel()) return;
        const std::uint64_t source = from.last_instruction().value() - *bias;
        const std::uint64_t target = to.address.value() - *bias;
        const Function* const source_function = image.function_at(source);
        const Function* const target_function = image.function_at(target);
        if (source_function == nullptr || target_function == nullptr) return;
        sums[{name_of(*source_function), source - source_function->start, name_of(*target_function),
              target - target_function->start}] += count;
    });
    branches.clear();
    for (const auto& [key, count] : sums)
        branches.push_back({.from = std::get<0>(key),
                            .from_offset = std::get<1>(key),
                            .to = std::get<2>(key),
                            .to_offset = std::get<3>(key),
                            .count = count});
    return {};
}

}  // namespace tlbscope::layout
