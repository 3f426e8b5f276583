// Whatever a handler's file says, the parser ends with a handler that has a path for every miss or with an
// error.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "machine/handler.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace tlbscope;
    const std::string text(reinterpret_cast<const char*>(data), size);
    const auto handler = machine::parse_handler(text, "fuzz.toml");
    if (!handler) {
        if (handler.error().message().empty()) std::abort();
        return 0;
    }
    for (const Kind kind : {Kind::kInstruction, Kind::kData})
        for (const Side side : {Side::kUser, Side::kKernel})
            for (const bool large : {false, true})
                for (std::size_t region = 0; region < addrspace::kRegions; ++region)
                    if (handler->path(kind, side, large, static_cast<addrspace::Region>(region)).nested)
                        std::abort();
    if (handler->virtual_table && handler->nested() == nullptr) std::abort();
    return 0;
}
