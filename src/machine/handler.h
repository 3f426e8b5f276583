// A software miss handler as a design: what each of its paths executes. machines/handlers/ holds those of
// real kernels, counted from their source; docs/handlers.md describes the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "addrspace/regions.h"
#include "core/error.h"
#include "core/types.h"

namespace tlbscope::machine {

// Which of the page table's levels a path loads.
enum class TableLoads : std::uint8_t {
    kAll,   // from the root down
    kLast,  // the entry that maps the page
    kNone,  // it computes the entry
};

struct HandlerPath {
    std::string name;  // "user", "kernel, large page"
    // When it is taken: the first path of the file whose conditions all hold.
    std::optional<Kind> kind;
    std::optional<Side> side;
    std::optional<bool> large;  // the page is larger than the base page
    std::optional<addrspace::Region> region;
    bool nested = false;  // taken when the load of an entry through virtual memory misses, and then only
    std::uint32_t instructions = 0;
    TableLoads tables = TableLoads::kAll;
    std::uint32_t loads = 0;  // besides those from tables: of saved registers
    std::uint32_t stores = 0;
    std::uint32_t lines = 0;  // instruction-cache lines it runs through, from `address` on
    std::uint64_t address = 0;
};

struct Handler {
    std::string name;
    std::string title;
    std::string source;
    std::string format;  // of the page table, as pagetable names it
    Cycles entry;        // of the exception
    Cycles exit;
    // The last level is read through virtual memory, at this address plus the page number times the entry's
    // size (sparc64's VPTE): the load itself takes an entry of the data TLB, and can miss.
    std::optional<std::uint64_t> virtual_table;
    std::vector<HandlerPath> paths;
    std::string file;

    // The path a miss takes; the reader makes sure that one always holds.
    [[nodiscard]] const HandlerPath& path(Kind kind, Side side, bool large, addrspace::Region region) const;
    [[nodiscard]] const HandlerPath* nested() const;
    [[nodiscard]] bool needs_regions() const;
};

// By name, from "handlers" in the folders where machines are looked for, or by path.
[[nodiscard]] Result<Handler> load_handler(const std::string& name_or_path);
[[nodiscard]] Result<Handler> parse_handler(const std::string& text, const std::string& file);
// In alphabetical order.
[[nodiscard]] std::vector<std::string> handler_names();

}  // namespace tlbscope::machine
