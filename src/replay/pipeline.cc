#include "replay/pipeline.h"

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace tlbscope::replay {

namespace {

using recording::Batch;
using recording::BatchReader;
using recording::Recording;

// A batch that owns what it points to.
class OwnedBatch {
  public:
    void copy(const Batch& batch) {
        blocks_.assign(batch.blocks.begin(), batch.blocks.end());
        addresses_.assign(batch.addresses.begin(), batch.addresses.end());
        odd_.assign(batch.odd.begin(), batch.odd.end());
        odd_slots_.assign(batch.odd_slots.begin(), batch.odd_slots.end());
        events_.assign(batch.events.begin(), batch.events.end());
        cpu_ = batch.cpu;
    }
    [[nodiscard]] Batch view() const {
        return {.cpu = cpu_,
                .blocks = blocks_,
                .addresses = addresses_,
                .odd = odd_,
                .odd_slots = odd_slots_,
                .events = events_};
    }

  private:
    CpuId cpu_;
    std::vector<std::uint32_t> blocks_;
    std::vector<std::uint64_t> addresses_;
    std::vector<recording::OddExecution> odd_;
    std::vector<recording::Slot> odd_slots_;
    std::vector<recording::Event> events_;
};

// What a ring passes on: a batch, the end of a chunk, or an error.
struct Item {
    enum class What { kBatch, kChunkEnd, kError } what = What::kBatch;
    OwnedBatch batch;
    Error error;
};

// One producer, one consumer, a fixed number of places. A batch takes tens of microseconds to decode, so a
// lock per batch does not show.
class Ring {
  public:
    explicit Ring(std::size_t places) : items_(places) {}

    // The next place to fill; nothing when the consumer has given up.
    Item* place() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopped_ || filled_ - emptied_ < items_.size(); });
        return stopped_ ? nullptr : &items_[filled_ % items_.size()];
    }
    void filled() {
        const std::lock_guard lock(mutex_);
        ++filled_;
        changed_.notify_all();
    }
    // The next item; valid until emptied().
    Item& item() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return filled_ > emptied_; });
        return items_[emptied_ % items_.size()];
    }
    void emptied() {
        const std::lock_guard lock(mutex_);
        ++emptied_;
        changed_.notify_all();
    }
    void stop() {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
        changed_.notify_all();
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Item> items_;
    std::size_t filled_ = 0;
    std::size_t emptied_ = 0;
    bool stopped_ = false;
};

void decode(const Recording& recording, std::size_t first, std::size_t step, Ring& ring) {
    std::optional<BatchReader> reader;
    for (std::size_t chunk = first; chunk < recording.chunks().size(); chunk += step) {
        if (reader)
            reader->restart(chunk);
        else
            reader.emplace(recording, chunk);
        for (bool more = true; more;) {
            Item* item = ring.place();
            if (item == nullptr) return;
            auto batch = reader->next();
            if (!batch) {
                item->what = Item::What::kError;
                item->error = batch.error();
            } else if (*batch) {
                item->what = Item::What::kBatch;
                item->batch.copy(**batch);
            } else {
                item->what = Item::What::kChunkEnd;
            }
            more = item->what == Item::What::kBatch;
            const bool failed = item->what == Item::What::kError;
            ring.filled();
            if (failed) return;
        }
    }
}

Result<void> decode_here(const Recording& recording, const std::function<Result<void>(const Batch&)>& consume,
                         const std::function<void(std::size_t)>& chunk_done) {
    std::optional<BatchReader> reader;
    for (std::size_t chunk = 0; chunk < recording.chunks().size(); ++chunk) {
        if (reader)
            reader->restart(chunk);
        else
            reader.emplace(recording, chunk);
        for (;;) {
            auto batch = reader->next();
            if (!batch) return std::unexpected(batch.error());
            if (!*batch) break;
            if (auto done = consume(**batch); !done) return done;
        }
        chunk_done(chunk);
    }
    return {};
}

}  // namespace

Result<void> for_each_batch(const Recording& recording, unsigned decoders,
                            const std::function<Result<void>(const Batch&)>& consume,
                            const std::function<void(std::size_t)>& chunk_done) {
    if (decoders == 0) return decode_here(recording, consume, chunk_done);

    // With several decoders the later ones only get ahead by what their rings hold, so those are deeper:
    // about a chunk each. A batch takes some 100 KiB.
    const std::size_t places = decoders == 1 ? 16 : 128;
    std::vector<std::unique_ptr<Ring>> rings;
    std::vector<std::jthread> threads;
    for (unsigned d = 0; d < decoders; ++d) {
        rings.push_back(std::make_unique<Ring>(places));
        threads.emplace_back(
            [&recording, d, decoders, ring = rings.back().get()] { decode(recording, d, decoders, *ring); });
    }
    Result<void> result;
    for (std::size_t chunk = 0; chunk < recording.chunks().size() && result; ++chunk) {
        Ring& ring = *rings[chunk % decoders];
        for (bool more = true; more;) {
            Item& item = ring.item();
            more = item.what == Item::What::kBatch;
            if (item.what == Item::What::kError) result = std::unexpected(item.error);
            if (item.what == Item::What::kBatch) result = consume(item.batch.view());
            if (!result) more = false;
            ring.emptied();
        }
        if (result) chunk_done(chunk);
    }
    for (const auto& ring : rings) ring->stop();
    return result;
}

}  // namespace tlbscope::replay
