// A kernel's flush code together with what it knows of its CPUs: which space each has loaded, and which CPUs
// may hold translations of a space. Given the requests of memory management it says which operations the
// hardware is told, and counts them.
//
// One file per family: radix.cc, x86.cc, arm64.cc, riscv.cc. Each opens with the kernel's rules and their
// source.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "flush/request.h"

namespace tlbscope::flush {

// Who wants to see the operations: a TLB per CPU, a checker.
class Hardware {
  public:
    virtual ~Hardware() = default;
    virtual void apply(const Operation& operation) = 0;
};

class Flusher {
  public:
    virtual ~Flusher() = default;

    // CPU `cpu` runs a task of `space` from here on; nothing: the idle task or a kernel thread, which keeps
    // what is loaded (lazily).
    void switch_to(std::uint32_t cpu, std::optional<SpaceId> space);
    void request(const Request& request);
    // The space is gone: CPUs that have it loaded lazily have none from here on.
    void forget(SpaceId space);

    [[nodiscard]] const Account& account() const { return account_; }
    [[nodiscard]] const FlushSizes& sizes() const { return sizes_; }
    [[nodiscard]] Tally& tally_of(Reason reason) { return account_.of(reason); }
    // Translations that one CPU's TLB holds.
    void set_entries(std::uint64_t entries) { sizes_.most = entries; }
    // Every operation is shown to it; it must outlive the flusher.
    void show(Hardware* hardware) { hardware_ = hardware; }
    [[nodiscard]] virtual std::unique_ptr<Flusher> clone() const = 0;
    // What further behaviour depends on, as text: two flushers with equal states behave alike.
    [[nodiscard]] virtual std::string state() const = 0;
    // Whether `cpu` may use translations of `space` without another switch_to: it has them loaded, if only
    // lazily.
    [[nodiscard]] bool loaded(std::uint32_t cpu, SpaceId space) const {
        return cpu < cpus_.size() && cpus_[cpu].loaded == space;
    }

  protected:
    struct Cpu {
        std::optional<SpaceId> running;  // of the task; nothing: none
        std::optional<SpaceId> loaded;   // in the hardware; differs from `running` when lazy
    };

    virtual void do_request(const Request& request) = 0;
    virtual void do_forget(SpaceId space) = 0;
    // `cpu` has been given another task; cpus_ still says what was.
    virtual void do_switch(std::uint32_t cpu, std::optional<SpaceId> space) = 0;

    Cpu& cpu(std::uint32_t number) {
        if (number >= cpus_.size()) cpus_.resize(number + 1);
        return cpus_[number];
    }
    // Counts `operation`, which takes `instructions` instructions naming `named` each on every CPU that
    // executes it, and `walk_instructions` more for the walk cache.
    void issue(const Operation& operation, TlbScope named, std::uint64_t instructions,
               std::uint64_t walk_instructions = 0);
    // `others` are interrupted at once to do something.
    void interrupt(const CpuSet& others);
    [[nodiscard]] std::string cpus_state() const;
    // Of the request being served, or of the switch.
    [[nodiscard]] Tally& tally() { return account_.of(reason_); }

    Account account_;
    FlushSizes sizes_;
    std::vector<Cpu> cpus_;
    Hardware* hardware_ = nullptr;
    Reason reason_ = Reason::kUnmap;  // of the request being served
};

}  // namespace tlbscope::flush
