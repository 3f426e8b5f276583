// A million memory-management events under each flush policy: the time of one policy, and of the model of
// memory management that all share.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <vector>

#include "flush/replay.h"
#include "machine/machine_file.h"

namespace {

using namespace tlbscope;

constexpr std::size_t kEvents = 1'000'000;

// Processes that start, map, fault, protect, unmap and end, on four CPUs.
std::vector<MemoryEvent> make_events() {
    std::vector<MemoryEvent> events;
    std::uint64_t state = 1;
    const auto random = [&] {
        return state = state * 6364136223846793005ULL + 1442695040888963407ULL, state >> 33;
    };
    for (std::uint32_t process = 1; events.size() < kEvents; ++process) {
        const auto add = [&](MemoryEvent event) {
            event.process = process;
            event.cpu = static_cast<std::uint32_t>(process % 4);
            events.push_back(event);
        };
        add({.kind = MemoryEventKind::kExec});
        for (int i = 0; i < 200; ++i) {
            const VirtAddr start(0x7f0000000000 + random() % 512 * 0x10000);
            const std::uint64_t bytes = (1 + random() % 16) * 4096;
            switch (random() % 8) {
                case 0:
                    add({.kind = MemoryEventKind::kMap, .protection = 3, .start = start, .bytes = bytes});
                    break;
                case 1:
                    add({.kind = MemoryEventKind::kUnmap, .start = start, .bytes = bytes});
                    break;
                case 2:
                    add({.kind = MemoryEventKind::kProtect, .protection = 1, .start = start, .bytes = bytes});
                    break;
                default:
                    add({.kind = MemoryEventKind::kFault, .write = (random() & 1) != 0, .start = start});
            }
        }
        add({.kind = MemoryEventKind::kExit});
    }
    events.resize(kEvents);
    return events;
}

void replay(benchmark::State& state, const flush::Policy& policy) {
    static const std::vector<MemoryEvent> events = make_events();
    const auto machine = machine::load_machine(std::string(policy.machine));
    if (!machine) return state.SkipWithError("no machine");
    for (auto _ : state) {
        flush::Replay replay({{.policy = policy, .machine = *machine}}, {});
        for (const MemoryEvent& event : events) replay.event(event);
        replay.finish();
        benchmark::DoNotOptimize(replay.results().front().account->total());
    }
    state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kEvents));
}

}  // namespace

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    for (const flush::Policy& policy : flush::policies())
        benchmark::RegisterBenchmark(("Flush/" + std::string(policy.name)).c_str(), replay, policy)
            ->Unit(benchmark::kMillisecond);
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
