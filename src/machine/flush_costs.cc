#include "machine/flush_costs.h"

#include <fmt/format.h>

#include "machine/toml_reader.h"

namespace tlbscope::machine {

namespace {

constexpr std::uint64_t kMost = 1'000'000'000;

Duration read(TomlTable& table, const std::string& key) {
    return {.nanoseconds = table.positive(key + "_ns"), .error = table.positive(key + "_error_ns")};
}

Duration read_or(TomlTable& table, const std::string& key, const Duration& otherwise) {
    return table.has(key + "_ns") ? read(table, key) : otherwise;
}

}  // namespace

FlushCosts read_flush_costs(TomlTable& root) {
    FlushCosts costs;
    if (!root.has("flush")) return costs;
    auto flush = root.table("flush", {"family",
                                      "ceiling",
                                      "local_ceiling",
                                      "pid_instructions",
                                      "fixups",
                                      "pages_at_once",
                                      "entries",
                                      "local_ns",
                                      "local_error_ns",
                                      "local_pid_ns",
                                      "local_pid_error_ns",
                                      "global_ns",
                                      "global_error_ns",
                                      "local_barrier_ns",
                                      "local_barrier_error_ns",
                                      "global_barrier_ns",
                                      "global_barrier_error_ns",
                                      "interrupt_ns",
                                      "interrupt_error_ns",
                                      "interrupted_ns",
                                      "interrupted_error_ns",
                                      "refill_ns",
                                      "refill_error_ns",
                                      "source"});
    if (!flush) return costs;
    costs.family = flush->text("family");
    if (costs.family != "radix" && costs.family != "x86" && costs.family != "arm64" &&
        costs.family != "riscv")
        flush->reject("family", fmt::format("flush.family is \"{}\"", costs.family),
                      "give \"radix\", \"x86\", \"arm64\" or \"riscv\"");
    costs.ceiling = flush->whole("ceiling", 0, kMost);
    costs.local_ceiling = flush->whole_or("local_ceiling", 0, kMost, costs.ceiling);
    costs.pid_instructions = flush->whole_or("pid_instructions", 1, 65536, 1);
    costs.fixups = flush->whole_or("fixups", 0, 2, 0);
    costs.pages_at_once = flush->whole_or("pages_at_once", 1, 65536, 1);
    costs.entries = flush->whole("entries", 1, 1 << 20);
    // What an architecture does not have costs nothing: no broadcast, no barriers, no interrupts.
    costs.local = read_or(*flush, "local", {});
    costs.local_pid = read_or(*flush, "local_pid", costs.local);
    costs.global = read_or(*flush, "global", {});
    costs.local_barrier = read_or(*flush, "local_barrier", {});
    costs.global_barrier = read_or(*flush, "global_barrier", {});
    costs.interrupt = read_or(*flush, "interrupt", {});
    costs.interrupted = read_or(*flush, "interrupted", {});
    costs.refill = read(*flush, "refill");
    costs.source = flush->text("source");
    return costs;
}

}  // namespace tlbscope::machine
