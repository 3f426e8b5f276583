#include "report/order_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/numbers.h"
#include "core/text.h"

namespace tlbscope::report {

namespace {

using Json = nlohmann::ordered_json;
using layout::MethodResult;
using layout::Misses;

std::string change(std::uint64_t before, std::uint64_t after) {
    if (before == 0) return "-";
    return fmt::format("{:+.1f} %", (static_cast<double>(after) / static_cast<double>(before) - 1) * 100);
}

Misses sum(const std::vector<Misses>& list) {
    Misses total;
    for (const Misses& m : list) {
        total.image += m.image;
        total.other += m.other;
    }
    return total;
}

std::string strong(const std::string& text, bool color) {
    return color ? "\033[1m" + text + "\033[0m" : text;
}

const char* word(Kind kind) { return kind == Kind::kInstruction ? "instruction" : "data"; }

std::string source_words(const layout::Image& image) {
    switch (image.source) {
        case layout::ImageSource::kLinkMap:
            return "sections from its link map";
        case layout::ImageSource::kObjects:
            return "sections from its object files";
        case layout::ImageSource::kSymbols:
            break;
    }
    return image.what == layout::What::kText ? "a section per function taken for granted"
                                             : "a section per object taken for granted";
}

std::string sizes(std::uint64_t bytes) { return human_bytes(bytes); }

}  // namespace

std::string as_text(const OrderReport& report, bool color) {
    const layout::Ordering& ordering = *report.ordering;
    const MethodResult& chosen = ordering.methods[ordering.chosen];
    const MethodResult& linked = ordering.methods.front();
    const Misses before = sum(linked.trained);
    const Misses after = sum(chosen.trained);
    const char* code = report.image->what == layout::What::kText ? "code" : "data";
    std::string out =
        strong(fmt::format("{}: {} {} misses on {} where {} as linked ({})", name_of(chosen.method),
                           grouped(after.total()), word(report.kind), report.machine, grouped(before.total()),
                           change(before.total(), after.total())),
               color) +
        "\n\n";
    const bool tests = !report.tests.empty();
    std::string head = fmt::format("{:<14} {:>14} {:>14} {:>14} {:>12}", "method", "misses", "of the image",
                                   fmt::format("other {}", code), "as linked");
    if (tests) head += fmt::format(" {:>14} {:>12}", "misses unseen", "as linked");
    out += strong(head, color) + "\n";
    for (const MethodResult& result : ordering.methods) {
        const Misses trained = sum(result.trained);
        out += fmt::format("{:<14} {:>14} {:>14} {:>14} {:>12}", name_of(result.method),
                           grouped(trained.total()), grouped(trained.image), grouped(trained.other),
                           &result == &linked ? "" : change(before.total(), trained.total()));
        if (tests) {
            const Misses tested = sum(result.tested);
            out += fmt::format(" {:>14} {:>12}", grouped(tested.total()),
                               &result == &linked ? "" : change(sum(linked.tested).total(), tested.total()));
        }
        while (out.ends_with(' ')) out.pop_back();
        out += "\n";
    }
    out += "\n";
    const auto fact = [&](const std::string& name, const std::string& text) {
        out += wrapped(text, std::string(11, ' '), 100, fmt::format("{:<10} ", name));
    };
    for (std::size_t i = 0; i < report.recordings.size(); ++i)
        fact(i == 0 ? "learnt on" : "",
             report.weights[i] == 1
                 ? report.recordings[i]
                 : fmt::format("{} (weight {:g})", report.recordings[i], report.weights[i]));
    for (std::size_t i = 0; i < report.tests.size(); ++i) fact(i == 0 ? "unseen" : "", report.tests[i]);
    fact("machine", fmt::format("{}: {}", report.machine, report.geometry));
    fact("image", fmt::format("{} ({}, {})", report.image->path,
                              report.image->machine.empty() ? "kernel symbols" : report.image->machine,
                              source_words(*report.image)));
    fact("moves", fmt::format("{} of the {} pieces touched, {} (of which {} were touched)",
                              grouped(ordering.movable_pieces), grouped(ordering.touched_pieces),
                              sizes(ordering.movable_size), sizes(ordering.movable_bytes)));
    fact("pages", fmt::format("{} of the image touched, {} as linked; no order needs fewer than {}",
                              grouped(ordering.image_pages), grouped(ordering.image_pages_linked),
                              grouped((ordering.touched_bytes + (1U << 12) - 1) >> 12)));
    std::uint64_t bound = 0;
    for (const layout::Bound& b : ordering.bounds) bound += b.misses();
    fact("at least", fmt::format("{} misses in any order of these pieces", grouped(bound)));
    fact("cold", fmt::format("{} inside touched {} never {}: the ceiling of any order{}",
                             sizes(ordering.cold_bytes_inside),
                             report.image->what == layout::What::kText ? "functions" : "objects",
                             report.image->what == layout::What::kText ? "ran" : "accessed",
                             report.image->what == layout::What::kText
                                 ? "; splitting functions (BOLT, -fprofile-use) takes it out"
                                 : ""));
    bool any = false;
    for (std::size_t i = 1; i < layout::kStays; ++i) any = any || ordering.stayed[i].pieces > 0;
    if (any || ordering.other_misses > 0) {
        out += "\n" +
               strong(fmt::format("{:<58} {:>8} {:>12} {:>14}", "stays where it is", "pieces", "touched",
                                  "misses left"),
                      color) +
               "\n";
        for (std::size_t i = 1; i < layout::kStays; ++i) {
            const layout::Stayed& stayed = ordering.stayed[i];
            if (stayed.pieces == 0) continue;
            std::string reason(why(static_cast<layout::Stays>(i)));
            std::string first = reason;
            std::string second;
            if (const std::size_t paren = reason.find(" (");
                reason.size() > 58 && paren != std::string::npos) {
                first = reason.substr(0, paren);
                second = reason.substr(paren + 1);
            }
            out += fmt::format("{:<58} {:>8} {:>12} {:>14}\n", first, grouped(stayed.pieces),
                               sizes(stayed.touched_bytes), grouped(stayed.misses));
            if (!second.empty()) out += "  " + second + "\n";
            if (stayed.most.empty()) continue;
            std::string names;
            for (const auto& [name, misses] : stayed.most)
                names += fmt::format("{}{} {}", names.empty() ? "" : ", ", name, grouped(misses));
            out += wrapped(names, "  ", 100, "  ");
        }
        if (ordering.other_misses > 0)
            out += fmt::format("{:<58} {:>8} {:>12} {:>14}\n",
                               report.image->kernel
                                   ? fmt::format("other {} (programs, libraries)", code)
                                   : fmt::format("other {} (shared libraries, interpreter)", code),
                               "", "", grouped(ordering.other_misses));
    }
    if (!report.notes.empty()) {
        out += "\n" + strong("notes", color) + "\n";
        for (const std::string& note : report.notes) out += wrapped(note, "    ", 100, "  - ");
    }
    if (!report.output.empty()) {
        out += "\n" + fmt::format("{} written for {}\n", report.output, report.format);
        out += fmt::format("use: {}\n", report.use);
    }
    return out;
}

std::string as_json(const OrderReport& report) {
    const layout::Ordering& ordering = *report.ordering;
    const auto misses_of = [](const std::vector<Misses>& list) {
        Json json = Json::array();
        for (const Misses& m : list)
            json.push_back({{"misses", m.total()}, {"image", m.image}, {"other", m.other}});
        return json;
    };
    Json json{{"schema", 1}, {"machine", report.machine}, {"kind", word(report.kind)}};
    json["trained_on"] = report.recordings;
    json["weights"] = report.weights;
    json["tested_on"] = report.tests;
    json["image"] = {{"path", report.image->path},
                     {"build_id", report.image->build_id},
                     {"sections", source_words(*report.image)}};
    json["linker"] = name_of(report.linker);
    json["format"] = report.format;
    json["methods"] = Json::array();
    for (const MethodResult& result : ordering.methods) {
        Json method{{"method", name_of(result.method)},
                    {"misses", sum(result.trained).total()},
                    {"image_misses", sum(result.trained).image},
                    {"other_misses", sum(result.trained).other},
                    {"by_recording", misses_of(result.trained)}};
        if (!result.tested.empty()) {
            method["tested_misses"] = sum(result.tested).total();
            method["tested_image_misses"] = sum(result.tested).image;
            method["by_test"] = misses_of(result.tested);
        }
        json["methods"].push_back(std::move(method));
    }
    json["chosen"] = name_of(ordering.methods[ordering.chosen].method);
    std::uint64_t bound = 0;
    for (const layout::Bound& b : ordering.bounds) bound += b.misses();
    json["least_misses_of_any_order"] = bound;
    json["orders_tried"] = ordering.tried;
    json["stopped"] = ordering.stopped;
    json["touched_pieces"] = ordering.touched_pieces;
    json["movable_pieces"] = ordering.movable_pieces;
    json["movable_bytes"] = ordering.movable_size;
    json["touched_bytes"] = ordering.touched_bytes;
    json["pages"] = {{"as_linked", ordering.image_pages_linked}, {"ordered", ordering.image_pages}};
    json["immovable"] = Json::array();
    for (std::size_t i = 1; i < layout::kStays; ++i) {
        const layout::Stayed& stayed = ordering.stayed[i];
        if (stayed.pieces == 0) continue;
        Json most = Json::array();
        for (const auto& [name, misses] : stayed.most) most.push_back({{"name", name}, {"misses", misses}});
        json["immovable"].push_back({{"why", why(static_cast<layout::Stays>(i))},
                                     {"pieces", stayed.pieces},
                                     {"touched_bytes", stayed.touched_bytes},
                                     {"misses", stayed.misses},
                                     {"most", most}});
    }
    json["other_misses"] = ordering.other_misses;
    json["cold_bytes_inside"] = ordering.cold_bytes_inside;
    json["real_pages"] = Json::array();
    for (const OrderReport::RealPages& real : report.real_pages)
        json["real_pages"].push_back({{"page", real.size}, {"before", real.before}, {"after", real.after}});
    json["notes"] = report.notes;
    json["output"] = report.output;
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string as_csv(const OrderReport& report) {
    std::string out = "method,misses,image_misses,other_misses,tested_misses,tested_image_misses,chosen\n";
    const layout::Ordering& ordering = *report.ordering;
    for (std::size_t i = 0; i < ordering.methods.size(); ++i) {
        const MethodResult& result = ordering.methods[i];
        const Misses trained = sum(result.trained);
        const Misses tested = sum(result.tested);
        out += fmt::format("{},{},{},{},", name_of(result.method), trained.total(), trained.image,
                           trained.other);
        out += result.tested.empty() ? "," : fmt::format("{},{}", tested.total(), tested.image);
        out += fmt::format(",{}\n", i == ordering.chosen ? 1 : 0);
    }
    return out;
}

}  // namespace tlbscope::report
