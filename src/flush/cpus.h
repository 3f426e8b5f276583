// A set of CPUs, as the kernel's cpumask.
#pragma once

#include <bitset>
#include <cstddef>

namespace tlbscope::flush {

inline constexpr std::size_t kMostCpus = 256;

class CpuSet {
  public:
    void add(std::size_t cpu) { bits_.set(cpu); }
    void remove(std::size_t cpu) { bits_.reset(cpu); }
    void clear() { bits_.reset(); }
    [[nodiscard]] bool has(std::size_t cpu) const { return bits_[cpu]; }
    [[nodiscard]] std::size_t count() const { return bits_.count(); }
    [[nodiscard]] bool empty() const { return bits_.none(); }
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (std::size_t cpu = bits_._Find_first(); cpu < kMostCpus; cpu = bits_._Find_next(cpu)) visit(cpu);
    }
    friend bool operator==(const CpuSet&, const CpuSet&) = default;

  private:
    std::bitset<kMostCpus> bits_;
};

}  // namespace tlbscope::flush
