#include "worlds.h"

#include <fmt/format.h>

#include <algorithm>

namespace tlbscope::layout::testing {

using recording::testing::MadeBlock;
using recording::testing::MadeRun;

Image image_of_sizes(const std::vector<std::uint64_t>& sizes, const std::vector<std::size_t>& fixed,
                     std::uint32_t align) {
    Image image;
    image.path = "made";
    image.kernel = true;
    image.source = ImageSource::kLinkMap;
    std::uint64_t at = kImageStart;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        at = (at + align - 1) / align * align;
        const std::string name = fmt::format("f{}", i);
        const bool stays = std::find(fixed.begin(), fixed.end(), i) != fixed.end();
        image.pieces.push_back({.section = ".text." + name,
                                .object = fmt::format("o{}.o", i / 2),
                                .symbols = {name},
                                .start = at,
                                .size = sizes[i],
                                .align = align,
                                .output = 0,
                                .stays = stays ? Stays::kOwnPlace : Stays::kMoves,
                                .local = false});
        image.functions.push_back({.name = name, .start = at, .size = sizes[i], .local = false, .file = {}});
        at += sizes[i];
    }
    image.outputs.push_back({.name = ".text", .start = kImageStart, .end = at, .align = align});
    return image;
}

MadeRun random_run(machine::Random& random, const Image& image, std::size_t cpus, std::size_t length) {
    MadeRun run;
    for (int i = 0; i < 60; ++i) {
        MadeBlock block;
        const std::uint32_t instructions = 1 + random.below(8);
        std::uint64_t bytes = 0;
        for (std::uint32_t k = 0; k < instructions; ++k) {
            block.lengths.push_back(static_cast<std::uint8_t>(1 + random.below(15)));
            bytes += block.lengths.back();
        }
        if (random.below(5) == 0) {
            block.address = 0x400000 + random.below(8) * 4096 + random.below(4096);
        } else {
            const Piece& piece = image.pieces[random.below(static_cast<std::uint32_t>(image.pieces.size()))];
            if (piece.size <= bytes) continue;
            const auto room = static_cast<std::uint32_t>(piece.size - bytes + 1);
            block.address = piece.start + (random.below(3) == 0 ? 0 : random.below(room));
        }
        run.blocks.push_back(block);
    }
    const auto blocks = static_cast<std::uint32_t>(run.blocks.size());
    run.executions.resize(cpus);
    run.events.resize(cpus);
    for (std::size_t cpu = 0; cpu < cpus; ++cpu) {
        auto& executions = run.executions[cpu];
        while (executions.size() < length) {
            std::vector<std::uint32_t> body(1 + random.below(6));
            for (auto& block : body) block = random.below(blocks);
            const std::uint32_t passes = random.below(3) == 0 ? 1 + random.below(30) : 1;
            for (std::uint32_t pass = 0; pass < passes; ++pass)
                for (const std::uint32_t block : body) {
                    recording::testing::Execution execution{.translation = block, .begun = 0, .accesses = {}};
                    const auto count = static_cast<std::uint16_t>(run.blocks[block].lengths.size());
                    if (count > 1 && random.below(40) == 0)
                        execution.begun = static_cast<std::uint16_t>(1 + random.below(count - 1U));
                    executions.push_back(execution);
                }
            if (random.below(10) == 0) {
                const auto space = random.below(3);
                run.events[cpu].push_back(
                    {executions.size(),
                     {.position = 0, .type = recording::EventType::kSwitchSpace, .a = space, .b = 0}});
            }
            if (random.below(10) == 0) {
                const bool all = random.below(3) == 0;
                const auto what = all ? recording::Invalidation::kTlbia : recording::Invalidation::kTlbie;
                const std::uint64_t address = run.blocks[random.below(blocks)].address;
                run.events[cpu].push_back({executions.size(),
                                           {.position = 0,
                                            .type = recording::EventType::kInvalidate,
                                            .a = static_cast<std::uint64_t>(what),
                                            .b = all ? 0 : address}});
            }
        }
    }
    return run;
}

MadeRun run_of(const Image& image, const std::vector<std::uint32_t>& pieces) {
    MadeRun run;
    for (const Piece& piece : image.pieces) {
        MadeBlock block{.address = piece.start, .lengths = {}};
        for (std::uint64_t left = piece.size; left > 0;) {
            const auto length = static_cast<std::uint8_t>(std::min<std::uint64_t>(left, 15));
            block.lengths.push_back(length);
            left -= length;
        }
        run.blocks.push_back(block);
    }
    run.executions.resize(1);
    run.events.resize(1);
    for (const std::uint32_t piece : pieces)
        run.executions[0].push_back({.translation = piece, .begun = 0, .accesses = {}});
    return run;
}

}  // namespace tlbscope::layout::testing
