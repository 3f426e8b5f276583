// From what happened to address spaces to what the kernel asks of its flush code: the part of memory
// management that is the same on every architecture (mm/mmap.c, mm/memory.c, mm/mprotect.c, mm/mremap.c,
// kernel/fork.c, fs/exec.c of 6.1). It knows no policy; every policy is shown the same requests.
//
// What the input does not say is assumed, and said in notes(): without page faults every page of an
// accessible mapping counts as touched; without CPU numbers threads are placed on CPUs in turn.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/memory_call.h"
#include "core/memory_event.h"
#include "flush/request.h"
#include "flush/space.h"

namespace tlbscope::flush {

class Listener {
  public:
    virtual ~Listener() = default;
    virtual void switched(std::uint32_t cpu, std::optional<SpaceId> space) = 0;
    virtual void requested(const Request& request) = 0;
    virtual void ended(SpaceId space) = 0;
};

struct Assumptions {
    PageShift page{12};
    bool faults = true;      // the input has page faults
    bool cpus_known = true;  // events name their CPU
    std::uint32_t cpus = 1;  // when they do not
};

class MemoryManager {
  public:
    MemoryManager(const Assumptions& assumptions, Listener& listener);
    ~MemoryManager();

    void event(const MemoryEvent& event);
    // Where memory management was seen at work. Of these only the places that the events do not tell are
    // used: where a space is taken down, where an exec takes its new one and where an mprotect changes
    // entries, which can be on another CPU than the one where the task is by the time of its event. What was
    // flushed is not looked at.
    void call(const MemoryCall& call);

    [[nodiscard]] std::uint64_t events() const { return events_; }
    [[nodiscard]] std::uint64_t spaces() const { return spaces_seen_; }
    [[nodiscard]] std::uint64_t copies() const { return copies_; }  // on write, after a fork
    [[nodiscard]] std::uint32_t cpus() const { return cpus_seen_; }
    // The space of a process; nothing for a kernel thread or an unknown one.
    [[nodiscard]] std::optional<SpaceId> space_of(std::uint32_t process) const;
    [[nodiscard]] std::vector<std::string> notes() const;

  private:
    struct Mm {
        SpaceId id;
        std::unique_ptr<Space> space;
        std::uint32_t users = 0;  // tasks
    };
    // A task that has a space: a process, or a thread or vfork child by its own number.
    struct Process {
        std::shared_ptr<Mm> mm;
        // Faults since the kernel began to fill the stack of the space that an exec will bring. Its event
        // comes when everything is in place.
        std::vector<MemoryEvent> exec_faults;
        // An mprotect that has been entered; it is done where change_protection begins.
        std::optional<MemoryEvent> protect;
        bool replaced = false;      // the exec under way has brought its space already
        std::uint64_t pointer = 0;  // the kernel's mm_struct; 0: not seen yet
    };

    Process& process_of(std::uint32_t process);
    std::shared_ptr<Mm> fresh_space(bool complete);
    std::uint32_t cpu_of(const MemoryEvent& event);
    void run(std::uint32_t cpu, std::uint32_t process);
    void leave(std::shared_ptr<Mm> mm, std::uint32_t cpu, Reason reason);
    Request request_of(const Mm& mm, std::uint32_t cpu, RequestKind kind, Reason reason) const;
    template <class Change>
    void gather(Mm& mm, std::uint32_t cpu, Reason reason, Change&& change);

    void map(const MemoryEvent& event, Mm& mm, std::uint32_t cpu);
    void protect(const MemoryEvent& event, Mm& mm, std::uint32_t cpu);
    void remap(const MemoryEvent& event, Mm& mm, std::uint32_t cpu);
    void set_break(const MemoryEvent& event, Mm& mm, std::uint32_t cpu);
    void fault(const MemoryEvent& event, Mm& mm, std::uint32_t cpu);
    bool is_exec_fault(const MemoryEvent& event, Process& process) const;
    void settle(std::uint32_t process, std::uint32_t cpu);
    void move_stack(const std::vector<MemoryEvent>& faults, Mm& mm, std::uint32_t cpu);
    void fork(const MemoryEvent& event, std::uint32_t cpu);
    void exec(const MemoryEvent& event, std::uint32_t cpu);
    void exit(const MemoryEvent& event, std::uint32_t cpu);
    void finish_protect(Process& process, std::uint32_t cpu);
    void space_ends(std::uint32_t number, std::uint64_t pointer, std::uint32_t cpu);
    void switched(const MemoryEvent& event, std::uint32_t cpu);

    [[nodiscard]] std::uint64_t down(std::uint64_t address) const {
        return address & ~(geometry_.page_bytes() - 1);
    }
    [[nodiscard]] std::uint64_t up(std::uint64_t address) const {
        const std::uint64_t rounded = address + geometry_.page_bytes() - 1;
        return rounded < address ? down(~std::uint64_t{0}) : down(rounded);
    }

    Assumptions assumptions_;
    Geometry geometry_;
    Listener* listener_;
    Frames frames_;
    std::unordered_map<std::uint32_t, Process> processes_;
    std::unordered_map<std::uint32_t, std::uint32_t> placed_;  // thread -> CPU, when the input names none
    std::vector<std::uint32_t> running_;                       // process on each CPU; 0: none
    std::uint32_t next_space_ = 1;
    std::uint32_t next_cpu_ = 0;
    std::uint32_t cpus_seen_ = 0;
    std::uint64_t events_ = 0;
    std::uint64_t spaces_seen_ = 0;
    std::uint64_t copies_ = 0;
    std::uint64_t folded_cpus_ = 0;
    std::uint64_t early_processes_ = 0;
    bool execs_show_ = false;  // the input has the faults by which an exec under way is recognised
};

}  // namespace tlbscope::flush
