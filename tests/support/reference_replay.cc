#include "support/reference_replay.h"

namespace tlbscope::reference {

Replay::Replay(const recording::Dictionary& dictionary, recording::Metadata metadata,
               machine::Machine machine)
    : dictionary_(&dictionary), metadata_(std::move(metadata)), machine_(std::move(machine)) {}

Replay::Cpu& Replay::cpu(CpuId id) {
    Cpu& state = cpus_[id.value()];
    if (!state.started) {
        for (const Kind kind : replay::kKinds) {
            const auto i = static_cast<std::size_t>(kind);
            state.tlbs[i] =
                std::make_unique<Tlb>(machine_.tlb(kind).geometry, std::uint64_t{2} * id.value() + i);
            state.causes[i] = std::make_unique<Causes>(machine_.tlb(kind).geometry);
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
            for (const std::size_t kind : {0, 1}) {
                cpu.causes[kind]->flush_all(*cpu.tlbs[kind]);
                cpu.tlbs[kind]->flush_all();
            }
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
        for (const std::size_t kind : {0, 1}) {
            cpu.causes[kind]->drop_space(cpu.identifier, *cpu.tlbs[kind]);
            cpu.tlbs[kind]->drop_space(cpu.identifier);
        }
    }
    cpu.owners.emplace_back(space, cpu.identifier);
}

void Replay::consume(const recording::Batch& batch) {
    Cpu& state = cpu(batch.cpu);
    std::size_t address = 0;
    auto event = batch.events.begin();
    for (std::size_t ordinal = 0; ordinal <= batch.blocks.size(); ++ordinal) {
        for (; event != batch.events.end() && event->position <= ordinal; ++event)
            if (event->type == recording::EventType::kSwitchSpace) switch_to(state, process_of(event->a));
        if (ordinal == batch.blocks.size()) break;
        if (!state.in_space) switch_to(state, process_of(0));
        execute(state, batch, ordinal, address);
    }
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
    const std::uint64_t page_bytes = machine_.pages.base.bytes();
    const std::uint64_t first_page = address / page_bytes * page_bytes;
    touch(cpu, kind, mode, address, instruction);
    for (std::uint64_t further = page_bytes; further < address - first_page + bytes; further += page_bytes)
        touch(cpu, kind, mode, first_page + further, instruction);
}

void Replay::touch(Cpu& cpu, Kind kind, Mode mode, std::uint64_t address, std::uint64_t instruction) {
    const Side side = metadata_.side(address);
    const bool kernel = side == Side::kKernel;
    const auto i = static_cast<std::size_t>(kind);
    ++touches;
    ++lookups.at(kind, mode, side);
    const std::uint64_t page = address / machine_.pages.base.bytes();
    const Translation wanted{.kernel = kernel, .space = kernel ? 0 : cpu.identifier, .page = page};
    const Translation named{.kernel = kernel, .space = kernel ? 0 : cpu.space, .page = page};
    const bool hit = cpu.tlbs[i]->look_up(wanted);
    const auto cause = cpu.causes[i]->touch(named, wanted, hit);
    if (hit) return;
    ++misses.at(kind, mode, side);
    log_touches.push_back(touches);
    log.push_back({.cpu = cpu.id,
                   .kind = kind,
                   .mode = mode,
                   .side = side,
                   .process = named.space,
                   .page = page,
                   .address = address,
                   .instruction = instruction,
                   .execution = executions_,
                   .cause = *cause});
}

}  // namespace tlbscope::reference
