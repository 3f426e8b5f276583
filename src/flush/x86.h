// x86: arch/x86/mm/tlb.c, with IPIs or with AMD's broadcast INVLPGB.
#pragma once

#include <array>

#include "flush/flusher.h"

namespace tlbscope::flush {

struct X86Rules {
    std::uint64_t ceiling = 33;  // tlb_single_page_flush_ceiling
    std::uint32_t asids = 6;     // TLB_NR_DYN_ASIDS; 0: no PCIDs, every switch drops the user's translations
    bool broadcast = false;      // INVLPGB
    std::uint32_t broadcast_cpus = 3;   // a space that this many CPUs have active gets a global ASID
    std::uint64_t broadcast_pages = 8;  // most pages one INVLPGB names
    std::uint64_t page_bytes = 4096;
};

class X86 : public Flusher {
  public:
    explicit X86(const X86Rules& rules) : rules_(rules) {}
    [[nodiscard]] std::unique_ptr<Flusher> clone() const override { return std::make_unique<X86>(*this); }
    [[nodiscard]] std::string state() const override;

  protected:
    void do_request(const Request& request) override;
    void do_forget(SpaceId space) override;
    void do_switch(std::uint32_t cpu, std::optional<SpaceId> space) override;

  private:
    struct Mm {
        std::uint64_t generation = 1;  // tlb_gen: counts flushes
        CpuSet mask;                   // mm_cpumask: CPUs that have it loaded
        bool global_asid = false;      // INVLPGB: the same ASID on every CPU
    };
    // What one CPU's TLB holds under one of its dynamic ASIDs.
    struct Slot {
        std::optional<SpaceId> space;
        std::uint64_t generation = 0;  // up to which flushes of the space have been done
    };
    struct Tlb {
        std::vector<Slot> slots;
        std::uint32_t next = 0;
        std::uint32_t loaded = 0;  // slot
        bool lazy = false;
    };

    Tlb& tlb(std::uint32_t cpu);
    void load(std::uint32_t cpu, SpaceId space);
    void unload(std::uint32_t cpu);
    void catch_up(std::uint32_t cpu, Slot& slot, bool counted);
    void flush_here(std::uint32_t cpu, const Request& request, std::uint64_t generation, bool full);
    void broadcast(const Request& request, bool full);

    X86Rules rules_;
    std::unordered_map<std::uint32_t, Mm> spaces_;
    std::vector<Tlb> tlbs_;
};

}  // namespace tlbscope::flush
