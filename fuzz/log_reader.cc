// Any bytes as a log: every reader takes every line it is given, and what is understood is replayed under a
// policy.
#include <cstddef>
#include <cstdint>
#include <string>

#include "flush/memory_manager.h"
#include "flush/radix.h"
#include "import_log/log.h"

namespace {

using namespace tlbscope;

struct Policy : flush::Listener {
    flush::Radix flusher{flush::RadixRules{.today = true}};
    void switched(std::uint32_t cpu, std::optional<SpaceId> space) override { flusher.switch_to(cpu, space); }
    void requested(const flush::Request& request) override { flusher.request(request); }
    void ended(SpaceId space) override { flusher.forget(space); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    auto input = import::Input::of_bytes("fuzz", {data, size});
    if (!input) return 0;
    Policy policy;
    // The first byte chooses whether faults are believed in.
    flush::MemoryManager manager({.faults = size > 0 && (data[0] & 1) != 0, .cpus_known = true}, policy);
    (void)import::read_log(
        std::move(*input),
        {.event = [&](const MemoryEvent& event) { manager.event(event); }, .operation = {}});
    return 0;
}
