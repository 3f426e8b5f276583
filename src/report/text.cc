// The text form: the answer first, then what it rests on.
#include <fmt/format.h>

#include <algorithm>

#include "core/numbers.h"
#include "core/text.h"
#include "report/report.h"

namespace tlbscope::report {

namespace {

using replay::Counts;
using replay::Ledger;

class Text {
  public:
    explicit Text(bool color) : color_(color) {}
    void line(const std::string& text = "") { out_ += text + "\n"; }
    void strong(const std::string& text) { line(color_ ? "\033[1m" + text + "\033[0m" : text); }
    // Row of a table: a name and right-aligned cells.
    void row(const std::string& name, const std::vector<std::string>& cells, bool head = false) {
        std::string text = fmt::format("{:<24}", name);
        for (const std::string& cell : cells) text += fmt::format(" {:>15}", cell);
        while (text.ends_with(' ')) text.pop_back();
        head ? strong(text) : line(text);
    }
    void fact(const std::string& name, const std::string& text) {
        line(fmt::format("{:<10} {}", name, text));
    }
    void paragraph(const std::string& bullet, const std::string& text) {
        out_ += wrapped(text, std::string(bullet.size(), ' '), 100, bullet);
    }
    [[nodiscard]] std::string take() { return std::move(out_); }

  private:
    bool color_;
    std::string out_;
};

// The wording of the kernel patch that first counted these, so that its readers and scripts find what they
// know.
void four_lines(Text& text, const Ledger& ledger) {
    for (const Kind kind : replay::kKinds)
        for (const Side side : replay::kSides)
            text.strong(fmt::format("{}-TLB {} misses: {}", kind == Kind::kInstruction ? "I" : "D",
                                    side == Side::kUser ? "userspace" : "kernel",
                                    ledger.misses.by_side(kind, side)));
}

std::string geometry(const replay::LevelCounts& level) {
    const machine::TlbGeometry& g = level.geometry;
    std::string ways = g.ways == g.entries ? "fully associative" : fmt::format("{}-way", g.ways);
    std::string text =
        fmt::format("{} {} entries {} {}", level.name, g.entries, ways, name_of(g.replacement));
    if (g.reserved > 0) text += fmt::format(" ({} reserved)", g.reserved);
    if (level.instruction && level.data) text += ", unified";
    if (level.level > 1) text += fmt::format(", level {}", level.level);
    return text;
}

std::string per_1000(std::uint64_t misses, std::uint64_t instructions) {
    if (instructions == 0) return "-";
    return fmt::format("{:.3f}", static_cast<double>(misses) * 1000 / static_cast<double>(instructions));
}

std::string seconds(double amount) {
    if (amount >= 1) return fmt::format("{:.3f} s", amount);
    if (amount >= 1e-3) return fmt::format("{:.3f} ms", amount * 1e3);
    return fmt::format("{:.3f} us", amount * 1e6);
}

std::string megahertz(double hertz) { return fmt::format("{:g} MHz", hertz / 1e6); }

void headings(Text& text, const Replay& replay, const Ledger& ledger) {
    const std::string changes = ledger.machine.changes_text();
    text.fact("machine", fmt::format("{}: {}{}", ledger.machine.name, ledger.machine.title,
                                     changes.empty() ? "" : "; changed: " + changes));
    for (const replay::LevelCounts& level : ledger.levels) text.fact("", geometry(level));
    text.fact("pages", ledger.mapping);
    text.fact("recording",
              fmt::format("{}: {} ({}, {})", replay.recording, fmt::join(replay.metadata.command, " "),
                          replay.metadata.target,
                          replay.metadata.system ? "program and kernel" : "program without kernel"));
}

void misses_table(Text& text, const Ledger& ledger) {
    const std::uint64_t fetches = ledger.references.of(Kind::kInstruction);
    const bool repeats = ledger.full() && ledger.instructions_total() != fetches;
    std::vector<std::string> head{"user", "kernel", "total",
                                  ledger.full() ? "per 1000 instr" : "per 1000 fetches"};
    if (repeats) head.emplace_back("and iterations");
    text.row("misses by side", head, true);
    const auto row = [&](const std::string& name, std::uint64_t user, std::uint64_t kernel) {
        const std::uint64_t total = user + kernel;
        std::vector<std::string> cells{
            grouped(user), grouped(kernel), grouped(total),
            per_1000(total, ledger.full() ? ledger.instructions_total() : fetches)};
        if (repeats) cells.push_back(per_1000(total, fetches));
        text.row(name, cells);
    };
    const Counts& m = ledger.misses;
    row("  instruction", m.by_side(Kind::kInstruction, Side::kUser),
        m.by_side(Kind::kInstruction, Side::kKernel));
    row("  data", m.by_side(Kind::kData, Side::kUser), m.by_side(Kind::kData, Side::kKernel));
    row("  both", m.by_side(Kind::kInstruction, Side::kUser) + m.by_side(Kind::kData, Side::kUser),
        m.by_side(Kind::kInstruction, Side::kKernel) + m.by_side(Kind::kData, Side::kKernel));
}

// Where several arrays share the work.
void arrays_table(Text& text, const Ledger& ledger) {
    if (ledger.levels.size() < 3) return;
    text.row("arrays", {"lookups", "hits", "misses", "hit rate"}, true);
    for (const replay::LevelCounts& level : ledger.levels) {
        const std::uint64_t lookups = level.lookups_total();
        std::string pages;
        for (const PageShift size : level.pages)
            pages += (pages.empty() ? "" : "/") + size_name(size.bytes());
        text.row(fmt::format("  {} {}", level.name, pages),
                 {grouped(lookups), grouped(level.hits), grouped(level.misses_total()),
                  lookups == 0 ? "-"
                               : fmt::format("{:.4f} %", static_cast<double>(level.hits) * 100 /
                                                             static_cast<double>(lookups))});
    }
}

void pins_table(Text& text, const Ledger& ledger) {
    if (ledger.pins.empty()) return;
    text.row("pinned entries", {"size", "array", "misses after"}, true);
    for (const replay::Pin& pin : ledger.pins) {
        text.row(fmt::format("  {:#x}", pin.start.value()),
                 {size_name(pin.size.bytes()), pin.array, grouped(pin.misses_after)});
        if (pin.refused) text.line("    no reserved entry was left for it");
        if (!pin.killed_by.empty())
            text.line(fmt::format(
                "    killed by {} after {} block executions; the misses after cost {} cycles", pin.killed_by,
                grouped(pin.killed_at), grouped((ledger.machine.refill.cycles * pin.misses_after).value())));
    }
}

void references_table(Text& text, const Ledger& ledger) {
    text.row("references by side", {"user", "kernel", "total", "hit rate"}, true);
    for (const Kind kind : replay::kKinds) {
        const std::uint64_t lookups = ledger.lookups.of(kind);
        const std::string rate =
            lookups == 0 ? "-"
                         : fmt::format("{:.4f} %", static_cast<double>(lookups - ledger.misses.of(kind)) *
                                                       100 / static_cast<double>(lookups));
        text.row(kind == Kind::kInstruction ? "  instruction" : "  data",
                 {grouped(ledger.references.by_side(kind, Side::kUser)),
                  grouped(ledger.references.by_side(kind, Side::kKernel)),
                  grouped(ledger.references.of(kind)), rate});
    }
    if (ledger.full())
        text.row("  instructions run", {grouped(ledger.instructions[0]), grouped(ledger.instructions[1]),
                                        grouped(ledger.instructions_total())});
}

void modes_table(Text& text, const Ledger& ledger) {
    text.row("misses by running code", {"user code", "kernel code"}, true);
    for (const Kind kind : replay::kKinds)
        for (const Side side : replay::kSides) {
            const std::uint64_t user = ledger.misses.at(kind, Mode::kUser, side);
            const std::uint64_t kernel = ledger.misses.at(kind, Mode::kKernel, side);
            if (user + kernel == 0) continue;
            text.row(fmt::format("  {}, {} side", kind == Kind::kInstruction ? "instruction" : "data",
                                 side == Side::kUser ? "user" : "kernel"),
                     {grouped(user), grouped(kernel)});
        }
}

void causes_table(Text& text, const Ledger& ledger) {
    if (!ledger.causes) return;
    text.row("misses by cause", {"instruction", "data", "total"}, true);
    for (const replay::Cause cause : replay::kCauses) {
        const std::uint64_t fetches = (*ledger.causes)[0][cause];
        const std::uint64_t accesses = (*ledger.causes)[1][cause];
        text.row(fmt::format("  {}", name_of(cause)),
                 {grouped(fetches), grouped(accesses), grouped(fetches + accesses)});
    }
}

void fixed_cycles(Text& text, const Ledger& ledger, const Share& share) {
    const std::uint64_t hits = ledger.later_hits[0].value() + ledger.later_hits[1].value();
    const std::string later = hits == 0 ? "" : fmt::format(" + {} for hits in later levels", grouped(hits));
    text.fact("cycles", fmt::format("{} misses x {}{} = {}, {} at {}", grouped(ledger.misses.total()),
                                    ledger.machine.refill.cycles.value(), later,
                                    grouped(ledger.refill_cycles().value()), seconds(share.refill_seconds),
                                    megahertz(share.clock)));
}

std::string each(std::uint64_t cycles, std::uint64_t times) {
    return times == 0 ? "-" : fmt::format("{:.1f}", static_cast<double>(cycles) / static_cast<double>(times));
}

void derived_cycles(Text& text, const Ledger& ledger, const Share& share) {
    const std::uint64_t walks = ledger.refill[0].value() + ledger.refill[1].value();
    const std::uint64_t hits = ledger.later_hits[0].value() + ledger.later_hits[1].value();
    const std::string later = hits == 0 ? "" : fmt::format(" + {} for hits in later levels", grouped(hits));
    text.fact("cycles", fmt::format("{} for {} misses, {} each by derivation{}; {} at {}", grouped(walks),
                                    grouped(ledger.misses.total()), each(walks, ledger.misses.total()), later,
                                    seconds(share.refill_seconds), megahertz(share.clock)));
}

// What made the cycles of a derived cost.
void paths_table(Text& text, const Ledger& ledger) {
    if (ledger.refill_paths.empty()) return;
    const bool software = ledger.machine.refill.handler.has_value();
    if (software) text.fact("handler", ledger.machine.refill.handler->title);
    text.row("refills by path", {"times", "cycles each", "table loads", "of them missed", "other misses"},
             true);
    for (const replay::PathTotals& path : ledger.refill_paths) {
        if (path.times == 0) continue;
        text.row(
            fmt::format("  {}", path.name),
            {grouped(path.times), each(path.cycles, path.times), each(path.table_loads, path.times),
             each(path.table_misses, path.times), each(path.other_misses + path.line_misses, path.times)});
    }
    if (ledger.fixed_refills > 0)
        text.row("  no table for it",
                 {grouped(ledger.fixed_refills), fmt::format("{}", ledger.machine.refill.cycles.value())});
    text.fact("tables",
              fmt::format("{} of page tables for the pages that missed", human_bytes(ledger.table_bytes)));
}

void costs(Text& text, const Replay& replay, const Ledger& ledger) {
    const Share share = share_of(ledger, replay.elapsed, replay.clock);
    if (ledger.machine.refill.derived)
        derived_cycles(text, ledger, share);
    else
        fixed_cycles(text, ledger, share);
    const double per_instruction = ledger.machine.clock.cycles_per_instruction;
    if (share.estimate)
        text.fact("share",
                  fmt::format("{:.1f} % of the run, by estimate: {} fetches x {:g} {} + refills; "
                              "--elapsed SECONDS gives the real one",
                              share.fraction * 100, grouped(ledger.references.of(Kind::kInstruction)),
                              per_instruction, per_instruction == 1 ? "cycle" : "cycles"));
    else
        text.fact("share", fmt::format("{:.1f} % of {} at {}", share.fraction * 100, seconds(*replay.elapsed),
                                       megahertz(share.clock)));
}

void one_ledger(Text& text, const Replay& replay, const Ledger& ledger) {
    four_lines(text, ledger);
    text.line();
    costs(text, replay, ledger);
    headings(text, replay, ledger);
    text.line();
    misses_table(text, ledger);
    references_table(text, ledger);
    arrays_table(text, ledger);
    pins_table(text, ledger);
    paths_table(text, ledger);
    modes_table(text, ledger);
    causes_table(text, ledger);
    if (ledger.notes.empty()) return;
    text.line();
    text.strong("notes");
    for (const std::string& note : ledger.notes) text.paragraph("  - ", note);
}

void comparison(Text& text, const Replay& replay) {
    text.row("machine", {"I user", "I kernel", "D user", "D kernel", "refill cycles"}, true);
    for (const Ledger& ledger : replay.ledgers) {
        const Counts& m = ledger.misses;
        text.row(ledger.machine.name,
                 {grouped(m.by_side(Kind::kInstruction, Side::kUser)),
                  grouped(m.by_side(Kind::kInstruction, Side::kKernel)),
                  grouped(m.by_side(Kind::kData, Side::kUser)),
                  grouped(m.by_side(Kind::kData, Side::kKernel)), grouped(ledger.refill_cycles().value())});
    }
}

}  // namespace

std::string as_text(const Replay& replay, bool color) {
    Text text(color);
    if (replay.ledgers.size() > 1) comparison(text, replay);
    for (const Ledger& ledger : replay.ledgers) {
        if (replay.ledgers.size() > 1) {
            text.line();
            text.strong("== " + ledger.machine.name);
        }
        one_ledger(text, replay, ledger);
    }
    return text.take();
}

}  // namespace tlbscope::report
