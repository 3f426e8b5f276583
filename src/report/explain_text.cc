// Rows within rows as an indented table, with the causes of all misses above it.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/numbers.h"
#include "core/text.h"
#include "report/explain_report.h"

namespace tlbscope::report {

namespace {

using explain::Dimension;
using explain::Row;

std::string share(std::uint64_t misses, std::uint64_t all) {
    if (all == 0) return "-";
    return fmt::format("{:.2f} %", static_cast<double>(misses) * 100 / static_cast<double>(all));
}

class Table {
  public:
    Table(const Explanation& explanation, bool color)
        : all_(explanation.breakdown.ledger.misses.total()),
          cycles_(explanation.breakdown.ledger.machine.refill.cycles),
          color_(color) {}

    void heading(const std::vector<Dimension>& by) {
        std::vector<std::string> names;
        names.reserve(by.size());
        for (const Dimension dimension : by) names.emplace_back(name_of(dimension));
        strong(fmt::format("{:>13} {:>9} {:>15}  {}", "misses", "share", "cycles", fmt::join(names, " > ")));
    }
    void rows(const std::vector<Row>& rows, std::size_t level) {
        for (const Row& row : rows) {
            std::string label = std::string(level * 2, ' ') + row.label;
            if (!row.object.empty() && row.object != row.label)
                label += fmt::format("  {}", row.object == "[kernel]" || row.object == "[unknown]"
                                                 ? row.object
                                                 : "[" + base_name(row.object) + "]");
            line(row.misses, label);
            this->rows(row.rows, level + 1);
        }
    }
    void line(std::uint64_t misses, const std::string& label) {
        out_ += fmt::format("{:>13} {:>9} {:>15}  {}\n", grouped(misses), share(misses, all_),
                            grouped((cycles_ * misses).value()), label);
    }
    void strong(const std::string& text) { out_ += (color_ ? "\033[1m" + text + "\033[0m" : text) + "\n"; }
    void plain(const std::string& text) { out_ += text + "\n"; }
    void paragraph(const std::string& bullet, const std::string& text) {
        out_ += wrapped(text, std::string(bullet.size(), ' '), 100, bullet);
    }
    [[nodiscard]] std::string take() { return std::move(out_); }

  private:
    static std::string base_name(const std::string& path) {
        const std::size_t slash = path.rfind('/');
        return slash == std::string::npos || slash + 1 == path.size() ? path : path.substr(slash + 1);
    }

    std::uint64_t all_;
    Cycles cycles_;
    bool color_;
    std::string out_;
};

}  // namespace

std::string as_text(const Explanation& explanation, bool color) {
    const explain::Breakdown& breakdown = explanation.breakdown;
    const replay::Ledger& ledger = breakdown.ledger;
    Table table(explanation, color);
    table.strong(fmt::format("{} misses on {}, {} refill cycles", grouped(ledger.misses.total()),
                             ledger.machine.name, grouped(ledger.refill_cycles().value())));
    std::vector<std::string> causes;
    for (const replay::Cause cause : replay::kCauses) {
        const std::uint64_t misses = (*ledger.causes)[0][cause] + (*ledger.causes)[1][cause];
        if (misses > 0)
            causes.push_back(fmt::format("{} {} ({})", name_of(cause), grouped(misses),
                                         share(misses, ledger.misses.total())));
    }
    if (!causes.empty()) table.paragraph("causes     ", fmt::format("{}", fmt::join(causes, ", ")));
    table.plain(fmt::format("recording  {}: {}", explanation.recording,
                            fmt::join(explanation.metadata.command, " ")));
    if (const std::string changes = ledger.machine.changes_text(); !changes.empty())
        table.plain("changed    " + changes);
    if (!breakdown.filters.empty())
        table.plain(fmt::format("filter     {}: {} of the misses match",
                                fmt::join(breakdown.filters, " and "), grouped(breakdown.matched)));
    table.plain("");
    table.heading(breakdown.by);
    table.rows(breakdown.rows, 0);
    table.line(breakdown.matched, breakdown.filters.empty() ? "total" : "total of these");
    if (!ledger.notes.empty()) {
        table.plain("");
        table.strong("notes");
        for (const std::string& note : ledger.notes) table.paragraph("  - ", note);
    }
    return table.take();
}

}  // namespace tlbscope::report
