// Steps through a run: for each touch what it was, why it missed, and the set before and after it.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/text.h"
#include "report/explain_report.h"

namespace tlbscope::report {

namespace {

using Json = nlohmann::ordered_json;
using explain::Held;
using explain::Step;
using explain::Touch;
using replay::Cause;

std::string hex(std::uint64_t address) { return fmt::format("{:#010x}", address); }

std::string code(const explain::Function& function, std::uint64_t instruction) {
    const std::size_t slash = function.object.rfind('/');
    const std::string object =
        slash == std::string::npos ? function.object : function.object.substr(slash + 1);
    return fmt::format("{} [{}] at {}", function.name,
                       object.starts_with('[') ? object.substr(1, object.size() - 2) : object,
                       hex(instruction));
}

const char* word(const Touch& touch) {
    if (touch.kind == Kind::kInstruction) return "fetch";
    return touch.store ? "store" : "load";
}

const char* name(Side side) { return side == Side::kUser ? "user" : "kernel"; }
const char* name(Mode mode) { return mode == Mode::kUser ? "user" : "kernel"; }
const char* name(Kind kind) { return kind == Kind::kInstruction ? "instruction" : "data"; }

class Words {
  public:
    explicit Words(const Stepping& stepping)
        : metadata_(stepping.metadata), machine_(stepping.machine), shift_(stepping.machine.pages.base) {}

    [[nodiscard]] std::string page(std::uint64_t number) const { return hex(number << shift_.value()); }
    [[nodiscard]] std::string space(std::uint32_t id) const { return explain::space_label(metadata_, id); }
    [[nodiscard]] const machine::TlbGeometry& geometry(const Step& step) const {
        return machine_.tlb(step.touch.kind).geometry;
    }
    [[nodiscard]] std::string geometry_text(const Step& step) const {
        const machine::TlbGeometry& g = geometry(step);
        return fmt::format("{} entries, {}, {}", g.entries,
                           g.ways == g.entries ? "fully associative" : fmt::format("{}-way", g.ways),
                           name_of(g.replacement));
    }

    // Why it missed, in a sentence.
    [[nodiscard]] std::string why(const Step& step) const {
        const machine::TlbGeometry& g = geometry(step);
        const std::string any =
            fmt::format("an LRU array of {} entries that any page can use", g.usable() * g.sets());
        std::string text;
        switch (*step.cause) {
            case Cause::kCompulsory:
                return "this array never looked this page up before";
            case Cause::kInvalidated:
                return fmt::format("last used by touch {}; the switch to {} before touch {} removed it",
                                   step.loss->used, space(step.loss->to_space), step.loss->by.number);
            case Cause::kCapacity:
                text = fmt::format("{} misses too", any);
                break;
            case Cause::kConflict:
                text =
                    fmt::format("{} would hit, {} sets of {} do not even under LRU", any, g.sets(), g.ways);
                break;
            case Cause::kReplacement:
                text = fmt::format("the same array under LRU would hit");
                break;
        }
        const Step::Loss& loss = *step.loss;
        if (loss.invalidated)
            return fmt::format("last used by touch {}; the switch to {} before touch {} removed it; {}",
                               loss.used, space(loss.to_space), loss.by.number, text);
        return fmt::format("last used by touch {}; touch {} ({} of page {} by {}) replaced it; {}", loss.used,
                           loss.by.number, word(loss.by), page(loss.by.page),
                           code(loss.function, loss.by.instruction), text);
    }

  private:
    const recording::Metadata& metadata_;
    const machine::Machine& machine_;
    PageShift shift_;
};

std::string held_text(const std::optional<Held>& held, const Words& words) {
    if (!held) return fmt::format("{:<18} {:<16} {:>14} {:>14}", "empty", "", "", "");
    return fmt::format("{:<18} {:<16} {:>14} {:>14}", words.page(held->translation.page),
                       words.space(held->translation.space), held->loaded, held->used);
}

bool same(const std::optional<Held>& a, const std::optional<Held>& b) {
    return a.has_value() == b.has_value() && (!a || a->translation == b->translation);
}

void append(std::string& out, const Step& step, const Words& words, bool color) {
    const Touch& touch = step.touch;
    const std::string head =
        fmt::format("touch {}: {} of {} {} at {}, page {}", touch.number, word(touch), touch.bytes,
                    touch.bytes == 1 ? "byte" : "bytes", hex(touch.address), words.page(touch.page));
    out += (color ? "\033[1m" + head + "\033[0m" : head) + "\n";
    out += fmt::format("  by {}, mode {}, side {}, space {}, CPU {}, block execution {}\n",
                       code(step.function, touch.instruction), name(touch.mode), name(touch.side),
                       words.space(touch.space), touch.cpu.value(), touch.execution);
    if (step.cause)
        out += wrapped(words.why(step), "    ", 100, fmt::format("  miss, {}: ", name_of(*step.cause)));
    else
        out += fmt::format("  hit in way {}\n", step.way);
    out += fmt::format("  {} array: {}; set {} of {}\n", name(touch.kind), words.geometry_text(step),
                       step.set, words.geometry(step).sets());
    std::string line =
        fmt::format("    {:>4} {:<18} {:<16} {:>14} {:>14}", "way", "page", "space", "loaded", "last used");
    out += line + "\n";
    for (std::size_t way = 0; way < step.before.size(); ++way) {
        line = fmt::format("  {} {:>4} {}", way == step.way ? ">" : " ", way,
                           held_text(step.before[way], words));
        if (way == step.way && !same(step.before[way], step.after[way]))
            line += "  becomes " + words.page(step.after[way]->translation.page);
        while (line.ends_with(' ')) line.pop_back();
        out += line + "\n";
    }
}

Json json_of(const std::vector<std::optional<Held>>& ways, const Words& words) {
    Json list = Json::array();
    for (const std::optional<Held>& held : ways) {
        if (!held) {
            list.push_back(nullptr);
            continue;
        }
        list.push_back({{"page", words.page(held->translation.page)},
                        {"space", words.space(held->translation.space)},
                        {"loaded", held->loaded},
                        {"used", held->used}});
    }
    return list;
}

Json json_of(const Touch& touch, const explain::Function& function, const Words& words) {
    return {{"touch", touch.number},          {"kind", name(touch.kind)},
            {"access", word(touch)},          {"mode", name(touch.mode)},
            {"side", name(touch.side)},       {"space", words.space(touch.space)},
            {"cpu", touch.cpu.value()},       {"execution", touch.execution},
            {"address", hex(touch.address)},  {"bytes", touch.bytes},
            {"page", words.page(touch.page)}, {"instruction", hex(touch.instruction)},
            {"function", function.name},      {"object", function.object}};
}

}  // namespace

std::string as_text(const Stepping& stepping, bool color) {
    const Words words(stepping);
    std::string out;
    for (const Step& step : stepping.steps.steps) {
        if (!out.empty()) out += "\n";
        append(out, step, words, color);
    }
    if (stepping.steps.more) out += "\nmore follow; -n shows another number of them, -n 0 all\n";
    return out;
}

std::string as_json(const Stepping& stepping) {
    const Words words(stepping);
    Json json{{"schema", 1}, {"recording", stepping.recording}, {"machine", stepping.machine.name}};
    json["steps"] = Json::array();
    for (const Step& step : stepping.steps.steps) {
        Json one = json_of(step.touch, step.function, words);
        one["hit"] = !step.cause.has_value();
        one["cause"] = step.cause ? Json(name_of(*step.cause)) : Json(nullptr);
        one["set"] = step.set;
        one["way"] = step.way;
        one["before"] = json_of(step.before, words);
        one["after"] = json_of(step.after, words);
        if (step.loss) {
            Json& lost = one["lost"];
            lost["used"] = step.loss->used;
            if (step.loss->invalidated) {
                lost["before_touch"] = step.loss->by.number;
                lost["switch_to"] = words.space(step.loss->to_space);
            } else {
                lost["replaced_by"] = json_of(step.loss->by, step.loss->function, words);
            }
        }
        json["steps"].push_back(std::move(one));
    }
    json["more"] = stepping.steps.more;
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tlbscope::report
