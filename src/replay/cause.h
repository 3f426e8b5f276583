// Why a miss happened; docs/causes.md defines the causes and works an example of each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tlbscope::replay {

// In the order in which they are judged: the first that holds is the cause.
enum class Cause : std::uint8_t { kCompulsory, kInvalidated, kCapacity, kConflict, kReplacement };

inline constexpr std::array kCauses{Cause::kCompulsory, Cause::kInvalidated, Cause::kCapacity,
                                    Cause::kConflict, Cause::kReplacement};

[[nodiscard]] constexpr std::string_view name_of(Cause cause) {
    constexpr std::array<std::string_view, kCauses.size()> kNames{"compulsory", "invalidated", "capacity",
                                                                  "conflict", "replacement"};
    return kNames[static_cast<std::size_t>(cause)];
}

// Misses by cause.
class CauseCounts {
  public:
    [[nodiscard]] std::uint64_t& operator[](Cause cause) { return counts_[static_cast<std::size_t>(cause)]; }
    [[nodiscard]] std::uint64_t operator[](Cause cause) const {
        return counts_[static_cast<std::size_t>(cause)];
    }
    [[nodiscard]] std::uint64_t total() const {
        std::uint64_t sum = 0;
        for (const std::uint64_t count : counts_) sum += count;
        return sum;
    }
    CauseCounts& operator+=(const CauseCounts& other) {
        for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
        return *this;
    }
    friend bool operator==(const CauseCounts&, const CauseCounts&) = default;

  private:
    std::array<std::uint64_t, kCauses.size()> counts_{};
};

}  // namespace tlbscope::replay
