// A count for every kind x mode x side.
#pragma once

#include <array>
#include <cstdint>

#include "core/types.h"

namespace tlbscope::replay {

inline constexpr std::array kKinds{Kind::kInstruction, Kind::kData};
inline constexpr std::array kModes{Mode::kUser, Mode::kKernel};
inline constexpr std::array kSides{Side::kUser, Side::kKernel};

class Counts {
  public:
    [[nodiscard]] std::uint64_t& at(Kind kind, Mode mode, Side side) {
        return counts_[index(kind, mode, side)];
    }
    [[nodiscard]] std::uint64_t at(Kind kind, Mode mode, Side side) const {
        return counts_[index(kind, mode, side)];
    }
    [[nodiscard]] std::uint64_t by_side(Kind kind, Side side) const {
        return at(kind, Mode::kUser, side) + at(kind, Mode::kKernel, side);
    }
    [[nodiscard]] std::uint64_t by_mode(Kind kind, Mode mode) const {
        return at(kind, mode, Side::kUser) + at(kind, mode, Side::kKernel);
    }
    [[nodiscard]] std::uint64_t of(Kind kind) const {
        return by_side(kind, Side::kUser) + by_side(kind, Side::kKernel);
    }
    [[nodiscard]] std::uint64_t total() const { return of(Kind::kInstruction) + of(Kind::kData); }

    Counts& operator+=(const Counts& other) {
        for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
        return *this;
    }
    friend bool operator==(const Counts&, const Counts&) = default;

  private:
    static std::size_t index(Kind kind, Mode mode, Side side) {
        return static_cast<std::size_t>(kind) * 4 + static_cast<std::size_t>(mode) * 2 +
               static_cast<std::size_t>(side);
    }
    std::array<std::uint64_t, 8> counts_{};
};

}  // namespace tlbscope::replay
