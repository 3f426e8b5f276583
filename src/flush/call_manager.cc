#include "flush/call_manager.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/numbers.h"

namespace tlbscope::flush {

namespace {

constexpr std::uint64_t kHugeBytes = std::uint64_t{1} << 21;

}  // namespace

std::shared_ptr<CallManager::Mm> CallManager::fresh() {
    ++spaces_seen_;
    auto mm = std::make_shared<Mm>();
    mm->id = SpaceId(next_space_++);
    return mm;
}

std::shared_ptr<CallManager::Mm>& CallManager::mm_of(std::uint32_t process) {
    auto& mm = processes_[process];
    if (!mm) mm = fresh();
    return mm;
}

std::uint32_t CallManager::cpu_of(std::uint32_t cpu) {
    cpu %= kMostCpus;
    if (cpu >= running_.size()) running_.resize(cpu + 1);
    return cpu;
}

void CallManager::run(std::uint32_t cpu, std::uint32_t process) {
    running_[cpu] = process;
    const auto found = processes_.find(process);
    if (found == processes_.end() || left_.contains(process))
        listener_->switched(cpu, std::nullopt);
    else
        listener_->switched(cpu, found->second->id);
}

void CallManager::forget_pointer(const std::shared_ptr<Mm>& mm) {
    const auto found = by_pointer_.find(mm->pointer);
    if (found != by_pointer_.end() && found->second == mm) by_pointer_.erase(found);
}

void CallManager::drop(const std::shared_ptr<Mm>& mm) {
    if (mm->users > 0) --mm->users;
    if (mm->users > 0) return;
    forget_pointer(mm);
    listener_->ended(mm->id);
}

// exit_mmap begins: the process no longer runs in the space, wherever it goes from here. It may also take
// down a space that never ran, of an exec that failed.
void CallManager::leave(const MemoryCall& call, std::uint32_t cpu) {
    const auto process = processes_.find(call.process);
    if (process == processes_.end()) return;
    const auto known = by_pointer_.find(call.space);
    const bool own = known != by_pointer_.end()
                         ? known->second == process->second
                         : process->second->pointer == 0 && process->second->users == 1;
    if (!own) return;
    left_.insert(call.process);
    listener_->switched(cpu, std::nullopt);
}

// The space that a call means.
std::shared_ptr<CallManager::Mm> CallManager::named(const MemoryCall& call) {
    if (const auto known = by_pointer_.find(call.space); known != by_pointer_.end()) return known->second;
    if (!processes_.contains(call.process) && !call.whole) {
        // A kernel thread at work on somebody's space.
        auto mm = fresh();
        mm->pointer = call.space;
        return by_pointer_[call.space] = mm;
    }
    std::shared_ptr<Mm> mm = mm_of(call.process);
    if (mm->pointer != 0) {
        // Another than the one it runs in: an exec has begun to use its new space, or has failed and takes
        // down one that never ran.
        const std::shared_ptr<Mm> old = mm;
        mm = fresh();
        if (call.whole) return mm;
        processes_[call.process] = mm;
        prepared_.insert(call.process);
        left_.erase(call.process);
        drop(old);  // exec_mmap has done that
    }
    mm->pointer = call.space;
    by_pointer_[call.space] = mm;
    return mm;
}

void CallManager::event(const MemoryEvent& event) {
    ++events_;
    const std::uint32_t cpu = cpu_of(event.cpu);
    switch (event.kind) {
        case MemoryEventKind::kSwitch:
            return run(cpu, event.process);
        case MemoryEventKind::kFork: {
            auto& mm = mm_of(event.process);
            std::shared_ptr<Mm> child = mm;
            if (event.shares_space)
                ++child->users;
            else
                child = fresh();
            if (event.child == 0 || event.child == event.process) return;
            if (const auto old = processes_.find(event.child); old != processes_.end()) drop(old->second);
            processes_[event.child] = std::move(child);
            return;
        }
        case MemoryEventKind::kExec: {
            const auto found = processes_.find(event.process);
            const std::shared_ptr<Mm> old = found == processes_.end() ? nullptr : found->second;
            const bool prepared = prepared_.erase(event.process) > 0;
            left_.erase(event.process);
            if (!prepared) processes_[event.process] = fresh();
            run(cpu, event.process);
            if (old && !prepared) drop(old);
            return;
        }
        case MemoryEventKind::kExit: {
            auto found = event.thread != 0 ? processes_.find(event.thread) : processes_.end();
            if (found == processes_.end()) found = processes_.find(event.process);
            doing_.erase(event.thread);
            prepared_.erase(event.process);
            left_.erase(event.process);
            if (found == processes_.end()) return;
            const std::shared_ptr<Mm> mm = found->second;
            processes_.erase(found);
            running_[cpu] = 0;
            listener_->switched(cpu, std::nullopt);
            drop(mm);
            return;
        }
        default:
            if (event.process == 0) return;
            if (running_[cpu] != event.process || !processes_.contains(event.process)) {
                (void)mm_of(event.process);
                run(cpu, event.process);
            }
    }
}

void CallManager::call(const MemoryCall& call) {
    ++events_;
    const std::uint32_t cpu = cpu_of(call.cpu);
    if (call.kind == MemoryCallKind::kKernel || call.kind == MemoryCallKind::kEverything) {
        ++kernel_calls_;
        return;
    }
    if (call.kind == MemoryCallKind::kExit) return leave(call, cpu);  // the whole gather follows
    const std::shared_ptr<Mm> mm = named(call);
    Request request{.kind = RequestKind::kGather,
                    .reason = Reason::kUnmap,
                    .space = mm->id,
                    .cpu = cpu,
                    .users = mm->users,
                    .start = call.start,
                    .end = call.end};
    const auto running = processes_.find(call.process);
    request.current = running != processes_.end() && running->second == mm;
    // The kernel has loaded the new space of an exec already.
    if (request.current && prepared_.contains(call.process)) listener_->switched(cpu, mm->id);
    Protect* doing = nullptr;
    if (const auto found = doing_.find(call.thread); found != doing_.end()) doing = &found->second;
    // A protection that no gather followed took no rights away; kernels before 5.19 flushed its range all the
    // same.
    const auto settle = [&] {
        if (doing == nullptr || doing->reason != Reason::kProtect) return;
        Request wide = request;
        wide.kind = RequestKind::kGather;
        wide.reason = Reason::kProtect;
        wide.start = wide.end = 0;
        wide.wide_start = doing->start;
        wide.wide_end = doing->end;
        listener_->requested(wide);
    };
    switch (call.kind) {
        case MemoryCallKind::kUnmap:
        case MemoryCallKind::kProtect:
            settle();
            doing_[call.thread] = {
                .start = call.start,
                .end = call.end,
                .reason = call.kind == MemoryCallKind::kProtect ? Reason::kProtect : Reason::kUnmap};
            return;
        case MemoryCallKind::kGather:
            request.whole = call.whole;
            request.freed_tables = call.freed_tables;
            if (call.whole) {
                settle();
                request.reason = Reason::kExit;
                request.current = false;
                request.start = 0;
                request.end = page_.bytes();  // a gather that reached its flush had something
                if (mm->pointer != 0) listener_->switched(cpu, std::nullopt);
            } else if (doing != nullptr) {
                request.reason = doing->reason;
                if (doing->reason == Reason::kProtect) {
                    request.wide_start = doing->start;
                    request.wide_end = doing->end;
                }
            } else {
                request.reason = Reason::kDiscard;
            }
            break;
        case MemoryCallKind::kHuge:
            settle();
            if (call.end == call.start) {
                // A collapse: all the small pages that a huge one replaces, and the table they were in.
                request.reason = Reason::kCollapse;
                request.end = request.start + kHugeBytes;
                request.freed_tables = true;
                break;
            }
            // One instruction names a huge page: for the policies it is a small one.
            request.kind = RequestKind::kRange;
            request.reason = Reason::kMove;
            request.end = request.start + (request.end - request.start) / kHugeBytes * page_.bytes();
            break;
        case MemoryCallKind::kRange:
            settle();
            request.kind = RequestKind::kRange;
            request.reason = Reason::kMove;
            break;
        case MemoryCallKind::kPage:
            settle();
            request.kind = RequestKind::kPage;
            request.reason = Reason::kCopyOnWrite;
            request.end = request.start + page_.bytes();
            break;
        case MemoryCallKind::kSpace:
            settle();
            request.kind = RequestKind::kSpace;
            request.reason = Reason::kFork;
            break;
        default:
            return;
    }
    doing_.erase(call.thread);
    listener_->requested(request);
    // The kernel gives the mm_struct to the next fork or exec, often before the event of this end.
    if (request.whole) forget_pointer(mm);
    if (request.whole && running != processes_.end() && running_[cpu] == call.process &&
        running->second != mm)
        run(cpu, call.process);
}

std::vector<std::string> CallManager::notes() const {
    std::vector<std::string> notes = {
        "what the kernel asked of its flush code is taken from the recording; whether a policy would have "
        "been "
        "asked the same is its own question"};
    if (kernel_calls_ > 0)
        notes.push_back(
            fmt::format("{} flushes of the kernel's own translations are not decided by any policy",
                        grouped(kernel_calls_)));
    return notes;
}

}  // namespace tlbscope::flush
