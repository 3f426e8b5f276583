// One log of memory-management events under any number of flush policies at once.
//
// Events come one by one and are forgotten: memory is what the live spaces take, whatever the log's length.
// Only the first kLookAhead are kept for a moment, to see whether the log has page faults and CPU numbers.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/memory_call.h"
#include "core/memory_event.h"
#include "flush/call_manager.h"
#include "flush/memory_manager.h"
#include "flush/policy.h"
#include "flush/tlb_contents.h"
#include "machine/machine.h"

namespace tlbscope::flush {

struct PolicyOnMachine {
    Policy policy;
    machine::Machine machine;
};

struct ReplayOptions {
    std::optional<PageShift> page;      // otherwise 4K
    std::optional<std::uint32_t> cpus;  // for logs that name none
    std::optional<bool> faults;         // otherwise whether the first events show any
    // Requests are what the kernel was recorded to ask (call()), not what the events lead to expect.
    bool calls = false;
    // The input is a recording: it names CPUs and has page faults, so nothing needs to be looked ahead for.
    bool recorded = false;
    // The input has references: reference() will be called.
    bool references = false;
};

class Replay : public Listener {
  public:
    static constexpr std::size_t kLookAhead = 65'536;

    Replay(std::vector<PolicyOnMachine> policies, const ReplayOptions& options);
    ~Replay() override;

    void event(const MemoryEvent& event);
    void call(const MemoryCall& call);
    // CPU `cpu` used a translation of the space it runs; user side only.
    void reference(std::uint32_t cpu, std::uint64_t address);
    void finish();

    struct Result {
        const PolicyOnMachine* policy = nullptr;
        const Account* account = nullptr;
        const FlushSizes* sizes = nullptr;
    };
    [[nodiscard]] std::vector<Result> results() const;
    [[nodiscard]] const Assumptions& assumptions() const { return assumptions_; }
    [[nodiscard]] std::uint64_t events() const { return events_; }
    [[nodiscard]] std::uint64_t spaces() const;
    [[nodiscard]] std::uint32_t cpus() const;
    [[nodiscard]] std::uint64_t copies() const;
    [[nodiscard]] std::vector<std::string> notes() const;

  private:
    void decide();
    void switched(std::uint32_t cpu, std::optional<SpaceId> space) override;
    void requested(const Request& request) override;
    void ended(SpaceId space) override;

    std::vector<PolicyOnMachine> policies_;
    std::vector<std::unique_ptr<Flusher>> flushers_;
    std::vector<std::unique_ptr<TlbContents>> tlbs_;  // by policy; empty without references
    std::vector<std::optional<SpaceId>> running_;     // by CPU
    ReplayOptions options_;
    Assumptions assumptions_;
    std::vector<MemoryEvent> first_;
    std::unique_ptr<MemoryManager> manager_;
    std::unique_ptr<CallManager> calls_;
    std::uint64_t events_ = 0;
};

}  // namespace tlbscope::flush
