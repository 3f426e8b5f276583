// One row per number, so that every table program can pivot it:
// machine,mapping,quantity,kind,mode,side,value. A column that does not apply is empty; what a
// page-granularity recording does not tell has no row.
#include <fmt/format.h>

#include "report/report.h"

namespace tlbscope::report {

namespace {

using replay::Counts;
using replay::Ledger;

class Csv {
  public:
    explicit Csv(std::string prefix, std::string& out) : prefix_(std::move(prefix)), out_(&out) {}
    template <class T>
    void row(const char* quantity, const char* kind, const char* mode, const char* side, T value) {
        *out_ += fmt::format("{},{},{},{},{},{}\n", prefix_, quantity, kind, mode, side, value);
    }
    void counts(const char* quantity, const Counts& counts) {
        for (const Kind kind : replay::kKinds)
            for (const Mode mode : replay::kModes)
                for (const Side side : replay::kSides)
                    row(quantity, kind == Kind::kInstruction ? "instruction" : "data",
                        mode == Mode::kUser ? "user" : "kernel", side == Side::kUser ? "user" : "kernel",
                        counts.at(kind, mode, side));
    }

  private:
    std::string prefix_;
    std::string* out_;
};

std::string cell(const std::string& text) {
    if (text.find_first_of(",\"\n") == std::string::npos) return text;
    std::string out = "\"";
    for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    return out + "\"";
}

void rows(const Ledger& ledger, const Replay& replay, std::string& out) {
    std::string machine = ledger.machine.name;
    for (const std::string& change : ledger.machine.changes) machine += " " + change;
    Csv csv(cell(machine) + "," + cell(ledger.mapping), out);
    csv.counts("misses", ledger.misses);
    csv.counts("references", ledger.references);
    csv.counts("lookups", ledger.lookups);
    for (const Side side : replay::kSides) {
        if (!ledger.full()) continue;
        const auto i = static_cast<std::size_t>(side);
        const char* name = side == Side::kUser ? "user" : "kernel";
        csv.row("instructions", "", "", name, ledger.instructions[i]);
        csv.row("iterations", "", "", name, ledger.iterations[i]);
    }
    if (ledger.causes)
        for (const replay::Cause cause : replay::kCauses)
            for (const Kind kind : replay::kKinds)
                csv.row(fmt::format("misses_{}", name_of(cause)).c_str(),
                        kind == Kind::kInstruction ? "instruction" : "data", "", "",
                        (*ledger.causes)[static_cast<std::size_t>(kind)][cause]);
    for (const replay::PathTotals& path : ledger.refill_paths) {
        csv.row("path_times", path.name.c_str(), "", "", path.times);
        csv.row("path_cycles", path.name.c_str(), "", "", path.cycles);
    }
    csv.row("refill_cycles", "instruction", "", "", ledger.refill_cycles(Kind::kInstruction).value());
    csv.row("refill_cycles", "data", "", "", ledger.refill_cycles(Kind::kData).value());
    const Share share = share_of(ledger, replay.elapsed, replay.clock);
    csv.row(share.estimate ? "share_of_run_estimate" : "share_of_run", "", "", "", share.fraction);
    csv.row("refill_nanoseconds", "", "", "", share.refill_seconds * 1e9);
}

}  // namespace

std::string as_csv(const Replay& replay) {
    std::string out = "machine,mapping,quantity,kind,mode,side,value\n";
    for (const Ledger& ledger : replay.ledgers) rows(ledger, replay, out);
    return out;
}

}  // namespace tlbscope::report
