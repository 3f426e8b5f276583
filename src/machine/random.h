// The generator behind random replacement. Tiny and fixed, so that a replay gives the same counts with every
// compiler and library: splitmix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators",
// OOPSLA 2014).
#pragma once

#include <cstdint>

namespace tlbscope::machine {

class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
        z = (z ^ z >> 27) * 0x94d049bb133111eb;
        return z ^ z >> 31;
    }
    // 0 to n - 1. The upper 32 bits scaled; the bias of at most n/2^32 is below anything a replay could show.
    std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>((next() >> 32) * n >> 32); }

  private:
    std::uint64_t state_;
};

}  // namespace tlbscope::machine
