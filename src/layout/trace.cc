#include "layout/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "replay/engine.h"
#include "replay/pipeline.h"

namespace tlbscope::layout {

namespace {

using recording::Batch;
using recording::EventType;

// A block's place in the image, known once the space it ran in is.
struct BlockPlace {
    std::uint32_t piece = kNoPiece;
    std::uint32_t space = 0;
    std::uint64_t first = 0;  // byte of the piece; of other code its address
    bool known = false;
    bool user = false;
    bool function_start = false;
};

struct CallKey {
    std::uint32_t from = 0;
    std::uint32_t to = 0;
    std::uint32_t offset = 0;
    friend bool operator==(const CallKey&, const CallKey&) = default;
    [[nodiscard]] std::uint64_t hash() const {
        return (std::uint64_t{from} << 32 | to) * 0xbf58476d1ce4e5b9 + offset;
    }
};

// The parts of a piece that were touched, as a list of ranges without overlap.
class Touched {
  public:
    void add(std::uint64_t first, std::uint64_t end) {
        auto at = ranges_.upper_bound(first);
        if (at != ranges_.begin() && std::prev(at)->second >= first) {
            --at;
            if (at->second >= end) return;
            first = at->first;
        }
        while (at != ranges_.end() && at->first <= end) {
            end = std::max(end, at->second);
            at = ranges_.erase(at);
        }
        ranges_[first] = end;
    }
    [[nodiscard]] std::uint64_t bytes() const {
        std::uint64_t sum = 0;
        for (const auto& [first, end] : ranges_) sum += end - first;
        return sum;
    }

  private:
    std::map<std::uint64_t, std::uint64_t> ranges_;
};

class Builder {
  public:
    Builder(const recording::Recording& recording, const Image& image, const Places& places,
            const machine::Machine& machine, Trace& trace)
        : dictionary_(recording.dictionary()),
          kernel_base_(recording.metadata().kernel_base),
          image_(image),
          places_(places),
          asid_count_(std::min(machine.asids.count, addrspace::kMostAsids)),
          trace_(trace),
          joined_(std::min(trace.shift.bytes(), trace.image_shift.bytes())),
          blocks_(dictionary_.size()),
          touched_(image.pieces.size()) {
        for (const recording::Space& space : recording.metadata().spaces) spaces_.add(space.id, space.pid);
        trace_.uses.resize(image.pieces.size());
    }

    Result<void> consume(const Batch& batch) {
        Cpu& cpu = cpu_of(batch.cpu);
        std::uint32_t at = 0;
        std::uint32_t access = 0;
        std::uint32_t odd = 0;
        const auto blocks = static_cast<std::uint32_t>(batch.blocks.size());
        const auto run = [&](std::uint32_t end) -> Result<void> {
            if (end > at) ensure_space(cpu);
            for (; at < end; ++at)
                if (auto done = execute(cpu, batch, at, access, odd); !done) return done;
            return {};
        };
        for (const recording::Event& event : batch.events) {
            const auto removal = replay::removal_of(event);
            if (event.type != EventType::kSwitchSpace && !removal) continue;
            const std::uint32_t end = std::clamp(static_cast<std::uint32_t>(event.position), at, blocks);
            if (auto done = run(end); !done) return done;
            if (removal)
                remove(cpu, *removal);
            else
                switch_space(cpu, SpaceId(static_cast<std::uint32_t>(event.a)));
        }
        return run(blocks);
    }

    void finish() {
        for (auto& [id, cpu] : cpus_) {
            close(cpu);
            trace_.cpus.push_back(std::move(cpu.trace));
        }
        calls_.for_each([&](const CallKey& key, std::uint64_t count) {
            trace_.calls.push_back(
                {.from = key.from, .to = key.to, .from_offset = key.offset, .count = count});
        });
        std::sort(trace_.calls.begin(), trace_.calls.end(), [](const Call& a, const Call& b) {
            return std::tie(a.from, a.to, a.from_offset) < std::tie(b.from, b.to, b.from_offset);
        });
        for (std::size_t i = 0; i < touched_.size(); ++i) trace_.uses[i].touched_bytes = touched_[i].bytes();
    }

  private:
    struct Cpu {
        CpuTrace trace;
        addrspace::Asids asids{0};
        SpaceId recorded;
        bool in_space = false;
        std::optional<std::uint64_t> bias;
        std::uint16_t bias_number = 0;
        Visit open;  // being joined; nothing when `end` is 0
        bool open_function_start = false;
        std::uint32_t caller = kNoPiece;
        std::uint32_t caller_offset = 0;
    };

    Cpu& cpu_of(CpuId id) {
        const auto [known, is_new] = cpus_.try_emplace(id.value());
        if (is_new) {
            known->second.trace.cpu = id;
            known->second.asids = addrspace::Asids(asid_count_);
        }
        return known->second;
    }

    void ensure_space(Cpu& cpu) {
        if (!cpu.in_space) switch_space(cpu, SpaceId(0));
    }

    void switch_space(Cpu& cpu, SpaceId recorded) {
        close(cpu);
        cpu.in_space = true;
        cpu.recorded = recorded;
        cpu.bias = places_.bias(recorded);
        if (cpu.bias) {
            const auto known = std::find(trace_.biases.begin(), trace_.biases.end(), *cpu.bias);
            cpu.bias_number = static_cast<std::uint16_t>(known - trace_.biases.begin());
            if (known == trace_.biases.end()) trace_.biases.push_back(*cpu.bias);
        }
        const addrspace::Asids::Switch to = cpu.asids.switch_to(spaces_.same_as(recorded));
        change(cpu, {.what = Change::What::kSwitch, .to = to, .address = 0, .user = false});
    }

    void remove(Cpu& cpu, const replay::TlbEvent& removal) {
        ensure_space(cpu);
        close(cpu);
        const std::uint64_t address = removal.address.value();
        change(cpu,
               {.what = removal.what == replay::TlbEvent::What::kInvalidateAll ? Change::What::kRemoveAll
                                                                               : Change::What::kRemovePage,
                .to = {},
                .address = address,
                .user = address < kernel_base_});
    }

    void change(Cpu& cpu, const Change& change) {
        cpu.trace.elements.push_back(kChange | static_cast<std::uint32_t>(trace_.changes.size()));
        trace_.changes.push_back(change);
    }

    // The piece that an address of the running space lies in, and the byte within.
    std::optional<std::pair<std::uint32_t, std::uint64_t>> piece_at(const Cpu& cpu, std::uint64_t address) {
        if (!cpu.bias || (address >= kernel_base_) != places_.kernel()) return std::nullopt;
        const std::uint64_t at = address - *cpu.bias;
        if (at < places_.low() || at >= places_.high()) return std::nullopt;
        const auto piece = image_.piece_at(at);
        if (!piece) {
            ++trace_.unplaced;
            return std::nullopt;
        }
        return std::pair{*piece, at - image_.pieces[*piece].start};
    }

    void find(const Cpu& cpu, std::uint32_t id, BlockPlace& place) {
        const std::uint64_t address = dictionary_[id].address.value();
        place = {.piece = kNoPiece,
                 .space = cpu.recorded.value(),
                 .first = address,
                 .known = true,
                 .user = address < kernel_base_,
                 .function_start = false};
        if (const auto found = piece_at(cpu, address)) {
            place.piece = found->first;
            place.first = found->second;
            const std::uint64_t at = image_.pieces[found->first].start + found->second;
            const Function* function = image_.function_at(at);
            place.function_start = function != nullptr ? function->start == at : found->second == 0;
        }
    }

    Result<void> execute(Cpu& cpu, const Batch& batch, std::uint32_t at, std::uint32_t& access,
                         std::uint32_t& odd) {
        const std::uint32_t id = batch.blocks[at];
        const recording::Block& block = dictionary_[id];
        std::uint32_t instructions = block.instructions;
        std::uint64_t bytes = block.bytes;
        std::span<const recording::Slot> slots = dictionary_.shape(block);
        if (odd < batch.odd.size() && batch.odd[odd].ordinal == at) {
            const recording::OddExecution& execution = batch.odd[odd++];
            slots = batch.odd_slots.subspan(execution.first_slot, execution.slot_count);
            if (execution.instructions < instructions) {
                instructions = execution.instructions;
                bytes = 0;
                for (const std::uint8_t length : dictionary_.lengths(block).first(instructions))
                    bytes += length;
            }
        }
        if (access + slots.size() > batch.addresses.size())
            return fail("", "a batch holds fewer addresses than its blocks make accesses",
                        "the recording is damaged or was written by another version");
        if (trace_.kind == Kind::kInstruction) {
            BlockPlace& place = blocks_[id];
            if (!place.known) find(cpu, id, place);
            if (instructions > 0) {
                trace_.references += instructions;
                fetch(cpu, place, bytes, instructions);
            }
        } else {
            for (std::size_t i = 0; i < slots.size(); ++i)
                touch_data(cpu, batch.addresses[access + i],
                           std::uint64_t{1} << std::min<std::uint8_t>(slots[i].size_log2, 63));
            trace_.references += slots.size();
        }
        access += static_cast<std::uint32_t>(slots.size());
        return {};
    }

    void fetch(Cpu& cpu, const BlockPlace& place, std::uint64_t bytes, std::uint32_t instructions) {
        if (place.piece == kNoPiece) {
            pages(cpu, place.first, bytes, place.user);
            return;
        }
        trace_.image_references += instructions;
        trace_.uses[place.piece].references += instructions;
        visit(cpu, place.piece, place.first, place.first + bytes, place.user, place.function_start);
    }

    void touch_data(Cpu& cpu, std::uint64_t address, std::uint64_t bytes) {
        const bool user = address < kernel_base_;
        if (const auto found = piece_at(cpu, address)) {
            ++trace_.image_references;
            ++trace_.uses[found->first].references;
            visit(cpu, found->first, found->second, found->second + bytes, user, true);
        } else {
            pages(cpu, address, bytes, user);
        }
    }

    void visit(Cpu& cpu, std::uint32_t piece, std::uint64_t first, std::uint64_t end, bool user, bool entry) {
        Visit& open = cpu.open;
        if (open.end != 0 && open.piece == piece) {
            // A block that falls through into the next function's start is no call.
            if (first >= open.end && first - open.end < joined_) {
                open.end = end;
                return;
            }
            if (first == open.first && end == open.end && trace_.kind == Kind::kData) return;
        }
        close(cpu);
        open = {.piece = piece, .user = user, .bias = cpu.bias_number, .first = first, .end = end};
        if (entry) enter(cpu, piece);
    }

    void enter(Cpu& cpu, std::uint32_t piece) {
        ++trace_.uses[piece].entries;
        if (cpu.caller != kNoPiece && cpu.caller != piece)
            ++calls_[{.from = cpu.caller, .to = piece, .offset = cpu.caller_offset & ~15U}];
    }

    void pages(Cpu& cpu, std::uint64_t address, std::uint64_t bytes, bool user) {
        close(cpu);
        const std::uint64_t first = address >> trace_.shift.value();
        const std::uint64_t last = (address + std::max<std::uint64_t>(bytes, 1) - 1) >> trace_.shift.value();
        for (std::uint64_t page = first; page <= last; ++page)
            append(cpu, {.piece = kNoPiece, .user = user, .bias = 0, .first = page, .end = page + 1});
    }

    void close(Cpu& cpu) {
        if (cpu.open.end == 0) return;
        const Visit done = cpu.open;
        cpu.open.end = 0;
        append(cpu, done);
        touched_[done.piece].add(done.first, done.end);
        PieceUse& use = trace_.uses[done.piece];
        if (use.first_seen == 0) use.first_seen = ++seen_;
        if (image_.pieces[done.piece].stays != Stays::kMoves) return;
        cpu.caller = done.piece;
        cpu.caller_offset = static_cast<std::uint32_t>(done.end - 1);
    }

    void append(Cpu& cpu, const Visit& visit) {
        std::uint32_t& number = numbers_[visit];
        if (number == 0) {
            trace_.visits.push_back(visit);
            number = static_cast<std::uint32_t>(trace_.visits.size());
        }
        auto& elements = cpu.trace.elements;
        if (visit.piece == kNoPiece && !elements.empty() && elements.back() == number - 1) return;
        elements.push_back(number - 1);
    }

    const recording::Dictionary& dictionary_;
    std::uint64_t kernel_base_;
    const Image& image_;
    const Places& places_;
    std::uint32_t asid_count_;
    Trace& trace_;
    std::uint64_t joined_;
    std::vector<BlockPlace> blocks_;
    std::vector<Touched> touched_;
    addrspace::Spaces spaces_;
    std::map<std::uint32_t, Cpu> cpus_;
    explain::FlatMap<Visit, std::uint32_t> numbers_;  // + 1
    explain::FlatMap<CallKey, std::uint64_t> calls_;
    std::uint64_t seen_ = 0;
};

constexpr std::size_t kLongestBody = 256;
constexpr std::size_t kFewestPasses = 4;

// One level: replaces runs of an equal sequence by loops. Greedy from the left, the shortest period first: an
// inner loop is found before what is around it.
bool find_one_level(Trace& trace, std::vector<std::uint32_t>& elements) {
    std::unordered_map<std::uint32_t, std::size_t> last;  // where each element was seen last
    std::map<std::pair<std::vector<std::uint32_t>, std::uint32_t>, std::uint32_t> known;
    std::vector<std::uint32_t> result;
    result.reserve(elements.size());
    bool found = false;
    // Where each element occurs next.
    std::vector<std::uint32_t> next(elements.size(), 0);
    for (std::size_t i = elements.size(); i-- > 0;) {
        const auto [place, is_new] = last.try_emplace(elements[i], i);
        next[i] = is_new ? 0 : static_cast<std::uint32_t>(std::min<std::size_t>(place->second - i, ~0U));
        place->second = i;
    }
    for (std::size_t i = 0; i < elements.size();) {
        std::size_t best_length = 0;
        std::size_t best_passes = 0;
        std::size_t period = next[i];
        for (int tries = 0; tries < 3 && period != 0 && period <= kLongestBody; ++tries) {
            std::size_t same = 0;
            while (i + period + same < elements.size() && elements[i + same] == elements[i + period + same])
                ++same;
            const std::size_t passes = 1 + same / period;
            if (passes >= kFewestPasses && passes * period > best_length * best_passes) {
                best_length = period;
                best_passes = passes;
            }
            const std::size_t further = i + period < elements.size() ? next[i + period] : 0;
            period = further == 0 ? 0 : period + further;
        }
        bool changes = false;
        for (std::size_t k = 0; k < best_length && !changes; ++k)
            changes = (elements[i + k] & kLoop) == 0 && (elements[i + k] & kChange) != 0;
        if (best_passes == 0 || changes) {
            result.push_back(elements[i++]);
            continue;
        }
        std::vector<std::uint32_t> body(elements.begin() + static_cast<std::ptrdiff_t>(i),
                                        elements.begin() + static_cast<std::ptrdiff_t>(i + best_length));
        const auto passes = static_cast<std::uint32_t>(best_passes);
        const auto [place, is_new] =
            known.try_emplace({body, passes}, static_cast<std::uint32_t>(trace.loops.size()));
        if (is_new) {
            trace.loops.push_back({.first = static_cast<std::uint32_t>(trace.bodies.size()),
                                   .length = static_cast<std::uint32_t>(best_length),
                                   .passes = passes});
            trace.bodies.insert(trace.bodies.end(), body.begin(), body.end());
        }
        result.push_back(kLoop | place->second);
        i += best_length * best_passes;
        found = true;
    }
    elements = std::move(result);
    elements.shrink_to_fit();
    return found;
}

}  // namespace

std::size_t Trace::size() const {
    std::size_t sum = bodies.size();
    for (const CpuTrace& cpu : cpus) sum += cpu.elements.size();
    return sum;
}

void find_loops(Trace& trace) {
    constexpr int kLevels = 3;
    for (CpuTrace& cpu : trace.cpus) {
        trace.elements_before += cpu.elements.size();
        for (int level = 0; level < kLevels; ++level)
            if (!find_one_level(trace, cpu.elements)) break;
    }
}

Result<Trace> trace_of(const recording::Recording& recording, const Image& image, const Places& places,
                       const machine::Machine& machine, const TraceOptions& options) {
    if (recording.metadata().granularity != recording::Granularity::kFull)
        return fail(recording.path().string(), "it keeps pages only, and an order needs every execution",
                    "record with --granularity full");
    Trace trace;
    trace.kind = image.what == What::kText ? Kind::kInstruction : Kind::kData;
    trace.shift = machine.pages.base;
    trace.image_shift = options.image_shift.value() == 0 ? trace.shift : options.image_shift;
    std::uint64_t total = 0;
    std::uint64_t done = 0;
    bool stopped = false;
    for (const recording::ChunkInfo& chunk : recording.chunks()) total += chunk.executions;
    Builder builder(recording, image, places, machine, trace);
    auto read = replay::for_each_batch(
        recording, std::min(options.threads - 1, 3U),
        [&](const Batch& batch) -> Result<void> {
            if (stopped)
                return std::unexpected(Error{.where = "",
                                             .what = "stopped before the recording was read",
                                             .hint = "",
                                             .error_class = ErrorClass::kInterrupted});
            return builder.consume(batch);
        },
        [&](std::size_t chunk) {
            done += recording.chunks()[chunk].executions;
            if (options.progress && !options.progress(done, total)) stopped = true;
        });
    if (!read) {
        Error error = read.error();
        if (error.where.empty()) error.where = recording.path().string();
        return std::unexpected(error);
    }
    builder.finish();
    find_loops(trace);
    return trace;
}

}  // namespace tlbscope::layout
