#include "flush/flusher.h"

namespace tlbscope::flush {

void Flusher::switch_to(std::uint32_t number, std::optional<SpaceId> space) {
    Cpu& at = cpu(number);
    if (at.running == space && (!space || at.loaded == space)) return;
    do_switch(number, space);
    cpu(number).running = space;
}

void Flusher::request(const Request& request) {
    (void)cpu(request.cpu);
    reason_ = request.reason;
    ++tally().requests;
    do_request(request);
}

void Flusher::forget(SpaceId space) {
    do_forget(space);
    for (Cpu& cpu : cpus_)
        if (cpu.loaded == space) cpu.loaded.reset();
}

void Flusher::issue(const Operation& operation, TlbScope named, std::uint64_t instructions,
                    std::uint64_t walk_instructions) {
    const auto walk = static_cast<std::size_t>(TlbScope::kWalkCache);
    const std::uint64_t times = operation.global ? 1 : operation.cpus.count();
    auto& operations = operation.global ? tally().global : tally().local;
    operations[static_cast<std::size_t>(operation.scope)] += times;
    // A walk-cache flush beside pages is an operation of its own; within a PID flush it is not.
    if (walk_instructions > 0 && operation.scope != TlbScope::kWalkCache) operations[walk] += times;
    auto& counts = operation.global ? tally().global_instructions : tally().local_instructions;
    counts[static_cast<std::size_t>(named)] += times * instructions;
    counts[walk] += times * walk_instructions;
    if (hardware_ != nullptr) hardware_->apply(operation);
}

void Flusher::interrupt(const CpuSet& others) {
    if (others.empty()) return;
    ++tally().ipis;
    tally().interrupted += others.count();
}

Tally& Tally::operator+=(const Tally& other) {
    requests += other.requests;
    skipped += other.skipped;
    for (std::size_t scope = 0; scope < kTlbScopes; ++scope) {
        local[scope] += other.local[scope];
        global[scope] += other.global[scope];
        local_instructions[scope] += other.local_instructions[scope];
        global_instructions[scope] += other.global_instructions[scope];
    }
    local_barriers += other.local_barriers;
    global_barriers += other.global_barriers;
    fences += other.fences;
    syncs += other.syncs;
    ipis += other.ipis;
    interrupted += other.interrupted;
    dropped += other.dropped;
    live_dropped += other.live_dropped;
    refills += other.refills;
    return *this;
}

Tally Account::total() const {
    Tally sum;
    for (const Tally& tally : by_reason) sum += tally;
    return sum;
}

std::string Flusher::cpus_state() const {
    std::string text;
    for (const Cpu& cpu : cpus_) {
        text += cpu.running ? std::to_string(cpu.running->value()) : "-";
        text += '/';
        text += cpu.loaded ? std::to_string(cpu.loaded->value()) : "-";
        text += ' ';
    }
    return text;
}

}  // namespace tlbscope::flush
