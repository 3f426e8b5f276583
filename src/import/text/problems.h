// What a reader could not use, counted by reason: a foreign text with odd lines in it is read all the same,
// and says at the end what was left out.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tlbscope::import {

class Problems {
  public:
    struct Reason {
        std::string text;  // "a call that failed"
        std::uint64_t count = 0;
        std::uint64_t first_line = 0;
    };
    void add(std::string_view reason, std::uint64_t line);
    [[nodiscard]] const std::vector<Reason>& reasons() const {
        return reasons_;
    }  // in order of first appearance
    [[nodiscard]] std::uint64_t total() const;
    // One line each: "NAME: 3 lines left out: a call that failed (first in line 17)".
    [[nodiscard]] std::vector<std::string> notes(std::string_view name) const;

  private:
    std::vector<Reason> reasons_;
};

}  // namespace tlbscope::import
