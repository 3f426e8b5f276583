#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/numbers.h"
#include "core/text.h"
#include "report/order_report.h"

namespace tlbscope::report {

namespace {

using Json = nlohmann::ordered_json;
using replay::Ledger;

std::string change(std::uint64_t before, std::uint64_t after) {
    if (before == 0) return "-";
    return fmt::format("{:+.1f} %", (static_cast<double>(after) / static_cast<double>(before) - 1) * 100);
}

std::string strong(const std::string& text, bool color) {
    return color ? "\033[1m" + text + "\033[0m" : text;
}

std::string seen_words(const ProofReport& report) {
    switch (report.seen) {
        case ProofReport::Seen::kSeen:
            return "the order was made from this recording: what it gains on runs like it, not on others";
        case ProofReport::Seen::kUnseen:
            return "the order has not seen this recording";
        case ProofReport::Seen::kUnknown:
            break;
    }
    return "the order does not say what it was made from, so it may have seen this recording";
}

const char* name(Kind kind) { return kind == Kind::kInstruction ? "instruction" : "data"; }
const char* name(Side side) { return side == Side::kUser ? "user" : "kernel"; }
const char* name(Mode mode) { return mode == Mode::kUser ? "user" : "kernel"; }

Json ledger_json(const layout::ProofSide& side) {
    const Ledger& ledger = side.ledger;
    Json json{{"machine", ledger.machine.name}, {"mapping", ledger.mapping}};
    for (const Kind kind : replay::kKinds)
        for (const Side s : replay::kSides) {
            json["references"][name(kind)][name(s)] = ledger.references.by_side(kind, s);
            json["misses"][name(kind)][name(s)] = ledger.misses.by_side(kind, s);
        }
    for (const Mode mode : replay::kModes)
        for (const Kind kind : replay::kKinds)
            json["by_mode"][name(mode)]["misses"][name(kind)] = ledger.misses.by_mode(kind, mode);
    json["image_misses"] = side.image_misses;
    json["image_pages"] = side.image_pages;
    json["cycles"] = {{"refill", ledger.refill_cycles().value()}};
    return json;
}

}  // namespace

std::string as_text(const ProofReport& report, bool color) {
    const layout::Proof& proof = *report.proof;
    const Ledger& before = proof.before.ledger;
    const Ledger& after = proof.after.ledger;
    const Kind kind = report.image->what == layout::What::kText ? Kind::kInstruction : Kind::kData;
    std::string out = strong(fmt::format("{} misses on {}: {} -> {} ({})", name(kind), before.machine.name,
                                         grouped(before.misses.of(kind)), grouped(after.misses.of(kind)),
                                         change(before.misses.of(kind), after.misses.of(kind))),
                             color) +
                      "\n\n";
    const auto head = [&](const std::string& text) {
        out += strong(fmt::format("{:<34} {:>14} {:>14} {:>12}", text, "as linked", "ordered", "change"),
                      color) +
               "\n";
    };
    const auto row = [&](const std::string& text, std::uint64_t a, std::uint64_t b) {
        out +=
            fmt::format("{:<34} {:>14} {:>14} {:>12}\n", "  " + text, grouped(a), grouped(b), change(a, b));
    };
    head("misses");
    for (const Kind k : replay::kKinds)
        for (const Side s : replay::kSides) {
            if (before.references.by_side(k, s) == 0) continue;
            row(fmt::format("{}, {} side", name(k), name(s)), before.misses.by_side(k, s),
                after.misses.by_side(k, s));
        }
    for (const Mode m : replay::kModes) {
        if (before.references.by_mode(kind, m) == 0) continue;
        row(fmt::format("{}, {} code running", name(kind), name(m)), before.misses.by_mode(kind, m),
            after.misses.by_mode(kind, m));
    }
    row("of the image's pages", proof.before.image_misses, proof.after.image_misses);
    row("refill cycles", before.refill_cycles().value(), after.refill_cycles().value());
    out += "\n";
    head("reach");
    const std::uint64_t page = before.machine.pages.base.bytes();
    row("pages of the image touched", proof.before.image_pages, proof.after.image_pages);
    out +=
        fmt::format("{:<34} {:>14} {:>14}\n", "  bytes of them", human_bytes(proof.before.image_pages * page),
                    human_bytes(proof.after.image_pages * page));
    if (!report.paths.empty()) {
        out += "\n" +
               strong(fmt::format("{:<24} {:>10} {:>12} {:>12} {:>17} {:>15} {:>15}", "path", "calls",
                                  "misses", "ordered", "pages per call", "ordered", "reach ordered"),
                      color) +
               "\n";
        for (std::size_t i = 0; i < report.paths.size(); ++i) {
            const layout::PathCost& a = proof.before.paths[i];
            const layout::PathCost& b = proof.after.paths[i];
            const std::uint64_t calls = proof.calls[i];
            const auto pages = [&](const layout::PathCost& cost) {
                if (calls == 0) return std::string("-");
                return fmt::format("{:.1f} (<= {})",
                                   static_cast<double>(cost.pages) / static_cast<double>(calls),
                                   cost.most_pages);
            };
            out += fmt::format("{:<24} {:>10} {:>12} {:>12} {:>17} {:>15} {:>15}\n", report.paths[i].text,
                               grouped(calls), grouped(a.misses), grouped(b.misses), pages(a), pages(b),
                               human_bytes(b.most_pages * page));
        }
    }
    out += "\n";
    const auto fact = [&](const std::string& key, const std::string& text) {
        out += wrapped(text, std::string(11, ' '), 100, fmt::format("{:<10} ", key));
    };
    fact("tested on", fmt::format("{}: {}", report.recording, seen_words(report)));
    for (std::size_t i = 0; i < report.trained_on.size(); ++i)
        fact(i == 0 ? "learnt on" : "", report.trained_on[i]);
    fact("order", fmt::format("{}: moves {} of {} as {} would{}", report.order, grouped(report.listed),
                              report.image->path, name_of(report.linker),
                              report.missing == 0
                                  ? ""
                                  : fmt::format("; {} of its names are not there", grouped(report.missing))));
    if (!report.notes.empty()) {
        out += "\n" + strong("notes", color) + "\n";
        for (const std::string& note : report.notes) out += wrapped(note, "    ", 100, "  - ");
    }
    return out;
}

std::string as_json(const ProofReport& report) {
    const layout::Proof& proof = *report.proof;
    Json json{{"schema", 1}};
    json["trained_on"] = report.trained_on;
    json["tested_on"] = Json::array({report.recording});
    json["seen"] = report.seen == ProofReport::Seen::kUnknown ? Json(nullptr)
                                                              : Json(report.seen == ProofReport::Seen::kSeen);
    json["order"] = report.order;
    json["linker"] = name_of(report.linker);
    json["listed"] = report.listed;
    json["missing"] = report.missing;
    json["before"] = ledger_json(proof.before);
    json["after"] = ledger_json(proof.after);
    json["paths"] = Json::array();
    for (std::size_t i = 0; i < report.paths.size(); ++i) {
        const auto side = [&](const layout::PathCost& cost) {
            return Json{{"misses", cost.misses},
                        {"pages",
                         {{"mean", proof.calls[i] == 0 ? Json(nullptr)
                                                       : Json(static_cast<double>(cost.pages) /
                                                              static_cast<double>(proof.calls[i]))},
                          {"max", cost.most_pages}}}};
        };
        json["paths"].push_back({{"path", report.paths[i].text},
                                 {"calls", proof.calls[i]},
                                 {"before", side(proof.before.paths[i])},
                                 {"after", side(proof.after.paths[i])}});
    }
    json["notes"] = report.notes;
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string as_csv(const ProofReport& report) {
    const layout::Proof& proof = *report.proof;
    std::string out = "what,before,after\n";
    const auto row = [&](const std::string& text, std::uint64_t a, std::uint64_t b) {
        out += fmt::format("{},{},{}\n", text, a, b);
    };
    for (const Kind k : replay::kKinds)
        for (const Side s : replay::kSides)
            row(fmt::format("{}_{}", name(k), name(s)), proof.before.ledger.misses.by_side(k, s),
                proof.after.ledger.misses.by_side(k, s));
    row("image", proof.before.image_misses, proof.after.image_misses);
    row("image_pages", proof.before.image_pages, proof.after.image_pages);
    for (std::size_t i = 0; i < report.paths.size(); ++i)
        row("path:" + report.paths[i].text, proof.before.paths[i].misses, proof.after.paths[i].misses);
    return out;
}

}  // namespace tlbscope::report
