#include "flush/memory_manager.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/numbers.h"

namespace tlbscope::flush {

namespace {

// ppc64: an exec builds its stack below STACK_TOP_MAX, the end of the 4 PiB that a space can have, and then
// moves it below STACK_TOP, the end of the 128 TiB that it has unless it asks for more (shift_arg_pages,
// fs/exec.c; arch/powerpc/include/asm/task_size_64.h).
constexpr std::uint64_t kStackTopMax = std::uint64_t{1} << 52;
constexpr std::uint64_t kStackTop = std::uint64_t{1} << 47;

}  // namespace

MemoryManager::MemoryManager(const Assumptions& assumptions, Listener& listener)
    : assumptions_(assumptions), geometry_(Geometry::of(assumptions.page)), listener_(&listener) {
    assumptions_.cpus = std::clamp<std::uint32_t>(assumptions_.cpus, 1, kMostCpus);
}

MemoryManager::~MemoryManager() = default;

std::shared_ptr<MemoryManager::Mm> MemoryManager::fresh_space(bool complete) {
    auto mm = std::make_shared<Mm>();
    mm->id = SpaceId(next_space_++);
    mm->space = std::make_unique<Space>(geometry_, frames_, assumptions_.faults);
    mm->space->complete = complete;
    mm->users = 1;
    ++spaces_seen_;
    return mm;
}

MemoryManager::Process& MemoryManager::process_of(std::uint32_t number) {
    auto [found, fresh] = processes_.try_emplace(number);
    if (fresh) {
        found->second.mm = fresh_space(false);
        ++early_processes_;
    }
    return found->second;
}

std::optional<SpaceId> MemoryManager::space_of(std::uint32_t process) const {
    const auto found = processes_.find(process);
    if (found == processes_.end()) return std::nullopt;
    return found->second.mm->id;
}

std::uint32_t MemoryManager::cpu_of(const MemoryEvent& event) {
    std::uint32_t cpu = 0;
    if (assumptions_.cpus_known) {
        cpu = event.cpu;
        if (cpu >= kMostCpus) {
            cpu %= kMostCpus;
            ++folded_cpus_;
        }
    } else {
        const std::uint32_t thread = event.thread != 0 ? event.thread : event.process;
        const auto [found, fresh] = placed_.try_emplace(thread, next_cpu_ % assumptions_.cpus);
        if (fresh) ++next_cpu_;
        cpu = found->second;
    }
    cpus_seen_ = std::max(cpus_seen_, cpu + 1);
    if (cpu >= running_.size()) running_.resize(cpu + 1);
    return cpu;
}

void MemoryManager::run(std::uint32_t cpu, std::uint32_t process) {
    running_[cpu] = process;
    listener_->switched(cpu, space_of(process));
}

Request MemoryManager::request_of(const Mm& mm, std::uint32_t cpu, RequestKind kind, Reason reason) const {
    return {.kind = kind,
            .reason = reason,
            .space = mm.id,
            .cpu = cpu,
            .users = mm.users,
            .resident = mm.space->pages()};
}

template <class Change>
void MemoryManager::gather(Mm& mm, std::uint32_t cpu, Reason reason, Change&& change) {
    Gather gathered(request_of(mm, cpu, RequestKind::kGather, reason), geometry_.page_bytes(),
                    [this](const Request& request) { listener_->requested(request); });
    change(gathered);
    (void)gathered.finish();
}

void MemoryManager::map(const MemoryEvent& event, Mm& mm, std::uint32_t cpu) {
    const std::uint64_t start = down(event.start.value());
    const std::uint64_t end = up(event.start.value() + event.bytes);
    if (end <= start) return;
    gather(mm, cpu, Reason::kUnmap, [&](Gather& g) { mm.space->unmap(start, end, g); });
    mm.space->map(start, end, event.protection, event.file);
}

void MemoryManager::protect(const MemoryEvent& event, Mm& mm, std::uint32_t cpu) {
    const std::uint64_t start = down(event.start.value());
    const std::uint64_t end = up(event.start.value() + event.bytes);
    if (end <= start) return;
    // Older kernels flush the whole range when any entry in it was rewritten, whether rights were lost or
    // won.
    bool any = false;
    Request last;
    bool flushed = false;
    {
        Gather g(request_of(mm, cpu, RequestKind::kGather, Reason::kProtect), geometry_.page_bytes(),
                 [&](const Request& request) {
                     last = request;
                     flushed = true;
                 });
        any = mm.space->protect(start, end, event.protection, g);
        (void)g.finish();
    }
    if (!any && !flushed) return;
    if (!flushed) last = request_of(mm, cpu, RequestKind::kGather, Reason::kProtect);
    last.wide_start = start;
    last.wide_end = end;
    listener_->requested(last);
}

void MemoryManager::remap(const MemoryEvent& event, Mm& mm, std::uint32_t cpu) {
    const std::uint64_t old_start = down(event.old_start.value());
    const std::uint64_t old_end = up(event.old_start.value() + event.old_bytes);
    const std::uint64_t start = down(event.start.value());
    const std::uint64_t end = up(event.start.value() + event.bytes);
    if (end <= start) return;
    if (start != old_start && end > old_start && start < old_end) return;  // the kernel refuses overlap
    // What shrinks away is unmapped first; what grows in place only changes the range.
    if (old_end - old_start > end - start)
        gather(mm, cpu, Reason::kUnmap,
               [&](Gather& g) { mm.space->unmap(old_start + (end - start), old_end, g); });
    if (start == old_start) {
        if (end > old_end) mm.space->map(old_end, end, kProtectRead | kProtectWrite, false);
        return;
    }
    gather(mm, cpu, Reason::kUnmap, [&](Gather& g) { mm.space->unmap(start, end, g); });
    const std::uint64_t moved_end = std::min(old_end, old_start + (end - start));
    mm.space->move(old_start, moved_end, start, end, [&](std::uint64_t from, std::uint64_t to) {
        Request request = request_of(mm, cpu, RequestKind::kRange, Reason::kMove);
        request.start = from;
        request.end = to;
        listener_->requested(request);
    });
    // move_vma unmaps the old place, whose tables may go now that nothing is in them.
    gather(mm, cpu, Reason::kMove, [&](Gather& g) { mm.space->unmap(old_start, moved_end, g); });
}

void MemoryManager::set_break(const MemoryEvent& event, Mm& mm, std::uint32_t cpu) {
    const std::uint64_t end = up(event.start.value() + event.bytes);
    const std::uint64_t old = mm.space->heap_end();
    mm.space->set_heap_end(end);
    if (old == 0) return;  // the first tells where the heap begins
    if (end > old)
        mm.space->map(old, end, kProtectRead | kProtectWrite, false);
    else if (end < old)
        gather(mm, cpu, Reason::kUnmap, [&](Gather& g) { mm.space->unmap(end, old, g); });
}

void MemoryManager::fault(const MemoryEvent& event, Mm& mm, std::uint32_t cpu) {
    const std::uint64_t address = down(event.start.value());
    if (!assumptions_.faults) return;
    Space::Fault what = mm.space->fault(address, event.write);
    if (event.spurious) what = Space::Fault::kSpurious;
    RequestKind kind = RequestKind::kInstalled;
    Reason reason = Reason::kFault;
    switch (what) {
        case Space::Fault::kInstalled:
            break;
        case Space::Fault::kRelaxed:
            kind = RequestKind::kRelax;
            break;
        case Space::Fault::kCopied:
            kind = RequestKind::kPage;
            reason = Reason::kCopyOnWrite;
            ++copies_;
            break;
        case Space::Fault::kSpurious:
            // handle_pte_fault asks for the flush on a write only.
            if (!event.write) return;
            kind = RequestKind::kSpurious;
            break;
    }
    Request request = request_of(mm, cpu, kind, reason);
    request.start = address;
    request.end = address + geometry_.page_bytes();
    listener_->requested(request);
}

void MemoryManager::fork(const MemoryEvent& event, std::uint32_t cpu) {
    const std::shared_ptr<Mm> mm = process_of(event.process).mm;
    if (event.child == 0 || event.child == event.process) return;
    Process child;
    if (event.shares_space) {
        child.mm = mm;
        ++mm->users;
    } else {
        child.mm = fresh_space(mm->space->complete);
        child.mm->space = mm->space->fork();
        // dup_mmap ends with flush_tlb_mm: the parent's writable entries have become read-only.
        listener_->requested(request_of(*mm, cpu, RequestKind::kSpace, Reason::kFork));
    }
    // A number that comes again belongs to a process whose end the log did not show.
    if (const auto old = processes_.find(event.child); old != processes_.end())
        leave(old->second.mm, cpu, Reason::kExit);
    processes_[event.child] = std::move(child);
}

// The last user of a space takes it down. Whoever does it no longer runs in it.
void MemoryManager::leave(std::shared_ptr<Mm> mm, std::uint32_t cpu, Reason reason) {
    if (mm->users > 0) --mm->users;
    if (mm->users > 0) return;
    Request request = request_of(*mm, cpu, RequestKind::kGather, reason);
    request.users = 0;
    request.current = false;
    request.whole = true;
    {
        Gather g(request, geometry_.page_bytes(),
                 [this](const Request& what) { listener_->requested(what); });
        mm->space->clear(g);
        // What was there before the input began is not known, but something was.
        if (!mm->space->complete && !g.anything_unflushed()) g.remove_table(0);
        (void)g.finish();
    }
    listener_->ended(mm->id);
}

void MemoryManager::exec(const MemoryEvent& event, std::uint32_t cpu) {
    const auto found = processes_.find(event.process);
    const std::shared_ptr<Mm> old = found == processes_.end() ? nullptr : found->second.mm;
    // sched_exec: an exec is where the scheduler moves a process cheaply, still in its old space.
    if (!assumptions_.cpus_known && assumptions_.cpus > 1) {
        cpu = next_cpu_++ % assumptions_.cpus;
        placed_[event.thread != 0 ? event.thread : event.process] = cpu;
        cpus_seen_ = std::max(cpus_seen_, cpu + 1);
        if (cpu >= running_.size()) running_.resize(cpu + 1);
    }
    if (old && found->second.replaced) {
        found->second.replaced = false;
        run(cpu, event.process);
        std::vector<MemoryEvent> left;
        left.swap(found->second.exec_faults);
        if (!left.empty()) move_stack(left, *found->second.mm, cpu);
        return;
    }
    if (old) run(cpu, event.process);
    std::vector<MemoryEvent> faults;
    if (found != processes_.end()) faults.swap(found->second.exec_faults);
    Process& process = processes_[event.process];
    process.mm = fresh_space(true);
    run(cpu, event.process);
    process.pointer = 0;
    if (old) leave(old, cpu, Reason::kExec);
    if (!faults.empty()) move_stack(faults, *process.mm, cpu);
}

bool MemoryManager::is_exec_fault(const MemoryEvent& event, Process& process) const {
    const std::uint64_t address = event.start.value();
    if (process.replaced && process.exec_faults.empty()) return false;  // it is in the new space
    return !process.exec_faults.empty() || (address >= kStackTop && address < kStackTopMax);
}

// There was no exec after all (it failed): what faulted below the stack was in the old space.
void MemoryManager::settle(std::uint32_t number, std::uint32_t cpu) {
    const auto found = processes_.find(number);
    if (found == processes_.end() || found->second.exec_faults.empty() || found->second.replaced) return;
    std::vector<MemoryEvent> faults;
    faults.swap(found->second.exec_faults);
    for (const MemoryEvent& each : faults)
        if (each.start.value() < kStackTop) fault(each, *found->second.mm, cpu);
}

void MemoryManager::move_stack(const std::vector<MemoryEvent>& faults, Mm& mm, std::uint32_t cpu) {
    std::uint64_t lowest = kStackTopMax;
    for (const MemoryEvent& each : faults) {
        const std::uint64_t address = down(each.start.value());
        if (address < kStackTop) continue;
        lowest = std::min(lowest, address);
        (void)mm.space->fault(address - kStackTopMax + kStackTop, true);
    }
    if (lowest < kStackTopMax) {
        Request request = request_of(mm, cpu, RequestKind::kRange, Reason::kExec);
        request.start = lowest;
        request.end = kStackTopMax;
        listener_->requested(request);
        // The tables of the old place go: one of each level, which makes a range from the highest table's
        // start.
        request.kind = RequestKind::kGather;
        request.freed_tables = true;
        request.start = kStackTopMax - (std::uint64_t{1} << geometry_.table_shift[2]);
        request.end = lowest;
        listener_->requested(request);
    }
    for (const MemoryEvent& each : faults)
        if (each.start.value() < kStackTop) fault(each, mm, cpu);
}

void MemoryManager::exit(const MemoryEvent& event, std::uint32_t cpu) {
    placed_.erase(event.thread != 0 ? event.thread : event.process);
    // A thread was begun under its own number; the first one has the process's.
    auto found = event.thread != 0 ? processes_.find(event.thread) : processes_.end();
    if (found == processes_.end()) found = processes_.find(event.process);
    if (found == processes_.end()) return;
    const std::shared_ptr<Mm> mm = found->second.mm;
    processes_.erase(found);
    running_[cpu] = 0;
    listener_->switched(cpu, std::nullopt);  // exit_mm: the rest of the exit runs lazily
    leave(mm, cpu, Reason::kExit);
}

// exit_mmap by the last user of a space. At a process's end it comes before sched_process_exit, and the task
// has no space any more. In an exec it is the old space that goes, and the task runs in the new one already;
// but an exec that fails takes down the new one, which never ran.
void MemoryManager::space_ends(std::uint32_t number, std::uint64_t pointer, std::uint32_t cpu) {
    Process& process = processes_[number];
    const std::shared_ptr<Mm> old = process.mm;
    if (old->users > 1) return;
    if (process.exec_faults.empty()) {
        processes_.erase(number);
        if (running_[cpu] == number) {
            running_[cpu] = 0;
            listener_->switched(cpu, std::nullopt);
        }
        leave(old, cpu, Reason::kExit);
        return;
    }
    if (process.replaced) return;
    if (process.pointer != 0 && process.pointer != pointer) {
        settle(number, cpu);
        return;
    }
    process.mm = fresh_space(true);
    process.replaced = true;
    process.pointer = 0;
    run(cpu, number);
    leave(old, cpu, Reason::kExec);
}

void MemoryManager::finish_protect(Process& process, std::uint32_t cpu) {
    if (!process.protect) return;
    const MemoryEvent event = *process.protect;
    process.protect.reset();
    protect(event, *process.mm, cpu);
}

void MemoryManager::call(const MemoryCall& call) {
    if (call.cpu >= running_.size() || call.kind == MemoryCallKind::kKernel ||
        call.kind == MemoryCallKind::kEverything)
        return;
    auto found = processes_.find(call.thread);
    if (found == processes_.end()) found = processes_.find(call.process);
    if (found == processes_.end()) return;
    Process& process = found->second;
    if (call.kind == MemoryCallKind::kProtect && process.protect && process.protect->thread == call.thread) {
        run(call.cpu, found->first);
        finish_protect(process, call.cpu);
    }
    if (call.kind == MemoryCallKind::kExit) {
        // Where an exec cannot be told from an end, the events say later what it was.
        if (execs_show_) space_ends(found->first, call.space, call.cpu);
    } else if (process.replaced) {
        // setup_arg_pages: the stack gets its protection, then its place.
        if (call.kind != MemoryCallKind::kProtect || call.start < kStackTop || process.exec_faults.empty())
            return;
        run(call.cpu, found->first);
        std::vector<MemoryEvent> faults;
        faults.swap(process.exec_faults);
        move_stack(faults, *process.mm, call.cpu);
    } else if (process.exec_faults.empty() && !call.whole) {
        process.pointer = call.space;
    }
}

void MemoryManager::switched(const MemoryEvent& event, std::uint32_t cpu) { run(cpu, event.process); }

void MemoryManager::event(const MemoryEvent& event) {
    ++events_;
    const std::uint32_t cpu = cpu_of(event);
    if (event.kind == MemoryEventKind::kSwitch) return switched(event, cpu);
    if (event.process == 0) return;
    const bool known = processes_.contains(event.process);
    if (event.kind != MemoryEventKind::kExec && event.kind != MemoryEventKind::kExit) {
        (void)process_of(event.process);
        // An event of a process on a CPU says that it runs there, in case no switch said so.
        if (running_[cpu] != event.process || !known) run(cpu, event.process);
    }
    if (const auto found = processes_.find(event.process); found != processes_.end())
        finish_protect(found->second, cpu);
    if (event.kind == MemoryEventKind::kFault) {
        Process& process = processes_[event.process];
        if (is_exec_fault(event, process)) {
            execs_show_ = true;
            process.exec_faults.push_back(event);
            return;
        }
    } else if (event.kind != MemoryEventKind::kExec) {
        settle(event.process, cpu);
    }
    switch (event.kind) {
        case MemoryEventKind::kMap:
            return map(event, *processes_[event.process].mm, cpu);
        case MemoryEventKind::kUnmap: {
            Mm& mm = *processes_[event.process].mm;
            const std::uint64_t start = down(event.start.value());
            const std::uint64_t end = up(event.start.value() + event.bytes);
            if (end > start)
                gather(mm, cpu, Reason::kUnmap, [&](Gather& g) { mm.space->unmap(start, end, g); });
            return;
        }
        case MemoryEventKind::kDiscard: {
            Mm& mm = *processes_[event.process].mm;
            const std::uint64_t start = down(event.start.value());
            const std::uint64_t end = up(event.start.value() + event.bytes);
            if (end > start)
                gather(mm, cpu, Reason::kDiscard, [&](Gather& g) { mm.space->discard(start, end, g); });
            return;
        }
        case MemoryEventKind::kProtect:
            if (execs_show_)
                processes_[event.process].protect = event;
            else
                protect(event, *processes_[event.process].mm, cpu);
            return;
        case MemoryEventKind::kRemap:
            return remap(event, *processes_[event.process].mm, cpu);
        case MemoryEventKind::kBreak:
            return set_break(event, *processes_[event.process].mm, cpu);
        case MemoryEventKind::kFault:
            return fault(event, *processes_[event.process].mm, cpu);
        case MemoryEventKind::kFork:
            return fork(event, cpu);
        case MemoryEventKind::kExec:
            return exec(event, cpu);
        case MemoryEventKind::kExit:
            return exit(event, cpu);
        case MemoryEventKind::kSwitch:
            return;
    }
}

std::vector<std::string> MemoryManager::notes() const {
    std::vector<std::string> notes;
    if (!assumptions_.faults)
        notes.push_back(
            "the input has no page faults: every page of an accessible mapping up to 1 GiB counts as "
            "touched, "
            "and copies on write after a fork are not in it");
    if (!assumptions_.cpus_known)
        notes.push_back(
            assumptions_.cpus == 1
                ? std::string("the input names no CPUs: everything ran on one (--cpus N for more)")
                : fmt::format("the input names no CPUs: processes were placed on {} in turn, at "
                              "their start and at each exec",
                              assumptions_.cpus));
    if (early_processes_ > 0)
        notes.push_back(
            fmt::format("{} processes were there before the input began; what they had mapped is "
                        "unknown, and their tables count as kept",
                        grouped(early_processes_)));
    if (folded_cpus_ > 0)
        notes.push_back(fmt::format("CPUs from {} up were taken for lower ones in {} events", kMostCpus,
                                    grouped(folded_cpus_)));
    return notes;
}

}  // namespace tlbscope::flush
