// POWER's radix flush code, before, during and after the series of 2017, and today's.
#pragma once

#include "flush/flusher.h"

namespace tlbscope::flush {

struct RadixRules {
    bool batch_barriers = false;   // patch 1: one barrier pair around all pages of a range
    bool range_flush = false;      // patch 3: flush_tlb_range flushes the range, not the PID
    bool local_ceiling = false;    // patch 4: a ceiling of its own for tlbiel
    bool tables_by_range = false;  // patch 5: freed tables cost a walk-cache flush, not a PID flush
    bool reset_cpumask = false;    // patch 6: a global PID flush of a single-threaded process ends with its
                                   // cpumask at this CPU alone
    bool local_spurious = false;   // patch 7: a spurious fault flushes this CPU's entry only
    bool today = false;            // flush_type_needed of 5.13 and later, with all of the above but 6 and 7:
                                   // trimming instead of 6, no flush at all instead of 7
    bool no_tlbie = false;         // today without tlbie: IPIs and tlbiel
    std::uint64_t ceiling = 33;    // pages above which a PID flush is cheaper, global
    std::uint64_t local_ceiling_pages = 256;
    std::uint64_t pid_instructions = 128;  // tlbiel that a local PID flush takes: the sets of the TLB
    std::uint64_t fixups = 0;              // tlbie added to each global flush for POWER9's errata: 0, 1 or 2
    std::uint64_t page_bytes = 4096;
    std::uint64_t huge_bytes = std::uint64_t{1} << 21;
    std::uint32_t trim_interval = 1073;  // flushes of one CPU between attempts to trim
};

class Radix : public Flusher {
  public:
    explicit Radix(const RadixRules& rules) : rules_(rules) {}
    [[nodiscard]] std::unique_ptr<Flusher> clone() const override { return std::make_unique<Radix>(*this); }
    [[nodiscard]] std::string state() const override;

  protected:
    void do_request(const Request& request) override;
    void do_forget(SpaceId space) override { masks_.erase(space.value()); }
    void do_switch(std::uint32_t cpu, std::optional<SpaceId> space) override;

  private:
    enum class How : std::uint8_t { kNone, kLocal, kGlobal };
    [[nodiscard]] How how(const Request& request, bool whole);
    void exit_lazy(std::uint32_t cpu, SpaceId space, bool current);
    void exit_lazy_elsewhere(const Request& request);
    bool tick(std::uint32_t cpu);

    void flush_pid(const Request& request, How how, bool walk_cache);
    // `second` is the pass over huge pages in the same barrier pair.
    void flush_pages(const Request& request, How how, std::uint64_t start, std::uint64_t end, bool walk_cache,
                     bool batched, bool second);
    void flush_range(const Request& request, std::uint64_t start, std::uint64_t end, bool second,
                     bool walk_cache);
    void flush_space_for_range(const Request& request, std::uint64_t start, std::uint64_t end);
    void fix_up(std::uint64_t times, TlbScope erat);
    void barriers(How how, std::uint64_t pairs, const Request& request);
    [[nodiscard]] CpuSet executing(How how, const Request& request) const;

    RadixRules rules_;
    std::unordered_map<std::uint32_t, CpuSet> masks_;  // mm_cpumask, by space
    std::vector<std::uint32_t> clocks_;                // mm_cpumask_trim_clock, by CPU
};

}  // namespace tlbscope::flush
