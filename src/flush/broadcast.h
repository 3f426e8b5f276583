// The simpler families: arm64, where every flush is a broadcast, and RISC-V, where every remote one is an
// interrupt or a call of the firmware.
#pragma once

#include "flush/flusher.h"

namespace tlbscope::flush {

struct Arm64Rules {
    bool range = false;                                       // FEAT_TLBIRANGE: TLBI RVAE1IS
    std::uint64_t most_operations = 512;                      // MAX_DVM_OPS = PTRS_PER_PTE
    std::uint64_t most_range_pages = std::uint64_t{1} << 21;  // MAX_TLBI_RANGE_PAGES [R]
    std::uint64_t page_bytes = 4096;
};

class Arm64 : public Flusher {
  public:
    explicit Arm64(const Arm64Rules& rules) : rules_(rules) {}
    [[nodiscard]] std::unique_ptr<Flusher> clone() const override { return std::make_unique<Arm64>(*this); }
    [[nodiscard]] std::string state() const override { return cpus_state(); }
    // Instructions that flush `pages` pages by range operations: an odd page alone, then for each scale up to
    // 32 << (5 * scale) pages at once.
    [[nodiscard]] static std::uint64_t range_instructions(std::uint64_t pages);

  protected:
    void do_request(const Request& request) override;
    void do_forget(SpaceId) override {}
    void do_switch(std::uint32_t cpu, std::optional<SpaceId> space) override;

  private:
    Arm64Rules rules_;
};

struct RiscvRules {
    std::uint64_t ceiling = 64;  // tlb_flush_all_threshold
    bool asids = false;          // with an ASID allocator; without, every switch flushes
    std::uint64_t page_bytes = 4096;
};

class Riscv : public Flusher {
  public:
    explicit Riscv(const RiscvRules& rules) : rules_(rules) {}
    [[nodiscard]] std::unique_ptr<Flusher> clone() const override { return std::make_unique<Riscv>(*this); }
    [[nodiscard]] std::string state() const override;

  protected:
    void do_request(const Request& request) override;
    void do_forget(SpaceId space) override { masks_.erase(space.value()); }
    void do_switch(std::uint32_t cpu, std::optional<SpaceId> space) override;

  private:
    RiscvRules rules_;
    std::unordered_map<std::uint32_t, CpuSet> masks_;
};

}  // namespace tlbscope::flush
