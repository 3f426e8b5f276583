// Decoding executions: the mirror image of encoder.cc. Speed matters here (every replay passes through), so
// the hot loop reads bits from words, keeps each access's predictor beside its neighbours', and tests ends of
// streams only where it takes something from them. Damaged input that has survived the checksums ends in an
// error, not in a wild read: every number taken from a stream is checked before it is an index.
#include <algorithm>

#include "recording/reader_state.h"

namespace tlbscope::recording {

namespace {
using format::Cursor;
constexpr std::uint32_t kNone = ~std::uint32_t{0};
constexpr std::size_t kAddressRoom = 65536;  // a batch ends when fewer than the largest shape's are left
}  // namespace

struct BatchReader::State {
    struct BlockState {
        std::uint32_t generation = 0;
        std::uint32_t successors[2] = {kNone, kNone};
        std::uint32_t first_slot = 0;
        std::uint32_t slot_count = 0;
    };
    struct SlotState {
        std::uint64_t last = 0;
        std::uint64_t stride = 0;
    };

    explicit State(const Recording::State& opened) : recording(opened) {
        const auto blocks = recording.dictionary.blocks();
        states.resize(blocks.size());
        for (std::size_t id = 0; id < blocks.size(); ++id)
            states[id] = {.first_slot = blocks[id].first_slot, .slot_count = blocks[id].slot_count};
        slots.resize(recording.bases.size());
        ids.resize(kBatchBlocks);
        addresses.resize(kAddressRoom + 0xffff);
    }

    void begin(std::size_t new_chunk) {
        chunk = new_chunk;
        loaded = false;
        finished = false;
        done = 0;
    }
    Result<void> load();
    Result<void> read_odd(OddExecution& odd);
    void read_next_odd_ordinal();
    Result<void> read_events(std::uint64_t behind, std::uint64_t batch_start);
    [[nodiscard]] std::unexpected<Error> bad() const {
        return damaged(position(recording, recording.locations[chunk].offset),
                       "an executions chunk is malformed");
    }
    // Decodes up to kBatchBlocks executions into ids and addresses; false when the streams do not fit
    // together.
    bool decode(std::size_t wanted, std::size_t& decoded, std::size_t& address_count);

    const Recording::State& recording;
    std::size_t chunk = 0;
    bool loaded = false;
    bool finished = false;
    std::uint64_t done = 0;  // executions decoded
    Streams streams;

    std::uint32_t generation = 0;
    std::vector<BlockState> states;
    std::vector<SlotState> slots;
    std::uint32_t previous = kNone;
    std::uint64_t previous_miss = 0;
    std::size_t at_id16 = 0, at_id32 = 0, at_hit = 0, at_class = 0, at1 = 0, at3 = 0, at8 = 0;
    std::optional<Cursor> odd_in;
    std::optional<Cursor> events_in;
    std::uint64_t next_odd = ~std::uint64_t{0};  // ordinal in the chunk
    std::uint64_t last_odd = 0;
    std::uint64_t odd_address = 0;
    std::uint64_t event_position = 0;
    bool have_event = false;
    Event pending_event;

    std::vector<std::uint32_t> ids;
    std::vector<std::uint64_t> addresses;
    std::vector<OddExecution> odd;
    std::vector<Slot> odd_slots;
    std::vector<std::uint64_t> odd_addresses;  // of the odd execution just read
    std::vector<Event> events;
};

Result<void> BatchReader::State::load() {
    if (auto read = read_streams(recording, chunk, streams); !read) return read;
    const ChunkInfo& info = recording.chunks[chunk];
    if (streams.entries_needed > recording.dictionary.size())
        return fail(position(recording, recording.locations[chunk].offset),
                    "the dictionary that this chunk needs is missing", "record again");
    if (streams.sizes[format::kBlockCodes] * 4 < info.executions) return bad();
    ++generation;
    previous = kNone;
    previous_miss = 0;
    at_id16 = at_id32 = at_hit = at_class = at1 = at3 = at8 = 0;
    odd_in.emplace(
        std::span<const std::uint8_t>(streams.raw[format::kOdd].data(), streams.sizes[format::kOdd]));
    events_in.emplace(
        std::span<const std::uint8_t>(streams.raw[format::kEvents].data(), streams.sizes[format::kEvents]));
    last_odd = odd_address = event_position = 0;
    have_event = false;
    read_next_odd_ordinal();
    loaded = true;
    return {};
}

void BatchReader::State::read_next_odd_ordinal() {
    next_odd = odd_in->at_end() ? ~std::uint64_t{0} : last_odd + odd_in->get_varint();
    last_odd = next_odd;
}

// Behind the ordinal: instructions begun, accesses, each access.
Result<void> BatchReader::State::read_odd(OddExecution& execution) {
    const std::uint64_t begun = odd_in->get_varint();
    const std::uint64_t count = odd_in->get_varint();
    if (odd_in->failed() || begun > 0x3fff || count > 0xffff) return bad();
    execution.instructions = static_cast<std::uint16_t>(begun);
    execution.first_slot = static_cast<std::uint32_t>(odd_slots.size());
    execution.slot_count = static_cast<std::uint16_t>(count);
    odd_addresses.clear();
    std::uint16_t instruction = 0;
    for (std::uint64_t i = 0; i < count; ++i) {
        const std::uint64_t coded = odd_in->get_varint();
        if (coded >> 5 > 0x3fff) return bad();
        // As in shapes, instructions never go back.
        instruction = std::max(instruction, static_cast<std::uint16_t>(coded >> 5));
        odd_slots.push_back({.instruction = instruction,
                             .size_log2 = static_cast<std::uint8_t>(coded & 0xf),
                             .store = (coded & 16) != 0});
        odd_address += format::unzigzag(odd_in->get_varint());
        odd_addresses.push_back(odd_address);
    }
    if (odd_in->failed()) return bad();
    read_next_odd_ordinal();
    return {};
}

// Events up to `behind` executions of the chunk, as positions from batch_start.
Result<void> BatchReader::State::read_events(std::uint64_t behind, std::uint64_t batch_start) {
    events.clear();
    for (;;) {
        if (!have_event) {
            if (events_in->at_end()) return {};
            event_position += events_in->get_varint();
            pending_event.type = static_cast<EventType>(events_in->get<std::uint8_t>());
            pending_event.a = events_in->get_varint();
            pending_event.b = events_in->get_varint();
            if (events_in->failed()) return bad();
            have_event = true;
        }
        const bool last_batch = behind >= recording.chunks[chunk].executions;
        if (event_position >= behind && !last_batch) return {};
        pending_event.position =
            event_position < batch_start ? 0 : std::min(event_position, behind) - batch_start;
        events.push_back(pending_event);
        have_event = false;
    }
}

bool BatchReader::State::decode(std::size_t wanted, std::size_t& decoded, std::size_t& address_count) {
    const std::uint8_t* codes = streams.raw[format::kBlockCodes].data();
    const std::uint8_t* hits = streams.raw[format::kHitBits].data();
    const std::uint8_t* classes = streams.raw[format::kMissClasses].data();
    const std::size_t hit_bits = streams.sizes[format::kHitBits] * 8;
    const std::size_t class_count = streams.sizes[format::kMissClasses] * 4;
    std::uint64_t* out = addresses.data();
    std::uint64_t* const out_end = addresses.data() + kAddressRoom;
    const auto known = static_cast<std::uint32_t>(states.size());
    std::size_t n = 0;
    for (; n < wanted && out < out_end; ++n) {
        const std::uint64_t ordinal = done + n;
        const unsigned code = codes[ordinal >> 2] >> (ordinal & 3) * 2 & 3;
        std::uint32_t id = 0;
        if (code < 2) {
            if (previous == kNone) return false;
            id = states[previous].successors[code];
            if (id == kNone) return false;
        } else {
            if (code == 2) {
                if (at_id16 + 2 > streams.sizes[format::kBlockIds16]) return false;
                std::uint16_t small = 0;
                std::memcpy(&small, streams.raw[format::kBlockIds16].data() + at_id16, 2);
                at_id16 += 2;
                id = small;
            } else {
                if (at_id32 + 4 > streams.sizes[format::kBlockIds32]) return false;
                std::memcpy(&id, streams.raw[format::kBlockIds32].data() + at_id32, 4);
                at_id32 += 4;
            }
            if (id >= known) return false;
            if (previous != kNone) {
                auto& successors = states[previous].successors;
                successors[1] = successors[0];
                successors[0] = id;
            }
        }
        previous = id;
        ids[n] = id;
        BlockState& state = states[id];
        SlotState* slot = slots.data() + state.first_slot;
        const std::uint32_t count = state.slot_count;
        if (state.generation != generation) {
            state.generation = generation;
            state.successors[0] = state.successors[1] = kNone;
            for (std::uint32_t s = 0; s < count; ++s) slot[s] = {recording.bases[state.first_slot + s], 0};
        }
        if (ordinal == next_odd) {
            OddExecution execution{.ordinal = static_cast<std::uint32_t>(n)};
            if (!read_odd(execution)) return false;
            odd.push_back(execution);
            const std::uint16_t instructions = recording.dictionary[id].instructions;
            if (execution.instructions == 0 || execution.instructions > instructions) return false;
            for (std::size_t s = execution.first_slot; s < odd_slots.size(); ++s)
                if (odd_slots[s].instruction >= instructions) return false;
            std::copy(odd_addresses.begin(), odd_addresses.end(), out);
            out += execution.slot_count;
            if (odd_slots.size() > 0x8000) {
                ++n;
                break;
            }
            continue;
        }
        if (at_hit + count > hit_bits) return false;
        for (std::uint32_t s = 0; s < count;) {
            std::uint64_t window = 0;
            std::memcpy(&window, hits + (at_hit >> 3), 8);
            window >>= at_hit & 7;
            const std::uint32_t group = std::min(count - s, 56U);
            at_hit += group;
            const std::uint64_t all = (std::uint64_t{1} << group) - 1;
            const std::uint32_t group_end = s + group;
            if ((window & all) == all) {
                for (; s < group_end; ++s) *out++ = slot[s].last += slot[s].stride;
                continue;
            }
            for (; s < group_end; ++s, window >>= 1) {
                if ((window & 1) == 0) {
                    if (at_class >= class_count) return false;
                    const unsigned miss_class = classes[at_class >> 2] >> (at_class & 3) * 2 & 3;
                    ++at_class;
                    switch (miss_class) {
                        case 1:
                            if (at1 >= streams.sizes[format::kMiss1]) return false;
                            previous_miss = streams.raw[format::kMiss1][at1++];
                            break;
                        case 2: {
                            if (at3 + 3 > streams.sizes[format::kMiss3]) return false;
                            std::uint32_t three = 0;
                            std::memcpy(&three, streams.raw[format::kMiss3].data() + at3, 4);
                            previous_miss = three & 0xffffff;
                            at3 += 3;
                            break;
                        }
                        case 3:
                            if (at8 + 8 > streams.sizes[format::kMiss8]) return false;
                            std::memcpy(&previous_miss, streams.raw[format::kMiss8].data() + at8, 8);
                            at8 += 8;
                            break;
                        default:
                            break;
                    }
                    slot[s].stride = format::unzigzag(previous_miss);
                }
                *out++ = slot[s].last += slot[s].stride;
            }
        }
    }
    decoded = n;
    address_count = static_cast<std::size_t>(out - addresses.data());
    return true;
}

BatchReader::BatchReader(const Recording& recording, std::size_t chunk)
    : state_(std::make_unique<State>(*recording.state_)) {
    state_->begin(chunk);
}
BatchReader::~BatchReader() = default;
BatchReader::BatchReader(BatchReader&&) noexcept = default;
BatchReader& BatchReader::operator=(BatchReader&&) noexcept = default;

void BatchReader::restart(std::size_t chunk) { state_->begin(chunk); }

Result<std::optional<Batch>> BatchReader::next() {
    State& s = *state_;
    if (!s.loaded)
        if (auto loaded = s.load(); !loaded) return std::unexpected(loaded.error());
    const ChunkInfo& info = s.recording.chunks[s.chunk];
    if (s.finished) return std::nullopt;
    s.odd.clear();
    s.odd_slots.clear();
    std::size_t decoded = 0;
    std::size_t address_count = 0;
    const auto wanted =
        static_cast<std::size_t>(std::min<std::uint64_t>(kBatchBlocks, info.executions - s.done));
    if (!s.decode(wanted, decoded, address_count) || (decoded == 0 && wanted != 0)) return s.bad();
    if (auto read = s.read_events(s.done + decoded, s.done); !read) return std::unexpected(read.error());
    s.done += decoded;
    s.finished = s.done >= info.executions;
    return Batch{.cpu = info.cpu,
                 .blocks = std::span(s.ids).first(decoded),
                 .addresses = std::span(s.addresses).first(address_count),
                 .odd = s.odd,
                 .odd_slots = s.odd_slots,
                 .events = s.events};
}

}  // namespace tlbscope::recording
