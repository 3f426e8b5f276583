#include "flush/replay.h"

#include <algorithm>

namespace tlbscope::flush {

Replay::Replay(std::vector<PolicyOnMachine> policies, const ReplayOptions& options)
    : policies_(std::move(policies)), options_(options) {
    assumptions_.page = options.page.value_or(PageShift(12));
    for (const PolicyOnMachine& each : policies_)
        flushers_.push_back(make_flusher(each.policy, each.machine, assumptions_.page));
    if (options.references)
        for (std::size_t i = 0; i < policies_.size(); ++i) {
            tlbs_.push_back(std::make_unique<TlbContents>(*flushers_[i], policies_[i].machine.flush.entries,
                                                          assumptions_.page));
            flushers_[i]->show(tlbs_.back().get());
        }
    if (options.calls)
        calls_ = std::make_unique<CallManager>(assumptions_.page, *this);
    else if (options.recorded || options.references)
        decide();  // neither places nor references wait for later events
}

Replay::~Replay() = default;

void Replay::decide() {
    const auto any = [&](auto&& test) { return std::any_of(first_.begin(), first_.end(), test); };
    assumptions_.faults = options_.faults.value_or(
        any([](const MemoryEvent& event) { return event.kind == MemoryEventKind::kFault; }));
    const auto names_cpu = [](const MemoryEvent& event) {
        return event.cpu != 0 || event.kind == MemoryEventKind::kSwitch;
    };
    assumptions_.cpus_known = options_.recorded || options_.references || (!options_.cpus && any(names_cpu));
    assumptions_.cpus = options_.cpus.value_or(1);
    manager_ = std::make_unique<MemoryManager>(assumptions_, *this);
    for (const MemoryEvent& event : first_) manager_->event(event);
    first_ = {};
}

void Replay::event(const MemoryEvent& event) {
    ++events_;
    if (calls_) return calls_->event(event);
    if (manager_) return manager_->event(event);
    first_.push_back(event);
    if (first_.size() == kLookAhead) decide();
}

void Replay::call(const MemoryCall& call) {
    if (calls_) return calls_->call(call);
    if (manager_) manager_->call(call);
}

void Replay::reference(std::uint32_t cpu, std::uint64_t address) {
    if (cpu >= running_.size() || !running_[cpu]) return;
    for (const auto& tlb : tlbs_) tlb->reference(cpu, *running_[cpu], address);
}

void Replay::finish() {
    if (!manager_ && !calls_) decide();
}

void Replay::switched(std::uint32_t cpu, std::optional<SpaceId> space) {
    if (cpu >= running_.size()) running_.resize(cpu + 1);
    running_[cpu] = space;
    for (const auto& flusher : flushers_) flusher->switch_to(cpu, space);
}

void Replay::requested(const Request& request) {
    for (std::size_t i = 0; i < flushers_.size(); ++i) {
        if (!tlbs_.empty()) tlbs_[i]->begin(request);
        flushers_[i]->request(request);
        if (!tlbs_.empty()) tlbs_[i]->end();
    }
}

void Replay::ended(SpaceId space) {
    for (const auto& flusher : flushers_) flusher->forget(space);
    for (const auto& tlb : tlbs_) tlb->forget(space);
}

std::vector<Replay::Result> Replay::results() const {
    std::vector<Result> all;
    for (std::size_t i = 0; i < policies_.size(); ++i)
        all.push_back(
            {.policy = &policies_[i], .account = &flushers_[i]->account(), .sizes = &flushers_[i]->sizes()});
    return all;
}

std::uint64_t Replay::spaces() const { return calls_ ? calls_->spaces() : manager_ ? manager_->spaces() : 0; }
std::uint32_t Replay::cpus() const { return calls_ ? calls_->cpus() : manager_ ? manager_->cpus() : 0; }
std::uint64_t Replay::copies() const { return manager_ ? manager_->copies() : 0; }
std::vector<std::string> Replay::notes() const {
    if (calls_) return calls_->notes();
    return manager_ ? manager_->notes() : std::vector<std::string>{};
}

}  // namespace tlbscope::flush
