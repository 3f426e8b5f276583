#include "capture/collector.h"

#include <algorithm>
#include <cstring>

namespace tlbscope::capture {

using recording::EventType;
using recording::RawBuffer;
using recording::RawEvent;

namespace {
// zstd's level: 1 keeps up with the guest; higher ones save a tenth of the file for half as much again of the
// time.
constexpr int kCompressionLevel = 1;
constexpr std::size_t kMostWaitingChunks = 3;
}  // namespace

Packer::Packer(recording::Writer& writer) : writer_(writer), thread_([this] { run(); }) {}

Packer::~Packer() {
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void Packer::give(recording::EncodedChunk chunk) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return queue_.size() < kMostWaitingChunks || error_.has_value(); });
    if (error_) return;
    queue_.push_back(std::move(chunk));
    changed_.notify_all();
}

Result<void> Packer::finish() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return (queue_.empty() && !busy_) || error_.has_value(); });
    if (error_) return std::unexpected(*error_);
    return {};
}

bool Packer::failed() {
    const std::lock_guard lock(mutex_);
    return error_.has_value();
}

void Packer::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return closing_ || !queue_.empty(); });
        if (queue_.empty()) return;
        const recording::EncodedChunk chunk = std::move(queue_.front());
        queue_.pop_front();
        busy_ = true;
        changed_.notify_all();
        lock.unlock();
        const auto written = writer_.add(recording::pack(chunk, kCompressionLevel));
        lock.lock();
        busy_ = false;
        if (!written) {
            error_ = written.error();
            queue_.clear();
        }
        changed_.notify_all();
    }
}

Collector::Collector(Control& control, Packer& packer, recording::Granularity granularity,
                     std::uint64_t most_references)
    : control_(control),
      packer_(packer),
      granularity_(granularity),
      references_left_(most_references),
      dictionary_(recording::AccessTable(control.access_table)) {}

recording::Encoder& Collector::encoder(std::uint32_t cpu) {
    while (encoders_.size() <= cpu) {
        const auto next = static_cast<std::uint32_t>(encoders_.size());
        encoders_.push_back(
            recording::Encoder::create(granularity_, dictionary_, CpuId(next), control_.kernel_base));
        // The first CPU to be heard of runs the command; what the others ran before their first switch is
        // unknown.
        first_space_.push_back(static_cast<std::uint32_t>(space_tasks_.size()));
        space_tasks_.push_back(0);
        switched_.push_back(false);
        switches_.push_back({.cpu = next});
    }
    return *encoders_[cpu];
}

void Collector::take_translations() {
    const std::uint64_t written = control_.translation_written.load(std::memory_order_acquire);
    std::uint64_t at = control_.translation_read.load(std::memory_order_relaxed);
    if (at == written) return;
    const auto read = [&](void* to, std::size_t size) {
        auto* out = static_cast<std::uint8_t*>(to);
        for (std::size_t done = 0; done < size;) {
            const std::size_t place = at % kTranslationRingBytes;
            const std::size_t part = std::min<std::size_t>(size - done, kTranslationRingBytes - place);
            std::memcpy(out + done, control_.translation_ring + place, part);
            at += part;
            done += part;
        }
    };
    while (at < written) {
        const std::uint64_t start = at;
        std::uint64_t size = 0;
        read(&size, 8);
        if (size < 24 || size > written - start) {
            ++malformed_;
            at = written;
            break;
        }
        std::uint64_t address = 0;
        std::uint32_t counts[2] = {};
        read(&address, 8);
        read(counts, 8);
        translation_.resize(size - 24);
        read(translation_.data(), translation_.size());
        const std::span<const std::uint8_t> bytes(translation_);
        const std::size_t count = std::min<std::size_t>(counts[0], bytes.size());
        std::size_t code = 0;
        for (const std::uint8_t length : bytes.first(count)) code += length;
        dictionary_.add_translation({.address = VirtAddr(address),
                                     .lengths = bytes.first(count),
                                     .code = bytes.subspan(count, std::min(code, bytes.size() - count)),
                                     .starts_with_repeat = (counts[1] & 1) != 0});
        at = start + size;
    }
    control_.translation_read.store(at, std::memory_order_release);
    futex_wake(&control_.room);
}

// The guest shares its address space with QEMU in user mode and can scribble over the buffers, and a killed
// QEMU leaves its last words half written: what does not fit together is left out and counted.
std::size_t Collector::sound_prefix(const RawBuffer& buffer) const {
    const std::size_t known = dictionary_.translations();
    std::uint64_t before = 0;
    for (std::size_t i = 0; i < buffer.blocks.size(); ++i) {
        const std::uint64_t accesses = buffer.blocks[i] >> 32;
        if (static_cast<std::uint32_t>(buffer.blocks[i]) >= known || accesses < before ||
            accesses > buffer.addresses.size())
            return i;
        before = accesses;
    }
    return buffer.blocks.size();
}

void Collector::name_spaces(std::uint32_t cpu, std::span<RawEvent> events) {
    const auto space_of = [&](std::uint64_t task) {
        const auto [found, added] =
            spaces_.try_emplace(task, static_cast<std::uint32_t>(space_tasks_.size()));
        if (added) space_tasks_.push_back(task);
        return found->second;
    };
    for (RawEvent& event : events) {
        if (event.type != recording::kSwitchTask) continue;
        if (!switched_[cpu]) {
            switched_[cpu] = true;
            const std::uint32_t first = first_space_[cpu];
            if (spaces_.try_emplace(event.b, first).second) space_tasks_[first] = event.b;
        }
        event.type = static_cast<std::uint16_t>(EventType::kSwitchSpace);
        event.b = event.a;
        event.a = space_of(event.b);
        switches_[cpu].switches.push_back(
            {.task = event.b, .space = SpaceId(static_cast<std::uint32_t>(event.a))});
    }
}

void Collector::encode(std::uint32_t cpu, RawBuffer buffer) {
    if (limit_reached_) return;
    recording::Encoder& to = encoder(cpu);
    if (const std::size_t sound = sound_prefix(buffer); sound < buffer.blocks.size()) {
        malformed_ += buffer.blocks.size() - sound;
        const std::size_t accesses = std::min<std::size_t>(
            buffer.addresses.size(), sound < buffer.blocks.size() ? buffer.blocks[sound] >> 32 : 0);
        buffer.blocks = buffer.blocks.first(sound);
        buffer.addresses = buffer.addresses.first(accesses);
        buffer.keys = buffer.keys.first(accesses);
    }
    // With several CPUs the order of buffers is the order between them.
    events_.clear();
    if (encoders_.size() > 1)
        events_.push_back({.type = static_cast<std::uint16_t>(EventType::kTicket), .a = buffer.ticket});
    events_.insert(events_.end(), buffer.events.begin(), buffer.events.end());
    name_spaces(cpu, events_);
    for (const RawEvent& event : buffer.events) {
        if (event.type == static_cast<std::uint16_t>(EventType::kInvalidate))
            ++invalidations_[event.a % invalidations_.size()];
        if (event.type == static_cast<std::uint16_t>(EventType::kBarrier))
            ++barriers_[event.a % barriers_.size()];
    }
    buffer.events = events_;
    const std::uint64_t before = to.totals().references();
    if (!to.consume(buffer, references_left_)) {
        limit_reached_ = true;
        control_.stop_requested.store(1, std::memory_order_release);
    }
    references_left_ -= std::min(references_left_, to.totals().references() - before);
    if (to.full()) packer_.give(to.take());
    if (packer_.failed()) control_.stop_requested.store(1, std::memory_order_release);
}

void Collector::take_buffer(const BufferHeader& header, std::uint32_t index) {
    const BufferBody& raw = *body(&control_, index);
    if (first_time_ == 0) first_time_ = header.time_ns;
    encode(header.cpu % kMaxCpus,
           {.blocks = std::span(raw.block_words, std::min(header.blocks, kBufferBlocks + 1)),
            .keys = std::span(raw.keys, std::min(header.accesses, kBufferAccesses + kAccessSlack)),
            .addresses = std::span(raw.addresses, std::min(header.accesses, kBufferAccesses + kAccessSlack)),
            .events = std::span(raw.events, std::min(header.events, kBufferEvents + kEventSlack)),
            .ticket = header.ticket,
            .time_ns = header.time_ns - first_time_});
}

bool Collector::poll() {
    bool any = false;
    // Not until nothing is left: a guest that fills buffers as fast as they are encoded would never let the
    // recorder look at anything else, such as ctrl-C.
    for (std::uint32_t taken = 0; taken < kMostFull; ++taken) {
        // Buffers are taken from the lowest free one up, so no more are ever in use than this.
        const std::uint32_t used = std::min(kBufferCount, control_.next_cpu.load() + kMostFull + 8);
        std::uint32_t index = 0;
        while (index < used &&
               (control_.buffers[index].state.load(std::memory_order_acquire) != BufferState::kFull ||
                control_.buffers[index].ticket != next_ticket_))
            ++index;
        // A buffer's translations were told before it was handed over.
        take_translations();
        if (index == used) return any;
        any = true;
        take_buffer(control_.buffers[index], index);
        ++next_ticket_;
        control_.buffers[index].state.store(BufferState::kFree, std::memory_order_release);
        control_.full.fetch_sub(1, std::memory_order_acq_rel);
        futex_wake(&control_.room);
    }
    return any;
}

void Collector::drain() {
    while (poll()) {
    }
    // Whatever is full and out of sequence: QEMU died between taking a ticket and handing over.
    std::vector<std::uint32_t> left;
    for (std::uint32_t i = 0; i < kBufferCount; ++i)
        if (control_.buffers[i].state.load() == BufferState::kFull) left.push_back(i);
    std::sort(left.begin(), left.end(),
              [&](auto a, auto b) { return control_.buffers[a].ticket < control_.buffers[b].ticket; });
    for (const std::uint32_t i : left) take_buffer(control_.buffers[i], i);
    std::uint64_t ticket = control_.next_ticket.load();
    for (std::uint32_t cpu = 0; cpu < std::min(control_.next_cpu.load(), kMaxCpus); ++cpu) {
        const Vcpu& v = control_.vcpus[cpu];
        if (v.buffer >= kBufferCount || v.in_window == 0 || v.blocks == 0) continue;
        BufferHeader& header = control_.buffers[v.buffer];
        header.blocks = v.blocks;
        header.accesses = v.accesses;
        header.events = v.events;
        header.ticket = ticket++;
        BufferBody& raw = *body(&control_, v.buffer);
        if (v.begun != 0 && v.events < kBufferEvents + kEventSlack)
            raw.events[header.events++] = {
                .position = v.blocks, .type = recording::kEarlyEnd, .a = v.begun, .b = control_.system};
        take_buffer(header, v.buffer);
    }
    for (auto& encoder : encoders_)
        if (!encoder->empty()) packer_.give(encoder->take());
}

recording::Totals Collector::totals() const {
    recording::Totals sum;
    for (const auto& encoder : encoders_) {
        const recording::Totals& part = encoder->totals();
        sum.executions += part.executions;
        sum.instructions += part.instructions;
        sum.accesses += part.accesses;
        sum.early_ends += part.early_ends;
        sum.uncertain_instructions += part.uncertain_instructions;
    }
    return sum;
}

}  // namespace tlbscope::capture
