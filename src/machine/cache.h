// A small cache of memory, as far as it decides what a refill costs: set-associative, LRU, whole lines. It
// knows no contents and no write-back; a store brings its line in like a load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/types.h"

namespace tlbscope::machine {

struct CacheDescription {
    std::uint32_t bytes = 0;
    std::uint32_t line = 0;  // bytes
    std::uint32_t ways = 1;
    Cycles hit;   // of a load
    Cycles miss;  // of one that misses, all told
    // The program's own references go through it as well as the refill's, and push its lines out.
    bool sees_program = false;
    std::string source;

    [[nodiscard]] std::uint32_t sets() const { return bytes / line / ways; }
};

class Cache {
  public:
    explicit Cache(const CacheDescription& description);

    // True when the line that holds `address` was there. `space` tells lines of equal addresses apart:
    // physical ones from virtual ones, and those of different spaces. Linear in the ways.
    bool touch(std::uint64_t address, std::uint32_t space) {
        const std::uint64_t line = address >> line_shift_;
        const std::uint64_t tag = line << kSpaceBits | (space & ((1u << kSpaceBits) - 1));
        std::uint64_t* const set = tags_.data() + (line & set_mask_) * ways_;
        for (std::uint32_t way = 0; way < ways_; ++way)
            if (set[way] == tag) {
                // The most recent first.
                for (; way > 0; --way) set[way] = set[way - 1];
                set[0] = tag;
                return true;
            }
        for (std::uint32_t way = ways_ - 1; way > 0; --way) set[way] = set[way - 1];
        set[0] = tag;
        return false;
    }

  private:
    static constexpr unsigned kSpaceBits = 12;
    unsigned line_shift_;
    std::uint64_t set_mask_;
    std::uint32_t ways_;
    std::vector<std::uint64_t> tags_;  // set by set, each from the most recently used
};

}  // namespace tlbscope::machine
