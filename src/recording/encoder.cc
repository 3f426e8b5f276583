// Encoding executions: see format.h for the idea and docs/recording-format.md for the rules, which the
// decoder in batch_reader.cc mirrors step by step.
#include "recording/encoder.h"

#include <algorithm>
#include <utility>

namespace tlbscope::recording {

namespace {

using format::put_varint;

// Appends bits to a stream, least significant first.
class BitWriter {
  public:
    // `count` is 1 to 57 and the bits above it are zero.
    void put(std::uint64_t bits, unsigned count) {
        word_ |= bits << used_;
        used_ += count;
        if (used_ < 64) return;
        words_.push_back(word_);
        used_ -= 64;
        word_ = used_ == 0 ? 0 : bits >> (count - used_);
    }
    std::vector<std::uint8_t> take() {
        if (used_ != 0) words_.push_back(word_);
        std::vector<std::uint8_t> bytes(words_.size() * 8);
        if (!words_.empty()) std::memcpy(bytes.data(), words_.data(), bytes.size());
        if (used_ != 0) bytes.resize(bytes.size() - 8 + (used_ + 7) / 8);
        words_.clear();
        word_ = 0;
        used_ = 0;
        return bytes;
    }

  private:
    std::vector<std::uint64_t> words_;
    std::uint64_t word_ = 0;
    unsigned used_ = 0;
};

// The part of an event that a recording keeps for every granularity.
class EventWriter {
  public:
    void put(std::uint64_t position, EventType type, std::uint64_t a, std::uint64_t b) {
        put_varint(bytes_, position - position_);
        bytes_.push_back(static_cast<std::uint8_t>(type));
        put_varint(bytes_, a);
        put_varint(bytes_, b);
        position_ = position;
    }
    std::vector<std::uint8_t> take() {
        position_ = 0;
        return std::exchange(bytes_, {});
    }
    [[nodiscard]] std::size_t bytes() const { return bytes_.size(); }

  private:
    std::vector<std::uint8_t> bytes_;
    std::uint64_t position_ = 0;
};

constexpr std::uint64_t kMostAccesses = 4U << 20;  // beyond this a chunk is closed at the next buffer's end
constexpr std::size_t kMostEventBytes = 8U << 20;

class ExecutionEncoder final : public Encoder {
  public:
    ExecutionEncoder(DictionaryBuilder& dictionary, CpuId cpu) : dictionary_(dictionary) { info_.cpu = cpu; }

    bool consume(const RawBuffer& buffer, std::uint64_t limit) override;
    [[nodiscard]] bool full() const override {
        return info_.executions + 32768 > format::kChunkBlocks || info_.accesses > kMostAccesses ||
               events_.bytes() > kMostEventBytes;
    }
    [[nodiscard]] bool empty() const override { return info_.executions == 0 && events_.bytes() == 0; }
    EncodedChunk take() override;

  private:
    // Predictors of one entry; valid for the chunk whose generation they carry.
    struct BlockState {
        std::uint32_t generation = 0;
        std::uint32_t successors[2] = {};
        std::uint32_t first_slot = 0;
        std::uint32_t slot_count = 0;
    };
    struct SlotState {
        std::uint64_t last = 0;
        std::uint64_t stride = 0;
        std::uint32_t key = 0;  // of the access; here, since it is compared whenever the rest is used
    };
    // What is looked at first for each block.
    struct Recent {
        std::uint32_t id = DictionaryBuilder::kNone;  // entry that the translation's last execution had
        std::uint32_t instructions = 0;
    };

    void know_translations();
    void know_entries();
    // Asks for the states of the blocks to come: a large program's do not fit the second-level cache, and the
    // buffer knows the future. A fifth less time on cc1.
    void prefetch(std::span<const std::uint64_t> blocks) const {
        constexpr std::size_t kAhead[] = {24, 16, 8};
        if (blocks.size() <= kAhead[0]) return;
        __builtin_prefetch(&recent_[static_cast<std::uint32_t>(blocks[kAhead[0]])]);
        if (const std::uint32_t id = recent_[static_cast<std::uint32_t>(blocks[kAhead[1]])].id;
            id != DictionaryBuilder::kNone)
            __builtin_prefetch(&blocks_[id]);
        if (const std::uint32_t id = recent_[static_cast<std::uint32_t>(blocks[kAhead[2]])].id;
            id != DictionaryBuilder::kNone)
            __builtin_prefetch(slots_.data() + blocks_[id].first_slot);
    }
    void enter(BlockState& state);
    void put_block(std::uint32_t id);
    void put_accesses(SlotState* slot, std::span<const std::uint64_t> addresses);
    void put_miss(std::uint64_t difference);
    void put_odd(std::uint32_t translation, std::uint32_t begun, std::span<const std::uint32_t> keys,
                 std::span<const std::uint64_t> addresses);
    // Whether the accesses are the entry's.
    [[nodiscard]] bool has_shape(std::uint32_t id, std::span<const std::uint32_t> keys) const {
        const BlockState& state = blocks_[id];
        if (state.slot_count != keys.size()) return false;
        const SlotState* slot = slots_.data() + state.first_slot;
        for (std::size_t i = 0; i < keys.size(); ++i)
            if (slot[i].key != keys[i]) return false;
        return true;
    }
    std::uint32_t entry_for(std::uint32_t translation, std::span<const std::uint32_t> keys,
                            std::span<const std::uint64_t> addresses, bool& odd);
    void note_early_end(std::uint32_t translation, const RawEvent& event, std::span<const std::uint32_t> keys,
                        std::uint32_t& begun);

    DictionaryBuilder& dictionary_;
    ChunkInfo info_;
    std::vector<Recent> recent_;      // by translation
    std::vector<BlockState> blocks_;  // by entry
    std::vector<SlotState> slots_;    // by slot of the dictionary
    std::uint32_t generation_ = 1;
    std::uint32_t previous_ = DictionaryBuilder::kNone;
    std::uint64_t previous_miss_ = 0;
    std::uint64_t odd_ordinal_ = 0;
    std::uint64_t odd_address_ = 0;

    BitWriter codes_;
    std::vector<std::uint8_t> ids16_;
    std::vector<std::uint8_t> ids32_;
    BitWriter hits_;
    BitWriter classes_;
    std::vector<std::uint8_t> miss1_;
    std::vector<std::uint8_t> miss3_;
    std::vector<std::uint8_t> miss8_;
    std::vector<std::uint8_t> odd_;
    EventWriter events_;
};

void ExecutionEncoder::know_translations() {
    while (recent_.size() < dictionary_.translations())
        recent_.push_back(
            {.instructions = dictionary_.instructions(static_cast<std::uint32_t>(recent_.size()))});
}

void ExecutionEncoder::know_entries() {
    const auto keys = dictionary_.keys();
    while (slots_.size() < keys.size()) slots_.push_back({.key = keys[slots_.size()]});
    while (blocks_.size() < dictionary_.entries().size()) {
        const DictionaryBuilder::Entry& entry = dictionary_.entries()[blocks_.size()];
        blocks_.push_back({.first_slot = entry.first_key, .slot_count = entry.key_count});
    }
}

// The entry's first execution in this chunk: its predictors start afresh.
void ExecutionEncoder::enter(BlockState& state) {
    state.generation = generation_;
    state.successors[0] = state.successors[1] = DictionaryBuilder::kNone;
    const auto bases = dictionary_.bases();
    for (std::uint32_t s = state.first_slot; s < state.first_slot + state.slot_count; ++s) {
        slots_[s].last = bases[s];
        slots_[s].stride = 0;
    }
}

void ExecutionEncoder::put_block(std::uint32_t id) {
    if (previous_ != DictionaryBuilder::kNone) {
        auto& successors = blocks_[previous_].successors;
        previous_ = id;
        if (successors[0] == id) return codes_.put(0, 2);
        if (successors[1] == id) return codes_.put(1, 2);
        successors[1] = successors[0];
        successors[0] = id;
    }
    previous_ = id;
    if (id <= 0xffff) {
        codes_.put(2, 2);
        format::put(ids16_, static_cast<std::uint16_t>(id));
    } else {
        codes_.put(3, 2);
        format::put(ids32_, id);
    }
}

void ExecutionEncoder::put_accesses(SlotState* slot, std::span<const std::uint64_t> addresses) {
    constexpr std::size_t kGroup = 56;
    for (std::size_t start = 0; start < addresses.size(); start += kGroup) {
        const std::size_t count = std::min(addresses.size() - start, kGroup);
        std::uint64_t hits = 0;
        for (std::size_t i = 0; i < count; ++i) {
            const std::uint64_t address = addresses[start + i];
            SlotState& state = slot[start + i];
            const std::uint64_t difference = address - state.last;
            state.last = address;
            if (difference == state.stride) {
                hits |= std::uint64_t{1} << i;
            } else {
                state.stride = difference;
                put_miss(difference);
            }
        }
        hits_.put(hits, static_cast<unsigned>(count));
    }
}

void ExecutionEncoder::put_miss(std::uint64_t difference) {
    const std::uint64_t coded = format::zigzag(difference);
    if (coded == previous_miss_) {
        classes_.put(0, 2);
        return;
    }
    previous_miss_ = coded;
    if (coded < 1U << 8) {
        classes_.put(1, 2);
        miss1_.push_back(static_cast<std::uint8_t>(coded));
    } else if (coded < 1U << 24) {
        classes_.put(2, 2);
        miss3_.push_back(static_cast<std::uint8_t>(coded));
        miss3_.push_back(static_cast<std::uint8_t>(coded >> 8));
        miss3_.push_back(static_cast<std::uint8_t>(coded >> 16));
    } else {
        classes_.put(3, 2);
        format::put(miss8_, coded);
    }
}

// ordinal difference, instructions begun, accesses, then each access as in the dictionary.
void ExecutionEncoder::put_odd(std::uint32_t translation, std::uint32_t begun,
                               std::span<const std::uint32_t> keys,
                               std::span<const std::uint64_t> addresses) {
    put_varint(odd_, info_.executions - odd_ordinal_);
    odd_ordinal_ = info_.executions;
    put_varint(odd_, begun);
    put_varint(odd_, keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const Slot made = dictionary_.slot(translation, keys[i]);
        put_varint(odd_, std::uint64_t{made.instruction} << 5 | (made.store ? 16U : 0U) | made.size_log2);
        put_varint(odd_, format::zigzag(addresses[i] - odd_address_));
        odd_address_ = addresses[i];
    }
}

std::uint32_t ExecutionEncoder::entry_for(std::uint32_t translation, std::span<const std::uint32_t> keys,
                                          std::span<const std::uint64_t> addresses, bool& odd) {
    std::uint32_t id = odd ? dictionary_.any(translation) : dictionary_.find(translation, keys);
    if (id == DictionaryBuilder::kNone) id = dictionary_.make(translation, keys, addresses);
    if (id == DictionaryBuilder::kNone) {
        odd = true;
        id = dictionary_.any(translation);
    }
    know_entries();
    return recent_[translation].id = id;
}

// Without an exact count, at least the instructions up to the last access began, and at most all.
void ExecutionEncoder::note_early_end(std::uint32_t translation, const RawEvent& event,
                                      std::span<const std::uint32_t> keys, std::uint32_t& begun) {
    const std::uint32_t all = dictionary_.instructions(translation);
    std::uint32_t proved = 1;
    for (const std::uint32_t key : keys) proved = std::max(proved, (key >> kKeyInfoBits) + 1);
    ++totals_.early_ends;
    if (event.b != 0) {
        begun = std::clamp(static_cast<std::uint32_t>(event.a), 1U, all);
        return;
    }
    // The access that faulted was not made: the instruction behind the last access is the least that can have
    // begun after it.
    begun = std::min(keys.empty() ? proved : proved + 1, all);
    totals_.uncertain_instructions += all - begun;
}

bool ExecutionEncoder::consume(const RawBuffer& buffer, std::uint64_t limit) {
    if (empty()) {
        info_.first_ticket = buffer.ticket;
        info_.time_ns = buffer.time_ns;
    }
    know_translations();
    know_entries();
    const std::uint64_t start = info_.executions;
    std::uint64_t instructions = 0;
    auto event = buffer.events.begin();
    const std::size_t count = buffer.blocks.size();
    std::size_t taken = 0;   // executions
    std::size_t behind = 0;  // accesses made up to their end
    bool reached = false;
    const std::size_t first_access = count == 0 ? 0 : buffer.blocks[0] >> 32;
    for (; taken < count; ++taken) {
        prefetch(buffer.blocks.subspan(taken));
        const auto translation = static_cast<std::uint32_t>(buffer.blocks[taken]);
        const std::size_t first = buffer.blocks[taken] >> 32;
        behind = taken + 1 < count ? buffer.blocks[taken + 1] >> 32 : buffer.addresses.size();
        const auto keys = buffer.keys.subspan(first, behind - first);
        const auto addresses = buffer.addresses.subspan(first, behind - first);

        bool odd = false;
        const Recent recent = recent_[translation];
        std::uint32_t begun = recent.instructions;
        // Events up to the start of the next block: those within this execution tell whether it ended early.
        while (event != buffer.events.end() && event->position <= taken + 1) {
            if (event->type == kEarlyEnd && event->position == taken + 1) {
                note_early_end(translation, *event, keys, begun);
                odd = true;
            } else if (event->type < kEarlyEnd) {
                events_.put(start + event->position, static_cast<EventType>(event->type), event->a, event->b);
            }
            ++event;
        }
        std::uint32_t id = recent.id;
        if (odd || id == DictionaryBuilder::kNone || !has_shape(id, keys))
            id = entry_for(translation, keys, addresses, odd);
        BlockState& state = blocks_[id];
        if (state.generation != generation_) enter(state);
        put_block(id);
        if (odd)
            put_odd(translation, begun, keys, addresses);
        else
            put_accesses(slots_.data() + state.first_slot, addresses);
        ++info_.executions;
        instructions += begun;
        if (instructions + (behind - first_access) >= limit) {
            reached = true;
            ++taken;
            break;
        }
    }
    const std::size_t accesses = behind - std::min(behind, first_access);
    info_.accesses += accesses;
    info_.instructions += instructions;
    totals_.executions += taken;
    totals_.accesses += accesses;
    totals_.instructions += instructions;
    if (reached) return false;
    for (; event != buffer.events.end(); ++event)
        if (event->type < kEarlyEnd)
            events_.put(start + count, static_cast<EventType>(event->type), event->a, event->b);
    return true;
}

EncodedChunk ExecutionEncoder::take() {
    EncodedChunk chunk;
    chunk.info = info_;
    chunk.dictionary = dictionary_.take_new_entries();
    chunk.entries_needed = static_cast<std::uint32_t>(dictionary_.entries().size());
    chunk.streams.resize(format::kStreamCount);
    chunk.streams[format::kBlockCodes] = codes_.take();
    chunk.streams[format::kBlockIds16] = std::exchange(ids16_, {});
    chunk.streams[format::kBlockIds32] = std::exchange(ids32_, {});
    chunk.streams[format::kHitBits] = hits_.take();
    chunk.streams[format::kMissClasses] = classes_.take();
    chunk.streams[format::kMiss1] = std::exchange(miss1_, {});
    chunk.streams[format::kMiss3] = std::exchange(miss3_, {});
    chunk.streams[format::kMiss8] = std::exchange(miss8_, {});
    chunk.streams[format::kOdd] = std::exchange(odd_, {});
    chunk.streams[format::kEvents] = events_.take();
    info_ = {.cpu = info_.cpu, .number = info_.number + 1};
    ++generation_;
    previous_ = DictionaryBuilder::kNone;
    previous_miss_ = 0;
    odd_ordinal_ = 0;
    odd_address_ = 0;
    return chunk;
}

// Granularity page: the page changes of each kind, in program order, and how many references there were.
// Exact for split TLBs with pages of 4 KiB or more, where a reference to the same page as the reference
// before it of the same kind hits and leaves the replacement order as it is. Functions, sizes and single
// references are gone.
class TouchEncoder final : public Encoder {
  public:
    TouchEncoder(DictionaryBuilder& dictionary, CpuId cpu, std::uint64_t kernel_base)
        : dictionary_(dictionary), kernel_base_(kernel_base) {
        info_.cpu = cpu;
    }
    bool consume(const RawBuffer& buffer, std::uint64_t limit) override;
    [[nodiscard]] bool full() const override {
        return touches_ > format::kChunkBlocks || pages_.size() > 60000 ||
               info_.accesses > std::uint64_t{1} << 31;
    }
    [[nodiscard]] bool empty() const override { return info_.executions == 0; }
    EncodedChunk take() override;

  private:
    void touch(Kind kind, bool kernel_mode, std::uint64_t page);
    void reference(Kind kind, bool kernel_mode, std::uint64_t address, std::uint64_t bytes);

    DictionaryBuilder& dictionary_;
    std::uint64_t kernel_base_;
    ChunkInfo info_;
    std::vector<std::uint8_t> stream_;
    std::vector<std::uint8_t> pages_stream_;
    std::vector<std::uint64_t> pages_;  // by number
    std::vector<std::uint32_t> table_;  // hash table of page numbers, kNone when free
    std::uint64_t last_page_ = 0;
    std::uint64_t last_[2] = {~std::uint64_t{0}, ~std::uint64_t{0}};
    std::uint64_t touches_ = 0;
    std::array<std::uint64_t, 8> counts_{};     // references: kind, mode, side
    std::array<std::uint64_t, 8> straddles_{};  // further pages touched by references that straddle
};

void TouchEncoder::touch(Kind kind, bool kernel_mode, std::uint64_t page) {
    const std::uint64_t with_mode = page << 1 | (kernel_mode ? 1 : 0);
    auto& last = last_[static_cast<std::size_t>(kind)];
    if (last == with_mode) return;
    last = with_mode;
    ++touches_;
    constexpr std::size_t kTableSize = 1U << 18;
    if (table_.empty()) table_.assign(kTableSize, DictionaryBuilder::kNone);
    std::size_t at = (page * 0x9e3779b97f4a7c15U >> 40) & (kTableSize - 1);
    while (table_[at] != DictionaryBuilder::kNone && pages_[table_[at]] != page)
        at = (at + 1) & (kTableSize - 1);
    if (table_[at] == DictionaryBuilder::kNone) {
        table_[at] = static_cast<std::uint32_t>(pages_.size());
        pages_.push_back(page);
        put_varint(pages_stream_, format::zigzag(page - last_page_));
        last_page_ = page;
    }
    format::put(stream_, table_[at] << 2 | (kernel_mode ? 2U : 0U) | static_cast<std::uint32_t>(kind));
}

void TouchEncoder::reference(Kind kind, bool kernel_mode, std::uint64_t address, std::uint64_t bytes) {
    const std::size_t bucket =
        static_cast<std::size_t>(kind) * 4 + (kernel_mode ? 2 : 0) + (address >= kernel_base_ ? 1 : 0);
    const std::uint64_t last = (address + bytes - 1) >> 12;
    ++counts_[bucket];
    for (std::uint64_t page = address >> 12;; ++page) {
        touch(kind, kernel_mode, page);
        if (page >= last) break;
        ++straddles_[bucket];
    }
}

bool TouchEncoder::consume(const RawBuffer& buffer, std::uint64_t limit) {
    if (empty()) {
        info_.first_ticket = buffer.ticket;
        info_.time_ns = buffer.time_ns;
    }
    const std::uint64_t begin_references = totals_.references();
    auto event = buffer.events.begin();
    const std::size_t count = buffer.blocks.size();
    for (std::size_t i = 0; i < count; ++i) {
        const auto number = static_cast<std::uint32_t>(buffer.blocks[i]);
        const Translation translation = dictionary_.translation(number);
        const std::size_t first = buffer.blocks[i] >> 32;
        const std::size_t behind = i + 1 < count ? buffer.blocks[i + 1] >> 32 : buffer.addresses.size();
        std::size_t begun = translation.lengths.size();
        for (; event != buffer.events.end() && event->position <= i + 1; ++event) {
            if (event->type != kEarlyEnd || event->position != i + 1) continue;
            ++totals_.early_ends;
            if (event->b != 0)
                begun = std::min(begun, static_cast<std::size_t>(event->a));
            else
                totals_.uncertain_instructions += begun - 1;
        }
        const bool kernel_mode = translation.address.value() >= kernel_base_;
        std::uint64_t address = translation.address.value();
        std::size_t access = first;
        for (std::size_t k = 0; k < begun; ++k) {
            reference(Kind::kInstruction, kernel_mode, address, translation.lengths[k]);
            address += translation.lengths[k];
            for (; access < behind && buffer.keys[access] >> kKeyInfoBits <= k; ++access)
                reference(Kind::kData, kernel_mode, buffer.addresses[access],
                          std::uint64_t{1} << dictionary_.slot(number, buffer.keys[access]).size_log2);
        }
        for (; access < behind; ++access)
            reference(Kind::kData, kernel_mode, buffer.addresses[access],
                      std::uint64_t{1} << dictionary_.slot(number, buffer.keys[access]).size_log2);
        ++info_.executions;
        info_.accesses += behind - first;
        info_.instructions += begun;
        ++totals_.executions;
        totals_.accesses += behind - first;
        totals_.instructions += begun;
        if (totals_.references() - begin_references >= limit) return false;
    }
    return true;
}

EncodedChunk TouchEncoder::take() {
    EncodedChunk chunk;
    chunk.kind = format::ChunkKind::kTouches;
    chunk.info = info_;
    std::vector<std::uint8_t> counts;
    for (const std::uint64_t n : counts_) format::put(counts, n);
    for (const std::uint64_t n : straddles_) format::put(counts, n);
    chunk.streams = {std::exchange(stream_, {}), std::exchange(pages_stream_, {}), counts};
    info_ = {.cpu = info_.cpu, .number = info_.number + 1};
    pages_.clear();
    table_.clear();
    last_page_ = 0;
    last_[0] = last_[1] = ~std::uint64_t{0};
    touches_ = 0;
    counts_ = {};
    straddles_ = {};
    return chunk;
}

}  // namespace

std::unique_ptr<Encoder> Encoder::create(Granularity granularity, DictionaryBuilder& dictionary, CpuId cpu,
                                         std::uint64_t kernel_base) {
    if (granularity == Granularity::kPage)
        return std::make_unique<TouchEncoder>(dictionary, cpu, kernel_base);
    return std::make_unique<ExecutionEncoder>(dictionary, cpu);
}

std::vector<std::uint8_t> pack(const EncodedChunk& chunk, int compression_level) {
    std::vector<std::uint8_t> out;
    const auto append = [&out](format::ChunkKind kind, const ChunkInfo& info,
                               const std::vector<std::uint8_t>& payload) {
        const auto header = format::chunk_header({.kind = kind,
                                                  .payload_bytes = static_cast<std::uint32_t>(payload.size()),
                                                  .cpu = info.cpu.value(),
                                                  .number = info.number,
                                                  .payload_hash = format::hash(payload)});
        out.insert(out.end(), header.begin(), header.end());
        out.insert(out.end(), payload.begin(), payload.end());
    };
    if (!chunk.dictionary.empty()) {
        std::vector<std::uint8_t> payload;
        format::put(payload, static_cast<std::uint64_t>(chunk.dictionary.size()));
        const auto frame = format::compress(chunk.dictionary, compression_level + 2);
        payload.insert(payload.end(), frame.begin(), frame.end());
        append(format::ChunkKind::kDictionary, chunk.info, payload);
    }
    std::vector<std::uint8_t> payload;
    format::put(payload, chunk.info.executions);
    format::put(payload, chunk.info.accesses);
    format::put(payload, chunk.info.instructions);
    format::put(payload, chunk.info.first_ticket);
    format::put(payload, chunk.info.time_ns);
    format::put(payload, chunk.entries_needed);
    format::put(payload, static_cast<std::uint32_t>(chunk.streams.size()));
    std::vector<std::vector<std::uint8_t>> frames;
    for (const auto& raw : chunk.streams) {
        frames.push_back(raw.empty() ? std::vector<std::uint8_t>{}
                                     : format::compress(raw, compression_level));
        format::put(payload, static_cast<std::uint32_t>(raw.size()));
        format::put(payload, static_cast<std::uint32_t>(frames.back().size()));
    }
    for (const auto& frame : frames) payload.insert(payload.end(), frame.begin(), frame.end());
    append(chunk.kind, chunk.info, payload);
    return out;
}

}  // namespace tlbscope::recording
