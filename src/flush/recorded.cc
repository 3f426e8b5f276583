#include "flush/recorded.h"

#include <algorithm>
#include <unordered_map>

#include "recording/kernel_events.h"

namespace tlbscope::flush {

namespace {

using recording::Batch;
using recording::EventType;
using recording::KernelEvent;

// Invalidating instructions behind one report: one of POWER's is one; x86 reports a flush of so many pages.
std::uint64_t instructions_of(const TlbOperation& operation) {
    return operation.source == TlbOperation::Source::kTlbie
               ? 1
               : std::max<std::uint64_t>(1, operation.bytes / 4096);
}

class Merge {
  public:
    Merge(const recording::Recording& recording, std::span<Replay* const> replays, Observed& observed)
        : recording_(recording), events_(recording), replays_(replays), observed_(observed) {}

    Result<void> batch(const Batch& batch) {
        const auto& dictionary = recording_.dictionary();
        const auto& metadata = recording_.metadata();
        const std::uint32_t cpu = batch.cpu.value();
        std::size_t event = 0;
        std::size_t odd = 0;
        std::size_t access = 0;
        const auto user = [&](std::uint64_t address) {
            if (metadata.side(address) == Side::kUser)
                for (Replay* replay : replays_) replay->reference(cpu, address);
        };
        for (std::size_t i = 0; i <= batch.blocks.size(); ++i) {
            for (; event < batch.events.size() && batch.events[event].position <= i; ++event)
                if (batch.events[event].type == EventType::kInvalidate)
                    if (auto done = invalidated(cpu); !done) return done;
            if (i == batch.blocks.size()) break;
            const recording::Block& block = dictionary[batch.blocks[i]];
            user(block.address.value());
            if (block.bytes > 1) user(block.address.value() + block.bytes - 1);
            std::size_t accesses = block.slot_count;
            if (odd < batch.odd.size() && batch.odd[odd].ordinal == i) accesses = batch.odd[odd++].slot_count;
            for (; accesses > 0 && access < batch.addresses.size(); --accesses, ++access)
                user(batch.addresses[access]);
        }
        return {};
    }

    Result<void> drain() {
        for (;;) {
            auto more = step();
            if (!more) return std::unexpected(more.error());
            if (!*more) return {};
        }
    }

  private:
    // An invalidating instruction on `cpu` is about to run.
    Result<void> invalidated(std::uint32_t cpu) {
        const std::uint64_t ran = ++ran_[cpu];
        while (reported_[cpu] < ran) {
            auto more = step();
            if (!more) return std::unexpected(more.error());
            if (!*more) return {};
        }
        return {};
    }

    // The kernel's next event; false at the end.
    Result<bool> step() {
        auto next = events_.next();
        if (!next) return std::unexpected(next.error());
        if (!*next) return false;
        if (const auto* event = std::get_if<MemoryEvent>(&**next)) {
            for (Replay* replay : replays_) replay->event(*event);
        } else if (const auto* call = std::get_if<MemoryCall>(&**next)) {
            for (Replay* replay : replays_) replay->call(*call);
        } else {
            const auto& operation = std::get<TlbOperation>(**next);
            reported_[operation.cpu] += instructions_of(operation);
            observed_.add(operation);
        }
        return true;
    }

    const recording::Recording& recording_;
    recording::KernelEventReader events_;
    std::span<Replay* const> replays_;
    Observed& observed_;
    std::unordered_map<std::uint32_t, std::uint64_t> ran_;
    std::unordered_map<std::uint32_t, std::uint64_t> reported_;
};

}  // namespace

Result<void> replay_recording(const recording::Recording& recording, std::span<Replay* const> replays,
                              Observed& observed,
                              const std::function<void(std::uint64_t, std::uint64_t)>& progress) {
    Merge merge(recording, replays, observed);
    const auto chunks = recording.chunks();
    if (recording.metadata().granularity == recording::Granularity::kFull && !chunks.empty()) {
        recording::BatchReader reader(recording, 0);
        for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
            if (chunk != 0) reader.restart(chunk);
            for (;;) {
                auto batch = reader.next();
                if (!batch) return std::unexpected(batch.error());
                if (!*batch) break;
                if (auto done = merge.batch(**batch); !done) return done;
            }
            if (progress) progress(chunk + 1, chunks.size());
        }
    }
    return merge.drain();
}

}  // namespace tlbscope::flush
