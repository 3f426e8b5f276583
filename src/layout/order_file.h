// Order files: one writer per format, and a reader for those that list functions, sections or files.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "layout/image.h"
#include "layout/linker.h"
#include "layout/methods.h"
#include "layout/trace.h"

namespace tlbscope::layout {

// What a file is for. docs/linkers.md shows the flags that each goes with.
enum class OrderFormat : std::uint8_t {
    kLld,           // --symbol-ordering-file
    kLldCallGraph,  // --call-graph-ordering-file: the calls, from which lld makes its own order
    kGold,          // --section-ordering-file of gold; also the order file of scripts/build-ppc32-kernel
    kLd,            // lines for the beginning of .text in a GNU ld script
    kLdSorted,      // arguments of objcopy that rename sections to .text.sorted.N
    kLd243,         // --section-ordering-file of GNU ld 2.43
    kMold,          // object files, one a line, as a response file; also those that nothing of ran
    kApple,         // -order_file of Apple's ld and ld64.lld
    kBolt,          // --function-order of llvm-bolt
    kBoltProfile,   // .fdata: the branches taken
    kLinux,         // lines to include before TEXT_TEXT in a kernel's linker script
};

struct FormatInfo {
    OrderFormat format;
    std::string_view name;
    Linker linker;
    std::string_view use;  // one line: the flag, with ORDER for the file's name
    bool data = false;     // whether it can order data objects too
};
[[nodiscard]] std::span<const FormatInfo> formats();
[[nodiscard]] std::optional<FormatInfo> format_named(std::string_view name);

// Where an order came from; kept in the file where its format has comments.
struct Origin {
    std::string image;
    std::string build_id;
    std::string machine;
    std::string method;
    std::vector<std::string> recordings;  // NAME
    std::vector<std::string> contents;    // content_hash of each
};

// A branch taken, or a function entered, between two offsets of functions.
struct Branch {
    std::string from;
    std::uint64_t from_offset = 0;
    std::string to;
    std::uint64_t to_offset = 0;
    std::uint64_t count = 0;
};

struct OrderInput {
    const Image* image = nullptr;
    const Units* units = nullptr;
    const Graph* graph = nullptr;
    std::span<const std::uint32_t> order;
    std::span<const Branch> branches;  // of kBoltProfile
    Origin origin;
};
[[nodiscard]] std::string written(OrderFormat format, const OrderInput& input);

// A file read back.
struct OrderFile {
    Linker linker = Linker::kLld;  // that the file says or looks like it is for
    std::vector<std::string> keys;
    Origin origin;  // as far as it says
};
[[nodiscard]] Result<OrderFile> parse_order(std::string_view text, const std::string& name);

// The units that the file names. `missing`: keys that name none.
struct Matched {
    Order order;
    std::vector<std::string> missing;
};
// Also finds `name.llvm.HASH` for the same name with another hash, which ThinLTO makes anew for every link,
// where just one function has the name; and section names in a symbol order and the other way round.
[[nodiscard]] Matched match(const OrderFile& file, const Image& image, const Units& units);

}  // namespace tlbscope::layout
