#include "support/reference_replay.h"

namespace tlbscope::reference {

namespace {

bool overlap(const Translation& a, std::uint64_t start, unsigned shift) {
    const std::uint64_t a_first = a.page << a.shift;
    const std::uint64_t a_last = a_first + ((std::uint64_t{1} << a.shift) - 1);
    const std::uint64_t first = start >> shift << shift;
    const std::uint64_t last = first + ((std::uint64_t{1} << shift) - 1);
    return a_first <= last && first <= a_last;
}

}  // namespace

Replay::Replay(const recording::Dictionary& dictionary, recording::Metadata metadata,
               machine::Machine machine, std::vector<replay::TlbEvent> events)
    : arrays(machine.tlbs.size()),
      dictionary_(&dictionary),
      metadata_(std::move(metadata)),
      machine_(std::move(machine)),
      mapping_(machine_.mapping()),
      events_(std::move(events)) {
    smallest_ = 64;
    std::vector<unsigned> pages{machine_.pages.base.value()};
    for (const addrspace::MappingRule& rule : machine_.rules) pages.push_back(rule.size.value());
    for (const unsigned page : pages)
        for (const Kind kind : replay::kKinds)
            for (std::uint32_t level = 1; level <= machine_.levels(); ++level)
                if (const auto [array, shift] = place(kind, level, page); array >= 0)
                    smallest_ = std::min(smallest_, shift);
    smallest_ = std::min(smallest_, unsigned{machine_.pages.base.value()});
}

std::pair<int, unsigned> Replay::place(Kind kind, std::uint32_t level, unsigned page) const {
    std::pair<int, unsigned> best{-1, 0};
    for (std::size_t i = 0; i < machine_.tlbs.size(); ++i)
        for (const PageShift size : machine_.tlbs[i].pages)
            if (machine_.tlbs[i].level == level && machine_.tlbs[i].serves(kind) && size.value() <= page &&
                size.value() > best.second)
                best = {static_cast<int>(i), size.value()};
    return best;
}

Replay::Cpu& Replay::cpu(CpuId id) {
    Cpu& state = cpus_[id.value()];
    if (!state.started) {
        for (std::size_t i = 0; i < machine_.tlbs.size(); ++i) {
            const machine::TlbGeometry& geometry = machine_.tlbs[i].geometry;
            state.arrays.push_back({.tlb = std::make_unique<Tlb>(geometry, std::uint64_t{2} * id.value() + i),
                                    .causes = std::make_unique<Causes>(geometry),
                                    .pins = {}});
        }
        state.id = id.value();
        state.started = true;
    }
    return state;
}

// Spaces of the same process are one; the lowest place in the metadata names it.
std::uint32_t Replay::process_of(std::uint64_t space) const {
    std::uint32_t pid = 0;
    for (const recording::Space& known : metadata_.spaces)
        if (known.id.value() == space) pid = known.pid;
    if (pid == 0) return static_cast<std::uint32_t>(space);
    for (const recording::Space& known : metadata_.spaces)
        if (known.pid == pid) return known.id.value();
    return static_cast<std::uint32_t>(space);
}

void Replay::switch_to(Cpu& cpu, std::uint32_t space) {
    const bool first = !cpu.in_space;
    if (!first && space == cpu.space) return;
    cpu.in_space = true;
    cpu.space = space;
    if (machine_.asids.count == 0) {
        if (!first)
            for (Array& array : cpu.arrays) {
                array.causes->flush_all(*array.tlb);
                array.tlb->flush_all();
            }
        check_pins(cpu);
        return;
    }
    for (const auto& [owner, identifier] : cpu.owners)
        if (owner == space) {
            cpu.identifier = identifier;
            return;
        }
    if (cpu.owners.size() < machine_.asids.count) {
        cpu.identifier = static_cast<std::uint32_t>(cpu.owners.size());
    } else {
        cpu.identifier = cpu.owners.front().second;
        cpu.owners.pop_front();
        for (Array& array : cpu.arrays) {
            array.causes->drop_space(cpu.identifier, *array.tlb);
            array.tlb->drop_space(cpu.identifier);
        }
        check_pins(cpu);
    }
    cpu.owners.emplace_back(space, cpu.identifier);
}

void Replay::consume(const recording::Batch& batch) {
    Cpu& state = cpu(batch.cpu);
    std::size_t address = 0;
    auto event = batch.events.begin();
    for (std::size_t ordinal = 0; ordinal <= batch.blocks.size(); ++ordinal) {
        for (; event != batch.events.end() && event->position < ordinal; ++event) happen(state, *event);
        if (ordinal < batch.blocks.size())
            for (; state.next_event < events_.size() && events_[state.next_event].execution <= executions_;
                 ++state.next_event) {
                if (!state.in_space) switch_to(state, process_of(0));
                happen(state, events_[state.next_event]);
            }
        for (; event != batch.events.end() && event->position <= ordinal; ++event) happen(state, *event);
        if (ordinal == batch.blocks.size()) break;
        if (!state.in_space) switch_to(state, process_of(0));
        execute(state, batch, ordinal, address);
    }
}

void Replay::happen(Cpu& cpu, const recording::Event& event) {
    if (event.type == recording::EventType::kSwitchSpace) switch_to(cpu, process_of(event.a));
    if (event.type != recording::EventType::kInvalidate) return;
    const auto what = static_cast<recording::Invalidation>(event.a);
    const bool page = what == recording::Invalidation::kInvlpg || what == recording::Invalidation::kTlbie ||
                      what == recording::Invalidation::kTlbiel;
    if (what != recording::Invalidation::kTlbia && !(page && event.b != 0)) return;
    if (!cpu.in_space) switch_to(cpu, process_of(0));
    happen(cpu,
           {.what = page ? replay::TlbEvent::What::kInvalidatePage : replay::TlbEvent::What::kInvalidateAll,
            .address = VirtAddr(event.b)});
}

Translation Replay::entry(const Cpu& cpu, std::uint64_t address, unsigned shift, bool named) const {
    const bool kernel = metadata_.side(address) == Side::kKernel;
    return {.kernel = kernel,
            .space = kernel  ? 0
                     : named ? cpu.space
                             : cpu.identifier,
            .page = address >> shift,
            .shift = shift};
}

void Replay::remove(Cpu& cpu, const std::function<bool(const Translation&, bool)>& doomed) {
    for (Array& array : cpu.arrays) {
        array.causes->drop_if(doomed, *array.tlb);
        array.tlb->drop_if(doomed);
    }
}

void Replay::check_pins(Cpu& cpu) {
    for (std::size_t i = 0; i < cpu.arrays.size(); ++i)
        for (auto& pin : cpu.arrays[i].pins)
            if (pin.alive && !cpu.arrays[i].tlb->holds(pin.translation)) pin.alive = false;
}

void Replay::happen(Cpu& cpu, const replay::TlbEvent& event) {
    const machine::InvalidationRules& rules = machine_.invalidation;
    const std::uint64_t address = event.address.value();
    const Translation at = entry(cpu, address, smallest_, false);
    // Pins are there from the start.
    if (event.what != replay::TlbEvent::What::kInvalidateAll)
        for (const Kind kind : replay::kKinds) pin_of(cpu, kind, address);
    if (event.what == replay::TlbEvent::What::kInvalidatePage) {
        remove(cpu, [&](const Translation& other, bool reserved) {
            const bool same = other.kernel == at.kernel && other.space == at.space;
            return (same || rules.page_matches_any_asid) && (!reserved || rules.page_kills_reserved) &&
                   overlap(other, address, smallest_);
        });
    } else if (event.what == replay::TlbEvent::What::kInvalidateAll) {
        remove(cpu, [&](const Translation& other, bool reserved) {
            return !(reserved && rules.all_spares_reserved) && !(other.kernel && rules.all_spares_global);
        });
        if (rules.all_clears_index && !rules.all_spares_global)
            for (Array& array : cpu.arrays) array.tlb->flush_all();
    } else {
        const Side side = metadata_.side(address);
        const auto page = mapping_.at(SpaceId(0), event.address, side, {}, false);
        const auto [array, shift] = place(Kind::kData, 1, page.size.value());
        const Translation wanted = entry(cpu, address, shift, false);
        Array& loaded = cpu.arrays[static_cast<std::size_t>(array)];
        const auto doomed = [&](const Translation& other, bool) {
            return other.shift != wanted.shift && other.kernel == wanted.kernel &&
                   other.space == wanted.space && overlap(other, address, wanted.shift);
        };
        if (rules.reload_kills_overlapping) {
            loaded.causes->drop_if(doomed, *loaded.tlb);
            loaded.tlb->drop_if(doomed);
        }
        loaded.causes->load(entry(cpu, address, shift, true), wanted);
        loaded.tlb->load(wanted);
    }
    check_pins(cpu);
}

void Replay::execute(Cpu& cpu, const recording::Batch& batch, std::size_t ordinal, std::size_t& address) {
    const recording::Block& block = (*dictionary_)[batch.blocks[ordinal]];
    const Mode mode = metadata_.side(block.address.value()) == Side::kKernel ? Mode::kKernel : Mode::kUser;
    std::size_t begun = block.instructions;
    std::span<const recording::Slot> slots = dictionary_->shape(block);
    for (const recording::OddExecution& odd : batch.odd)
        if (odd.ordinal == ordinal) {
            begun = odd.instructions;
            slots = batch.odd_slots.subspan(odd.first_slot, odd.slot_count);
        }
    std::uint64_t at = block.address.value();
    std::size_t slot = 0;
    for (std::size_t i = 0; i < begun; ++i) {
        const std::uint64_t length = dictionary_->lengths(block)[i];
        const auto side = static_cast<std::size_t>(metadata_.side(at));
        if (i == 0 && block.starts_with_repeat && cpu.any_instruction && cpu.last_instruction == at)
            ++iterations[side];
        else
            ++instructions[side];
        cpu.last_instruction = at;
        cpu.any_instruction = true;
        reference(cpu, Kind::kInstruction, mode, at, length, at);
        for (; slot < slots.size() && slots[slot].instruction == i; ++slot)
            reference(cpu, Kind::kData, mode, batch.addresses[address++],
                      std::uint64_t{1} << slots[slot].size_log2, at);
        at += length;
    }
    ++executions_;
}

void Replay::reference(Cpu& cpu, Kind kind, Mode mode, std::uint64_t address, std::uint64_t bytes,
                       std::uint64_t instruction) {
    ++references.at(kind, mode, metadata_.side(address));
    const std::uint64_t page_bytes = std::uint64_t{1} << smallest_;
    const std::uint64_t first_page = address / page_bytes * page_bytes;
    touch(cpu, kind, mode, address, instruction);
    for (std::uint64_t further = page_bytes; further < address - first_page + bytes; further += page_bytes)
        touch(cpu, kind, mode, first_page + further, instruction);
}

// The pin of the page at `address`, put into the array now if it is not there yet; none when it has no pin.
Replay::Array::Pin* Replay::pin_of(Cpu& cpu, Kind kind, std::uint64_t address) {
    const VirtAddr unit(address >> smallest_ << smallest_);
    const auto page = mapping_.at(SpaceId(0), unit, metadata_.side(address), {}, true);
    if (page.pin == nullptr) return nullptr;
    const auto [array, shift] = place(kind, 1, page.size.value());
    Array& owner = cpu.arrays[static_cast<std::size_t>(array)];
    const Translation wanted = entry(cpu, address, shift, false);
    for (auto& known : owner.pins)
        if (known.translation == wanted) return &known;
    const bool taken = owner.tlb->pin(wanted);
    return &owner.pins.emplace_back(Array::Pin{.translation = wanted, .alive = taken, .refused = !taken});
}

void Replay::touch(Cpu& cpu, Kind kind, Mode mode, std::uint64_t address, std::uint64_t instruction) {
    const Side side = metadata_.side(address);
    const auto k = static_cast<std::size_t>(kind);
    // The mapping is asked about the touched unit's first byte.
    const VirtAddr unit(address >> smallest_ << smallest_);
    ++touches;
    ++lookups.at(kind, mode, side);

    auto page = mapping_.at(SpaceId(0), unit, side, {}, true);
    if (const Array::Pin* pin = pin_of(cpu, kind, address); pin != nullptr && !pin->alive)
        page = mapping_.at(SpaceId(0), unit, side, {}, false);

    // Ask level after level.
    struct Asked {
        std::size_t array;
        Translation wanted, named;
    };
    std::vector<Asked> missed;
    std::optional<Asked> found;
    for (std::uint32_t level = 1; level <= machine_.levels() && !found; ++level) {
        const auto [array, shift] = place(kind, level, page.size.value());
        if (array < 0) continue;
        const Asked asked{.array = static_cast<std::size_t>(array),
                          .wanted = entry(cpu, address, shift, false),
                          .named = entry(cpu, address, shift, true)};
        ++arrays[asked.array].lookups[k];
        if (cpu.arrays[asked.array].tlb->holds(asked.wanted)) {
            found = asked;
        } else {
            ++arrays[asked.array].misses[k];
            missed.push_back(asked);
        }
    }
    std::optional<replay::Cause> cause;
    if (found) {
        cpu.arrays[found->array].tlb->look_up(found->wanted);
        cpu.arrays[found->array].causes->touch(found->named, found->wanted, true);
    }
    // Fill what missed, the last level first.
    for (std::size_t i = missed.size(); i-- > 0;) {
        const Asked& asked = missed[i];
        Array& array = cpu.arrays[asked.array];
        array.tlb->look_up(asked.wanted);
        const auto why = array.causes->touch(asked.named, asked.wanted, false);
        if (!cause) cause = why;
        const auto lost = array.tlb->lost();
        if (!machine_.tlbs[asked.array].inclusive || !lost) continue;
        for (std::size_t other = 0; other < cpu.arrays.size(); ++other)
            if (machine_.tlbs[other].level < machine_.tlbs[asked.array].level)
                cpu.arrays[other].tlb->drop_if([&](const Translation& entry, bool) {
                    return entry.kernel == lost->kernel && entry.space == lost->space &&
                           overlap(entry, lost->page << lost->shift, lost->shift);
                });
    }
    if (found) return;
    ++misses.at(kind, mode, side);
    for (std::size_t i = 0; i < cpu.arrays.size(); ++i)
        for (const auto& pin : cpu.arrays[i].pins) {
            const Translation here = entry(cpu, address, smallest_, false);
            if (!pin.alive && !pin.refused && machine_.tlbs[i].serves(kind) &&
                pin.translation.kernel == here.kernel && pin.translation.space == here.space &&
                overlap(pin.translation, address, smallest_))
                ++dead_pins[{cpu.id, i, pin.translation.page << pin.translation.shift}];
        }
    log_touches.push_back(touches);
    const Translation last = missed.back().named;
    log.push_back({.cpu = cpu.id,
                   .kind = kind,
                   .mode = mode,
                   .side = side,
                   .process = last.space,
                   .page = last.page << last.shift >> smallest_,
                   .address = address,
                   .instruction = instruction,
                   .execution = executions_,
                   .cause = *cause});
}

}  // namespace tlbscope::reference
