#include "report/diff_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/numbers.h"
#include "core/text.h"

namespace tlbscope::report {

namespace {

using Json = nlohmann::ordered_json;
using explain::DiffRow;

std::string strong(const std::string& text, bool color) {
    return (color ? "\033[1m" + text + "\033[0m" : text) + "\n";
}

std::int64_t difference(std::uint64_t a, std::uint64_t b) {
    return static_cast<std::int64_t>(b) - static_cast<std::int64_t>(a);
}

std::string with_sign(std::int64_t value) {
    return (value < 0 ? "-" : value > 0 ? "+" : "") + grouped(static_cast<std::uint64_t>(std::abs(value)));
}

std::string factor(std::uint64_t a, std::uint64_t b) {
    if (a == b) return {};
    if (a == 0) return "new";
    return fmt::format("x {:.2f}", static_cast<double>(b) / static_cast<double>(a));
}

std::string seconds(double amount) {
    const double size = std::abs(amount);
    if (size >= 0.1 || size == 0) return fmt::format("{:.3f} s", amount);
    if (size >= 1e-4) return fmt::format("{:.3f} ms", amount * 1e3);
    return fmt::format("{:.3f} us", amount * 1e6);
}

const char* name(Kind kind) { return kind == Kind::kInstruction ? "instruction" : "data"; }
const char* name(Side side) { return side == Side::kUser ? "user" : "kernel"; }

std::string line(const std::string& label, const std::string& a, const std::string& b,
                 const std::string& delta, const std::string& change) {
    std::string text = fmt::format("{:<24} {:>14} {:>14} {:>14}  {}", label, a, b, delta, change);
    while (text.ends_with(' ')) text.pop_back();
    return text + "\n";
}

// As the thread of 2005 had it, in the words of the kernel patch that counted.
std::string counters(const Diff& diff, bool color) {
    std::string out = strong(fmt::format("{:<24} {:>14} {:>14} {:>14}", "", "A", "B", "delta"), color);
    for (const Kind kind : replay::kKinds)
        for (const Side side : replay::kSides) {
            const auto k = static_cast<std::size_t>(kind);
            const auto s = static_cast<std::size_t>(side);
            const std::uint64_t a = diff.a.counters.misses[k][s];
            const std::uint64_t b = diff.b.counters.misses[k][s];
            out += line(fmt::format("{}-TLB {} misses:", kind == Kind::kInstruction ? "I" : "D",
                                    side == Side::kUser ? "userspace" : "kernel"),
                        fmt::format("{}", a), fmt::format("{}", b), fmt::format("{:+}", difference(a, b)),
                        factor(a, b));
        }
    const std::uint64_t a = diff.a.counters.total();
    const std::uint64_t b = diff.b.counters.total();
    out += line("all", fmt::format("{}", a), fmt::format("{}", b), fmt::format("{:+}", difference(a, b)),
                factor(a, b));
    return out;
}

std::string per_unit(const Diff& diff) {
    if (!diff.per) return {};
    std::string out = "\n";
    for (const Kind kind : replay::kKinds)
        for (const Side side : replay::kSides) {
            const auto k = static_cast<std::size_t>(kind);
            const auto s = static_cast<std::size_t>(side);
            const double a = static_cast<double>(diff.a.counters.misses[k][s]) / *diff.per;
            const double b = static_cast<double>(diff.b.counters.misses[k][s]) / *diff.per;
            out +=
                line(fmt::format("{} {}, per unit", kind == Kind::kInstruction ? "I" : "D", name(side)),
                     fmt::format("{:.2f}", a), fmt::format("{:.2f}", b), fmt::format("{:+.2f}", b - a), "");
        }
    return out + fmt::format("units of work: {:g}\n", *diff.per);
}

std::string cost(const Diff& diff) {
    const explain::Slowdown& s = diff.slowdown;
    std::string out = "\n";
    const auto paragraph = [&out](const std::string& title, const std::string& text) {
        out += wrapped(text, "           ", 100, fmt::format("{:<11}", title));
    };
    if (diff.a.cycles_per_miss == 0 || diff.b.cycles_per_miss == 0)
        paragraph(
            "cycles",
            fmt::format("A {}; B {}: {}, {} at {:g} MHz", grouped(static_cast<std::uint64_t>(diff.a.cycles)),
                        grouped(static_cast<std::uint64_t>(diff.b.cycles)),
                        with_sign(static_cast<std::int64_t>(s.cycles)), seconds(s.seconds), s.clock / 1e6));
    else if (diff.a.cycles_per_miss == diff.b.cycles_per_miss)
        paragraph(
            "cycles",
            fmt::format("{} misses x {} = {}, {} at {:g} MHz", with_sign(s.misses), diff.a.cycles_per_miss,
                        with_sign(static_cast<std::int64_t>(s.cycles)), seconds(s.seconds), s.clock / 1e6));
    else
        paragraph(
            "cycles",
            fmt::format("A {} x {} = {}; B {} x {} = {}: {}, {} at {:g} MHz",
                        grouped(diff.a.counters.total()), diff.a.cycles_per_miss,
                        grouped(static_cast<std::uint64_t>(diff.a.cycles)), grouped(diff.b.counters.total()),
                        diff.b.cycles_per_miss, grouped(static_cast<std::uint64_t>(diff.b.cycles)),
                        with_sign(static_cast<std::int64_t>(s.cycles)), seconds(s.seconds), s.clock / 1e6));
    if (!s.elapsed) return out;
    const std::string times = fmt::format("{} to {}", seconds(*diff.elapsed_a), seconds(*diff.elapsed_b));
    if (*s.elapsed <= 0) {
        paragraph("share",
                  fmt::format("B is no slower than A ({}), so there is no slowdown to explain", times));
        return out;
    }
    paragraph("share", fmt::format("{:.1f} % of the slowdown of {} ({}) are these refills", *s.share * 100,
                                   seconds(*s.elapsed), times));
    if (s.cycles_per_miss_all && *s.cycles_per_miss_all > 0)
        paragraph("", fmt::format("to explain all of it, each further miss would have to cost {:.0f} cycles",
                                  *s.cycles_per_miss_all));
    return out;
}

std::string table(const std::string& title, const std::vector<DiffRow>& rows, std::size_t most, bool color) {
    if (rows.empty()) return {};
    std::string out =
        "\n" + strong(fmt::format("{:<44} {:>12} {:>12} {:>12}", title, "A", "B", "delta"), color);
    const std::size_t shown = most == 0 ? rows.size() : std::min(most, rows.size());
    std::uint64_t a = 0;
    std::uint64_t b = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const DiffRow& row = rows[i];
        if (i < shown)
            out += fmt::format("{:<44} {:>12} {:>12} {:>12}\n",
                               row.name.name + (row.name.object.empty() ? "" : "  " + row.name.object),
                               grouped(row.a[0] + row.a[1]), grouped(row.b[0] + row.b[1]),
                               with_sign(row.delta()));
        if (i < shown) continue;
        a += row.a[0] + row.a[1];
        b += row.b[0] + row.b[1];
    }
    if (shown < rows.size())
        out += fmt::format("{:<44} {:>12} {:>12} {:>12}\n",
                           fmt::format("[{} others]", grouped(rows.size() - shown)), grouped(a), grouped(b),
                           with_sign(difference(a, b)));
    return out;
}

Json misses_json(const explain::FourCounters& counters) {
    Json json;
    for (const Kind kind : replay::kKinds)
        for (const Side side : replay::kSides)
            json[name(kind)][name(side)] =
                counters.misses[static_cast<std::size_t>(kind)][static_cast<std::size_t>(side)];
    return json;
}

Json side_json(const DiffSide& side) {
    if (!side.replay) return {{"file", side.label}, {"misses", misses_json(side.counters)}};
    Json json = Json::parse(as_json(*side.replay))["ledgers"][0];
    json["recording"] = side.replay->recording;
    return json;
}

Json rows_json(const std::vector<DiffRow>& rows, const char* what) {
    Json json = Json::array();
    for (const DiffRow& row : rows) {
        Json object{{what, row.name.name}};
        if (!row.name.object.empty()) object["object"] = row.name.object;
        object["a"] = {{"instruction", row.a[0]}, {"data", row.a[1]}};
        object["b"] = {{"instruction", row.b[0]}, {"data", row.b[1]}};
        object["delta"] = row.delta();
        json.push_back(std::move(object));
    }
    return json;
}

Json optional_json(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

std::string quoted(const std::string& text) {
    if (text.find_first_of(",\"") == std::string::npos) return text;
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"') out += '"';
        out += c;
    }
    return out + "\"";
}

}  // namespace

std::string as_text(const Diff& diff, bool color) {
    std::string out = fmt::format("A  {}\nB  {}\n\n", diff.a.label, diff.b.label);
    out += counters(diff, color) + per_unit(diff) + cost(diff);
    out += table("misses by function", diff.functions, diff.rows, color);
    out += table("misses by region", diff.regions, diff.rows, color);
    out += table("misses by page", diff.pages, diff.rows, color);
    if (!diff.notes.empty()) out += "\n" + strong("notes", color);
    for (const std::string& note : diff.notes) out += wrapped(note, "    ", 100, "  - ");
    return out;
}

std::string as_json(const Diff& diff) {
    Json json{{"schema", 1}, {"a", side_json(diff.a)}, {"b", side_json(diff.b)}};
    Json& delta = json["delta"];
    for (const Kind kind : replay::kKinds)
        for (const Side side : replay::kSides) {
            const auto k = static_cast<std::size_t>(kind);
            const auto s = static_cast<std::size_t>(side);
            delta["misses"][name(kind)][name(side)] =
                difference(diff.a.counters.misses[k][s], diff.b.counters.misses[k][s]);
        }
    const explain::Slowdown& s = diff.slowdown;
    delta["total"] = s.misses;
    delta["cycles"] = {{"refill", static_cast<std::int64_t>(s.cycles)}};
    delta["clock_hertz"] = s.clock;
    delta["refill_nanoseconds"] = s.seconds * 1e9;
    delta["elapsed_nanoseconds"] = s.elapsed ? Json(*s.elapsed * 1e9) : Json(nullptr);
    delta["share_of_slowdown"] = optional_json(s.elapsed && *s.elapsed > 0 ? s.share : std::nullopt);
    delta["cycles_per_miss_to_explain_all"] =
        optional_json(s.elapsed && *s.elapsed > 0 ? s.cycles_per_miss_all : std::nullopt);
    if (diff.per) {
        json["per"] = *diff.per;
        for (const Kind kind : replay::kKinds)
            for (const Side side : replay::kSides) {
                const auto k = static_cast<std::size_t>(kind);
                const auto at = static_cast<std::size_t>(side);
                json["per_unit"][name(kind)][name(side)] = {
                    {"a", static_cast<double>(diff.a.counters.misses[k][at]) / *diff.per},
                    {"b", static_cast<double>(diff.b.counters.misses[k][at]) / *diff.per}};
            }
    }
    json["functions"] = rows_json(diff.functions, "function");
    json["regions"] = rows_json(diff.regions, "region");
    json["pages"] = rows_json(diff.pages, "page");
    json["notes"] = diff.notes;
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string as_csv(const Diff& diff) {
    std::string out = "quantity,name,object,kind,side,a,b,delta\n";
    for (const Kind kind : replay::kKinds)
        for (const Side side : replay::kSides) {
            const auto k = static_cast<std::size_t>(kind);
            const auto s = static_cast<std::size_t>(side);
            const std::uint64_t a = diff.a.counters.misses[k][s];
            const std::uint64_t b = diff.b.counters.misses[k][s];
            out += fmt::format("misses,,,{},{},{},{},{}\n", name(kind), name(side), a, b, difference(a, b));
        }
    const auto rows = [&out](const char* what, const std::vector<DiffRow>& list) {
        for (const DiffRow& row : list)
            for (const Kind kind : replay::kKinds) {
                const auto k = static_cast<std::size_t>(kind);
                if (row.a[k] + row.b[k] == 0) continue;
                out += fmt::format("{},{},{},{},,{},{},{}\n", what, quoted(row.name.name),
                                   quoted(row.name.object), name(kind), row.a[k], row.b[k],
                                   difference(row.a[k], row.b[k]));
            }
    };
    rows("function", diff.functions);
    rows("region", diff.regions);
    rows("page", diff.pages);
    return out;
}

}  // namespace tlbscope::report
