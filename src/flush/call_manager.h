// The other source of requests: a recording whose kernel told what its memory management asked of its flush
// code (core/memory_call.h). The policies then need not trust the model in memory_manager.h; they are shown
// what was really asked, and only their own decisions are theirs.
//
// A call names its space by the address of the kernel's mm_struct, events name processes. The two are brought
// together by the first call that a process makes while the space it is known to run in has no address yet;
// an exec calls for its new space before its event comes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "core/memory_call.h"
#include "core/memory_event.h"
#include "flush/memory_manager.h"

namespace tlbscope::flush {

class CallManager {
  public:
    CallManager(PageShift page, Listener& listener) : page_(page), listener_(&listener) {}

    void event(const MemoryEvent& event);
    void call(const MemoryCall& call);

    [[nodiscard]] std::uint64_t events() const { return events_; }
    [[nodiscard]] std::uint64_t spaces() const { return spaces_seen_; }
    [[nodiscard]] std::uint32_t cpus() const { return static_cast<std::uint32_t>(running_.size()); }
    // Requests that concern the kernel's own translations, which no policy here decides about.
    [[nodiscard]] std::uint64_t kernel_calls() const { return kernel_calls_; }
    [[nodiscard]] std::vector<std::string> notes() const;

  private:
    struct Mm {
        SpaceId id;
        std::uint32_t users = 1;
        std::uint64_t pointer = 0;  // 0: no call has named it yet
    };
    struct Protect {
        std::uint64_t start = 0;
        std::uint64_t end = 0;
        Reason reason = Reason::kUnmap;
    };

    std::shared_ptr<Mm> fresh();
    std::shared_ptr<Mm>& mm_of(std::uint32_t process);
    std::shared_ptr<Mm> named(const MemoryCall& call);
    void run(std::uint32_t cpu, std::uint32_t process);
    void leave(const MemoryCall& call, std::uint32_t cpu);
    void forget_pointer(const std::shared_ptr<Mm>& mm);
    void drop(const std::shared_ptr<Mm>& mm);
    std::uint32_t cpu_of(std::uint32_t cpu);

    PageShift page_;
    Listener* listener_;
    std::unordered_map<std::uint32_t, std::shared_ptr<Mm>> processes_;
    std::unordered_set<std::uint32_t> prepared_;  // processes in a space whose exec's event is to come
    std::unordered_map<std::uint64_t, std::shared_ptr<Mm>> by_pointer_;
    std::unordered_map<std::uint32_t, Protect> doing_;  // by thread: what its next gather is for
    // Processes that have left their space, to end or in an exec whose new space no call has named yet.
    std::unordered_set<std::uint32_t> left_;
    std::vector<std::uint32_t> running_;
    std::uint32_t next_space_ = 1;
    std::uint64_t events_ = 0;
    std::uint64_t spaces_seen_ = 0;
    std::uint64_t kernel_calls_ = 0;
};

}  // namespace tlbscope::flush
