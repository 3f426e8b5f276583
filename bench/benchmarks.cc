// The pieces a replay is made of, each by itself: decoding, TLB arrays, decoding and looking up together.
//
// Decode and Replay run on the recordings that bench/record has left in build/bench, or on those named in the
// variable TLBSCOPE_RECORDINGS (separated by colons); the arrays on a stream made here.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "machine/machine_file.h"
#include "machine/random.h"
#include "machine/tlb.h"
#include "recording/recording.h"
#include "replay/replay.h"

namespace {

using namespace tlbscope;

std::int64_t references_of(const recording::Recording& recording) {
    std::uint64_t references = 0;
    for (const auto& chunk : recording.chunks()) references += chunk.instructions + chunk.accesses;
    return static_cast<std::int64_t>(references);
}

void decode(benchmark::State& state, const std::string& path) {
    const auto recording = recording::Recording::open(path);
    if (!recording || recording->chunks().empty()) return state.SkipWithError("no recording");
    std::uint64_t sum = 0;
    for (auto _ : state) {
        recording::BatchReader reader(*recording, 0);
        for (std::size_t chunk = 0; chunk < recording->chunks().size(); ++chunk) {
            if (chunk != 0) reader.restart(chunk);
            for (auto batch = reader.next(); batch && *batch; batch = reader.next())
                sum += (*batch)->addresses.size();
        }
    }
    benchmark::DoNotOptimize(sum);
    state.SetItemsProcessed(state.iterations() * references_of(*recording));
}

void replay_on(benchmark::State& state, const std::string& path, const std::string& machine_name) {
    const auto recording = recording::Recording::open(path);
    const auto machine = machine::load_machine(machine_name);
    if (!recording || !machine) return state.SkipWithError("no recording or no machine");
    for (auto _ : state) {
        auto ledgers = replay::replay(*recording, {*machine}, {.threads = 1});
        if (!ledgers) return state.SkipWithError("the replay failed");
        benchmark::DoNotOptimize(ledgers);
    }
    state.SetItemsProcessed(state.iterations() * references_of(*recording));
}

// Page changes as programs make them: mostly among a few pages, now and then a new one.
std::vector<std::uint64_t> page_changes(std::size_t count) {
    machine::Random random(1);
    std::vector<std::uint64_t> keys(count);
    for (auto& key : keys) {
        const std::uint64_t r = random.next();
        key = (r & 31) != 0 ? (r >> 5) % 24 : (r >> 5) % 3000;
    }
    return keys;
}

void array(benchmark::State& state, machine::Replacement replacement) {
    const auto entries = static_cast<std::uint32_t>(state.range(0));
    const auto tlb = machine::make_tlb({.entries = entries, .ways = entries, .replacement = replacement}, 0);
    const std::vector<std::uint64_t> keys = page_changes(1U << 16);
    std::vector<std::uint32_t> misses(keys.size());
    for (auto _ : state) benchmark::DoNotOptimize(tlb->run(keys, misses.data()));
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(keys.size()));
}

std::vector<std::string> recordings() {
    std::vector<std::string> found;
    if (const char* named = std::getenv("TLBSCOPE_RECORDINGS"); named != nullptr) {
        std::istringstream names(named);
        for (std::string name; std::getline(names, name, ':');) found.push_back(name);
        return found;
    }
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(RECORDINGS, none))
        if (entry.path().extension() == ".rec") found.push_back(entry.path().string());
    return found;
}

}  // namespace

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    for (const auto& [name, policy] : {std::pair{"fifo-down", machine::Replacement::kFifoDown},
                                       std::pair{"lru", machine::Replacement::kLru}})
        benchmark::RegisterBenchmark((std::string("Array/") + name).c_str(), array, policy)
            ->Arg(8)
            ->Arg(32)
            ->Arg(512);
    for (const std::string& path : recordings()) {
        const std::string name = std::filesystem::path(path).stem().string();
        benchmark::RegisterBenchmark(("Decode/" + name).c_str(), decode, path)->Unit(benchmark::kMillisecond);
        for (const char* machine : {"mpc855t", "lru32"})
            benchmark::RegisterBenchmark(("Replay/" + name + "/" + machine).c_str(), replay_on, path, machine)
                ->Unit(benchmark::kMillisecond);
    }
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
