#include "explain/paths.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "core/nearest.h"
#include "recording/isa.h"

namespace tlbscope::explain {

namespace {

using recording::Batch;
using recording::Block;
using recording::EventType;
using recording::Isa;

// Calls that are open at once; beyond, the outermost are forgotten (code that never returns).
constexpr std::size_t kMostOpenCalls = 4096;

std::optional<std::uint64_t> mark_number(std::string_view text) {
    if (!text.starts_with("mark:")) return std::nullopt;
    text.remove_prefix(5);
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

enum class Flow : std::uint8_t { kOther, kCall, kReturn, kInterruptReturn };

// Intel SDM volume 2: CALL e8, ff /2; RET c2, c3; IRET cf.
Flow x86_flow(std::span<const std::uint8_t> b) {
    std::size_t at = 0;
    while (at < b.size() && (b[at] == 0x66 || b[at] == 0xf2 || b[at] == 0xf3 || b[at] == 0x2e ||
                             b[at] == 0x3e || (b[at] & 0xf0) == 0x40))
        ++at;
    if (at >= b.size()) return Flow::kOther;
    if (b[at] == 0xe8) return Flow::kCall;
    if (b[at] == 0xff && at + 1 < b.size() && (b[at + 1] >> 3 & 7) == 2) return Flow::kCall;
    if (b[at] == 0xc2 || b[at] == 0xc3) return Flow::kReturn;
    return b[at] == 0xcf ? Flow::kInterruptReturn : Flow::kOther;
}

// Power ISA 3.0B book I 2.4: branches with LK set call; bclr (19, 16) without it returns; rfi and its kin.
Flow power_flow(std::uint32_t word) {
    const std::uint32_t opcode = word >> 26;
    const std::uint32_t extended = word >> 1 & 0x3ff;
    const bool link = (word & 1) != 0;
    if (opcode == 16 || opcode == 18) return link ? Flow::kCall : Flow::kOther;
    if (opcode != 19) return Flow::kOther;
    if (extended == 50 || extended == 18 || extended == 274 || extended == 51 || extended == 39)
        return Flow::kInterruptReturn;
    if (extended == 16) return link ? Flow::kCall : Flow::kReturn;
    return extended == 528 && link ? Flow::kCall : Flow::kOther;
}

// Arm ARM C6.2: BL, BLR, RET, ERET.
Flow arm64_flow(std::uint32_t word) {
    if (word >> 26 == 0x25 || (word & 0xfffffc1f) == 0xd63f0000) return Flow::kCall;
    if ((word & 0xfffffc1f) == 0xd65f0000) return Flow::kReturn;
    return word == 0xd69f03e0 ? Flow::kInterruptReturn : Flow::kOther;
}

Flow flow_of(Isa isa, std::span<const std::uint8_t> bytes) {
    const auto little = [&] {
        return std::uint32_t{bytes[0]} | std::uint32_t{bytes[1]} << 8 | std::uint32_t{bytes[2]} << 16 |
               std::uint32_t{bytes[3]} << 24;
    };
    if (isa == Isa::kX86) return x86_flow(bytes);
    if (bytes.size() < 4) return Flow::kOther;
    switch (isa) {
        case Isa::kPowerLittle:
            return power_flow(little());
        case Isa::kPowerBig:
            return power_flow(__builtin_bswap32(little()));
        case Isa::kArm64:
            return arm64_flow(little());
        default:
            return Flow::kOther;
    }
}

// arch/x86/include/asm/idtentry.h names all entry code of interrupts and exceptions; arch/x86/entry/
// entry_64.S has the stubs of the vectors before it.
bool is_interrupt_entry(std::string_view name) {
    return name.starts_with("asm_exc_") || name.starts_with("asm_sysvec_") ||
           name == "asm_common_interrupt" || name == "asm_spurious_interrupt";
}
bool is_vector_stub(std::string_view name) {
    return name == "irq_entries_start" || name == "spurious_entries_start";
}

// The names that ran and contain or resemble this one.
std::string guess(const std::string& name, const recording::Recording& recording, const Names& names) {
    std::set<std::string> ran;
    for (const Block& block : recording.dictionary().blocks()) {
        const Name found = names.function_at(SpaceId(0), block.address);
        if (found.function_id != 0 && !found.unnamed) ran.insert(std::string(found.function));
    }
    const std::vector<std::string> candidates(ran.begin(), ran.end());
    return nearest(name, candidates);
}

}  // namespace

Result<Path> parse_path(const std::string& text, const recording::Recording& recording, const Names& names) {
    Path path{.text = text, .between_marks = false, .first_mark = 0, .last_mark = 0, .functions = {}};
    if (text.starts_with("mark:")) {
        const std::size_t dots = text.find("..");
        const auto first = mark_number(std::string_view(text).substr(0, dots));
        const auto last =
            dots == std::string::npos ? std::nullopt : mark_number(std::string_view(text).substr(dots + 2));
        if (!first || !last)
            return std::unexpected(Error{.where = "",
                                         .what = fmt::format("--path {} is no pair of marks", text),
                                         .hint = "for example --path mark:1..mark:2",
                                         .error_class = ErrorClass::kUsage});
        path.between_marks = true;
        path.first_mark = *first;
        path.last_mark = *last;
        return path;
    }
    path.functions = names.functions_named(text);
    if (path.functions.empty()) {
        const std::string other = guess(text, recording, names);
        return fail(recording.path().string(), fmt::format("no function {} is known in it", text),
                    other.empty() ? "`tlbscope explain --by function` lists those that ran"
                                  : fmt::format("did you mean --path {}?", other));
    }
    return path;
}

PathTracker::PathTracker(const recording::Recording& recording, const Names& names, std::vector<Path> paths)
    : recording_(recording),
      names_(names),
      paths_(std::move(paths)),
      system_(recording.metadata().system),
      calls_(paths_.size()) {
    for (std::size_t i = 0; i < paths_.size(); ++i)
        for (const FunctionPlace& place : paths_[i].functions)
            entries_.emplace(place.start.value(), std::pair(i, &place));
    classify();
}

void PathTracker::classify() {
    const recording::Dictionary& dictionary = recording_.dictionary();
    const Isa isa = recording::isa_of(recording_.metadata().target);
    const std::uint64_t kernel_base = recording_.metadata().kernel_base;
    knows_interrupts_ = system_ && recording_.metadata().target == "x86_64";
    flags_.resize(dictionary.size());
    for (std::uint32_t id = 0; id < dictionary.size(); ++id) {
        const Block& block = dictionary[id];
        const auto code = dictionary.code(block);
        std::uint8_t flags = 0;
        switch (flow_of(isa, code.subspan(block.bytes - block.last_length))) {
            case Flow::kCall:
                flags |= kCall;
                break;
            case Flow::kReturn:
                flags |= kReturn;
                break;
            case Flow::kInterruptReturn:
                flags |= kReturn | kInterruptReturn;
                break;
            case Flow::kOther:
                break;
        }
        if (entries_.contains(block.address.value())) flags |= kPathEntry;
        if (knows_interrupts_ && block.address.value() >= kernel_base) {
            const Name name = names_.function_at(SpaceId(0), block.address);
            if (is_vector_stub(name.function)) flags |= kVectorStub | kInterruptEntry;
            // Its code is entered at its start only.
            if (is_interrupt_entry(name.function) &&
                (block.address.value() == 0 ||
                 names_.function_at(SpaceId(0), VirtAddr(block.address.value() - 1)).function_id !=
                     name.function_id))
                flags |= kInterruptEntry;
        }
        flags_[id] = flags;
    }
}

void PathTracker::switch_to(Cpu& cpu, CpuId id, SpaceId space) {
    cpu.space = space;
    cpu.task = &tasks_[system_ ? space.value() : id.value()];
}

void PathTracker::forget_outermost(Task& task, std::size_t count) {
    task.calls.erase(task.calls.begin(), task.calls.begin() + static_cast<std::ptrdiff_t>(count));
    for (Active& active : task.active)
        if (active.depth != 0) active.depth = active.depth > count ? active.depth - count : 1;
}

Result<void> PathTracker::begin(Cpu& cpu, std::size_t path, std::size_t depth, const At& at, PathSink& sink) {
    for (const Active& active : cpu.task->active)
        if (active.path == path) return {};  // a call within a call is part of it
    cpu.task->active.push_back({.path = path,
                                .call = calls_[path],
                                .depth = depth,
                                .nesting = cpu.task->nesting,
                                .fetched_before = cpu.fetched,
                                .own_fetches = 0,
                                .apart = {}});
    return sink.begin(path, calls_[path]++, at.cpu, at.block, at.access);
}

Result<void> PathTracker::end(Cpu& cpu, std::size_t index, const At& at, PathSink& sink) {
    Active active = cpu.task->active[index];
    cpu.task->active.erase(cpu.task->active.begin() + static_cast<std::ptrdiff_t>(index));
    const std::uint64_t passed = cpu.fetched - std::min(cpu.fetched, active.fetched_before);
    const std::uint64_t own = active.own_fetches + active.apart.interrupt_fetches;
    active.apart.elsewhere_fetches = passed - std::min(passed, own);
    return sink.end(active.path, active.call, at.cpu, at.block, at.access, active.apart);
}

Result<void> PathTracker::mark(Cpu& cpu, std::uint64_t number, const At& at, PathSink& sink) {
    for (std::size_t path = 0; path < paths_.size(); ++path) {
        if (!paths_[path].between_marks) continue;
        if (number == paths_[path].last_mark) {
            for (std::size_t i = 0; i < cpu.task->active.size(); ++i)
                if (cpu.task->active[i].path == path) {
                    if (auto done = end(cpu, i, at, sink); !done) return done;
                    break;
                }
        }
        if (number == paths_[path].first_mark)
            if (auto done = begin(cpu, path, 0, at, sink); !done) return done;
    }
    return {};
}

Result<void> PathTracker::close_calls(Cpu& cpu, std::uint64_t address, const At& at, PathSink& sink) {
    Task& task = *cpu.task;
    for (std::size_t depth = task.calls.size(); depth > 0; --depth) {
        if (task.calls[depth - 1] != address) continue;
        task.calls.resize(depth - 1);
        for (std::size_t i = task.active.size(); i > 0; --i)
            if (task.active[i - 1].depth > task.calls.size())
                if (auto done = end(cpu, i - 1, at, sink); !done) return done;
        break;
    }
    return {};
}

Result<void> PathTracker::enter(Cpu& cpu, std::uint64_t address, const At& at, PathSink& sink) {
    const auto [first, last] = entries_.equal_range(address);
    for (auto entry = first; entry != last; ++entry) {
        const auto& [path, place] = entry->second;
        if (!place->kernel && system_ && place->space != cpu.space) continue;
        // Without an open call there is nothing that could end it: the recording began within.
        if (cpu.task->calls.empty()) continue;
        if (auto done = begin(cpu, path, cpu.task->calls.size(), at, sink); !done) return done;
    }
    return {};
}

Result<void> PathTracker::consume(const Batch& batch, PathSink& sink) {
    const recording::Dictionary& dictionary = recording_.dictionary();
    Cpu& cpu = cpus_[batch.cpu.value()];
    if (cpu.task == nullptr) switch_to(cpu, batch.cpu, SpaceId(0));
    auto event = batch.events.begin();
    auto odd = batch.odd.begin();
    At at{.cpu = batch.cpu, .block = 0, .access = 0};
    const auto happen = [&](std::uint32_t until) -> Result<void> {
        for (; event != batch.events.end() && event->position <= until; ++event) {
            if (event->type == EventType::kSwitchSpace)
                switch_to(cpu, batch.cpu, SpaceId(static_cast<std::uint32_t>(event->a)));
            if (event->type == EventType::kMark)
                if (auto done = mark(cpu, event->a, at, sink); !done) return done;
        }
        return {};
    };
    for (; at.block < batch.blocks.size(); ++at.block) {
        if (event != batch.events.end() && event->position <= at.block)
            if (auto done = happen(at.block); !done) return done;
        const std::uint32_t id = batch.blocks[at.block];
        const Block& block = dictionary[id];
        const std::uint8_t flags = flags_[id];
        Task& task = *cpu.task;
        std::uint16_t instructions = block.instructions;
        std::uint32_t accesses = block.slot_count;
        if (odd != batch.odd.end() && odd->ordinal == at.block) {
            instructions = odd->instructions;
            accesses = odd->slot_count;
            ++odd;
        }
        if (task.after_return) {
            task.after_return = false;
            if (auto done = close_calls(cpu, block.address.value(), at, sink); !done) return done;
        }
        if ((flags & kInterruptEntry) != 0 && !task.in_stub) {
            ++task.nesting;
            for (Active& active : task.active)
                if (task.nesting == active.nesting + 1) ++active.apart.interrupts;
        }
        task.in_stub = (flags & kVectorStub) != 0;
        if ((flags & kPathEntry) != 0)
            if (auto done = enter(cpu, block.address.value(), at, sink); !done) return done;
        for (Active& active : task.active) {
            if (task.nesting > active.nesting) {
                active.apart.interrupt_fetches += instructions;
                continue;
            }
            active.own_fetches += instructions;
            sink.execution(active.path, active.call,
                           {.block = id,
                            .space = cpu.space,
                            .instructions = instructions,
                            .addresses = batch.addresses.subspan(at.access, accesses),
                            .index = at.block});
        }
        cpu.fetched += instructions;
        at.access += accesses;
        if (instructions < block.instructions) continue;  // its last instruction did not run
        if ((flags & kCall) != 0) {
            if (task.calls.size() == kMostOpenCalls) forget_outermost(task, kMostOpenCalls / 2);
            task.calls.push_back(block.address.value() + block.bytes);
        }
        if ((flags & kReturn) != 0) task.after_return = true;
        if ((flags & kInterruptReturn) != 0 && task.nesting > 0) --task.nesting;
    }
    return happen(at.block);
}

std::uint64_t PathTracker::unfinished(std::size_t path) const {
    std::uint64_t count = 0;
    for (const auto& [key, task] : tasks_)
        count += static_cast<std::uint64_t>(
            std::count_if(task.active.begin(), task.active.end(),
                          [path](const Active& active) { return active.path == path; }));
    return count;
}

}  // namespace tlbscope::explain
