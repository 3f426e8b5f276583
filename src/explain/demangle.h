// Names as their authors wrote them, by GNU libiberty: C++ (Itanium ABI), Rust (legacy and v0), D.
#pragma once

#include <string>

namespace tlbscope::explain {

// The name itself when it is not mangled. A suffix of the linker or compiler (@plt, .cold) stays.
[[nodiscard]] std::string demangled(const std::string& name);

}  // namespace tlbscope::explain
