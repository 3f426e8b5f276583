#include "explain/demangle.h"

#include <libiberty/demangle.h>

#include <cstdlib>
#include <memory>

namespace tlbscope::explain {

std::string demangled(const std::string& name) {
    if (!name.starts_with("_Z") && !name.starts_with("_R") && !name.starts_with("_D")) return name;
    const std::size_t suffix = name.find('@');
    const std::string stem = name.substr(0, suffix);
    const std::unique_ptr<char, void (*)(void*)> text(
        cplus_demangle(stem.c_str(), DMGL_PARAMS | DMGL_ANSI | DMGL_AUTO), std::free);
    if (text == nullptr) return name;
    return text.get() + (suffix == std::string::npos ? std::string{} : name.substr(suffix));
}

}  // namespace tlbscope::explain
