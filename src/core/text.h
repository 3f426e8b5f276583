// Text as people read it.
#pragma once

#include <string>
#include <string_view>

namespace tlbscope {

// The text in lines of at most `width` characters, broken at spaces and each beginning with `indent`; the
// first line begins with `first` instead when it is not empty.
[[nodiscard]] std::string wrapped(std::string_view text, std::string_view indent, std::size_t width = 100,
                                  std::string_view first = {});

}  // namespace tlbscope
