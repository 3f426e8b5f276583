#include "recording/kernel_events.h"

#include <utility>

#include "recording/format.h"
#include "recording/reader_state.h"

namespace tlbscope::recording {

namespace {

using format::Cursor;
using format::put_varint;

// First byte of an event: its kind, in a range for each of the three types.
constexpr std::uint8_t kCallBase = 32;
constexpr std::uint8_t kOperation = 64;

bool bit(std::uint8_t flags, int number) { return (flags >> number & 1) != 0; }

// The fields in the order of the file; the same list for writing and reading, so that they cannot differ.
template <class Field>
void fields(MemoryEvent& e, Field&& field) {
    std::uint8_t flags =
        static_cast<std::uint8_t>(e.shares_space | e.write << 1 | e.spurious << 2 | e.file << 3);
    field(flags);
    e.shares_space = bit(flags, 0);
    e.write = bit(flags, 1);
    e.spurious = bit(flags, 2);
    e.file = bit(flags, 3);
    std::uint64_t start = e.start.value();
    std::uint64_t old_start = e.old_start.value();
    field(e.protection);
    field(e.process);
    field(e.thread);
    field(e.child);
    field(start);
    field(e.bytes);
    field(old_start);
    field(e.old_bytes);
    e.start = VirtAddr(start);
    e.old_start = VirtAddr(old_start);
}

template <class Field>
void fields(MemoryCall& c, Field&& field) {
    std::uint8_t flags = static_cast<std::uint8_t>(c.whole | c.freed_tables << 1);
    field(flags);
    c.whole = bit(flags, 0);
    c.freed_tables = bit(flags, 1);
    field(c.page_shift);
    field(c.process);
    field(c.thread);
    field(c.space);
    field(c.start);
    field(c.end);
}

template <class Field>
void fields(TlbOperation& o, Field&& field) {
    auto source = static_cast<std::uint8_t>(o.source);
    auto scope = static_cast<std::uint8_t>(o.scope);
    std::uint8_t flags = static_cast<std::uint8_t>(o.local | o.walk_cache << 1 | o.operands.local << 2);
    std::uint64_t start = o.start.value();
    field(source);
    field(scope);
    field(flags);
    o.source = static_cast<TlbOperation::Source>(source);
    o.scope = static_cast<TlbScope>(scope);
    o.local = bit(flags, 0);
    o.walk_cache = bit(flags, 1);
    o.operands.local = bit(flags, 2);
    field(o.hardware);
    field(start);
    field(o.bytes);
    field(o.reason);
    field(o.operands.lpid);
    field(o.operands.rb);
    field(o.operands.rs);
    field(o.operands.ric);
    field(o.operands.prs);
    field(o.operands.r);
    o.start = VirtAddr(start);
}

std::uint8_t kind_byte(const MemoryEvent& e) { return static_cast<std::uint8_t>(e.kind); }
std::uint8_t kind_byte(const MemoryCall& c) {
    return static_cast<std::uint8_t>(kCallBase + static_cast<std::uint8_t>(c.kind));
}
std::uint8_t kind_byte(const TlbOperation&) { return kOperation; }

// Nothing when the bytes make no sense.
std::optional<KernelEvent> read_event(Cursor& in, std::uint64_t& time, std::uint32_t cpu,
                                      std::uint64_t position) {
    const auto kind = in.get<std::uint8_t>();
    time += format::unzigzag(in.get_varint());
    bool bad = false;
    const auto read = [&](auto event) -> std::optional<KernelEvent> {
        fields(event, [&](auto& value) {
            using T = std::remove_reference_t<decltype(value)>;
            const std::uint64_t number = in.get_varint();
            value = static_cast<T>(number);
            bad |= value != number;
        });
        event.time = time;
        event.cpu = cpu;
        event.position = position;
        if (bad || in.failed()) return std::nullopt;
        return event;
    };
    if (kind == kOperation) {
        auto event = read(TlbOperation{});
        if (event) {
            const auto& operation = std::get<TlbOperation>(*event);
            if (static_cast<std::size_t>(operation.scope) >= kTlbScopes) return std::nullopt;
        }
        return event;
    }
    if (kind > kCallBase && kind <= kCallBase + static_cast<std::uint8_t>(MemoryCallKind::kExit))
        return read(MemoryCall{.kind = static_cast<MemoryCallKind>(kind - kCallBase)});
    if (kind >= 1 && kind <= static_cast<std::uint8_t>(MemoryEventKind::kSwitch))
        return read(MemoryEvent{.kind = static_cast<MemoryEventKind>(kind)});
    return std::nullopt;
}

}  // namespace

void KernelEventEncoder::add(const KernelEvent& event) {
    std::visit(
        [this](auto e) {
            bytes_.push_back(kind_byte(e));
            put_varint(bytes_, format::zigzag(e.time - time_));
            time_ = e.time;
            fields(e, [this](const auto& value) { put_varint(bytes_, std::uint64_t{value}); });
        },
        event);
    ++count_;
}

std::vector<std::uint8_t> KernelEventEncoder::take() {
    std::vector<std::uint8_t> payload;
    put_varint(payload, count_);
    payload.insert(payload.end(), bytes_.begin(), bytes_.end());
    bytes_.clear();
    count_ = 0;
    time_ = 0;
    return payload;
}

// One CPU's chunks in order.
struct KernelEventReader::State {
    struct Stream {
        std::vector<const ChunkLocation*> chunks;
        std::size_t next_chunk = 0;
        std::vector<std::uint8_t> raw;
        std::optional<Cursor> in;
        std::uint64_t left = 0;  // events of the chunk
        std::uint64_t time = 0;
        std::optional<KernelEvent> head;
    };
    const Recording::State* recording = nullptr;
    std::vector<Stream> streams;  // by CPU
    std::uint64_t position = 0;
    bool started = false;

    Result<void> advance(std::size_t cpu) {
        Stream& stream = streams[cpu];
        stream.head.reset();
        while (stream.left == 0) {
            if (stream.in && !stream.in->at_end())
                return damaged(position_of(*stream.chunks[stream.next_chunk - 1]),
                               "a chunk of kernel events is longer than it says");
            if (stream.next_chunk == stream.chunks.size()) return {};
            const ChunkLocation& at = *stream.chunks[stream.next_chunk++];
            auto raw = read_single(*recording, at);
            if (!raw) return std::unexpected(raw.error());
            stream.raw = std::move(*raw);
            stream.in.emplace(stream.raw);
            stream.left = stream.in->get_varint();
            stream.time = 0;
        }
        --stream.left;
        stream.head = read_event(*stream.in, stream.time, static_cast<std::uint32_t>(cpu), 0);
        if (!stream.head)
            return damaged(position_of(*stream.chunks[stream.next_chunk - 1]),
                           "a chunk of kernel events is malformed");
        return {};
    }
    [[nodiscard]] std::string position_of(const ChunkLocation& at) const {
        return recording::position(*recording, at.offset);
    }
};

KernelEventReader::KernelEventReader(const Recording& recording) : state_(std::make_unique<State>()) {
    state_->recording = &recording.state();
    for (const ChunkLocation& chunk : state_->recording->kernel_events) {
        if (chunk.header.cpu >= state_->streams.size())
            state_->streams.resize(chunk.header.cpu + std::size_t{1});
        state_->streams[chunk.header.cpu].chunks.push_back(&chunk);
    }
}
KernelEventReader::~KernelEventReader() = default;
KernelEventReader::KernelEventReader(KernelEventReader&&) noexcept = default;
KernelEventReader& KernelEventReader::operator=(KernelEventReader&&) noexcept = default;

Result<std::optional<KernelEvent>> KernelEventReader::next() {
    State& state = *state_;
    if (!state.started) {
        state.started = true;
        for (std::size_t cpu = 0; cpu < state.streams.size(); ++cpu)
            if (auto done = state.advance(cpu); !done) return std::unexpected(done.error());
    }
    std::optional<std::size_t> first;
    for (std::size_t cpu = 0; cpu < state.streams.size(); ++cpu) {
        const auto& head = state.streams[cpu].head;
        if (head && (!first || time_of(*head) < time_of(*state.streams[*first].head))) first = cpu;
    }
    if (!first) return std::nullopt;
    KernelEvent event = *std::exchange(state.streams[*first].head, std::nullopt);
    std::visit([&](auto& e) { e.position = state.position; }, event);
    ++state.position;
    if (auto done = state.advance(*first); !done) return std::unexpected(done.error());
    return event;
}

Result<KernelEventCounts> count_kernel_events(const Recording& recording) {
    KernelEventCounts counts;
    KernelEventReader reader(recording);
    for (;;) {
        const auto event = reader.next();
        if (!event) return std::unexpected(event.error());
        if (!*event) return counts;
        ++counts.total;
        if (const auto* memory = std::get_if<MemoryEvent>(&**event)) {
            ++counts.memory[static_cast<std::size_t>(memory->kind)];
        } else if (const auto* call = std::get_if<MemoryCall>(&**event)) {
            ++counts.calls[static_cast<std::size_t>(call->kind)];
        } else {
            const auto& operation = std::get<TlbOperation>(**event);
            ++(operation.local ? counts.local : counts.global)[static_cast<std::size_t>(operation.scope)];
            if (operation.source == TlbOperation::Source::kTlbie)
                ++(operation.operands.local ? counts.tlbiel : counts.tlbie);
            else
                ++counts.flush_reasons[operation.reason % counts.flush_reasons.size()];
            if (operation.source == TlbOperation::Source::kTlbFlush && operation.local)
                counts.flushed_bytes += operation.bytes;
        }
    }
}

}  // namespace tlbscope::recording
