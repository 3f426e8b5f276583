// tlbscope audit: the log of somebody's own kernel, checked for what cannot be right.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "core/numbers.h"
#include "import_text/input.h"
#include "tables/audit.h"

namespace tlbscope::cli {

namespace {

using Json = nlohmann::ordered_json;
using tables::Finding;

struct Options {
    std::string log;
    std::string page = "4K";
    bool switch_flushes = false;
    bool all = false;
    std::shared_ptr<Format> output = std::make_shared<Format>(Format::kText);
};

std::string finding_text(const std::string& name, const Finding& finding) {
    std::string text =
        fmt::format("{}:{}: {}: {}\n", name, finding.line, name_of(finding.fault), finding.what);
    if (finding.earlier != 0) text += fmt::format("{}:{}: {}\n", name, finding.earlier, finding.contradicts);
    return text;
}

Result<Exit> run(const Options& options, Console& console) {
    const std::uint64_t page = parse_size(options.page);
    if (page == 0 || (page & (page - 1)) != 0)
        return usage_error(fmt::format("--page {} is no power of two", options.page),
                           "for example --page 4K");
    auto input = import::Input::open(options.log);
    if (!input) return std::unexpected(input.error());
    const std::string name = input->name();
    import::Lines lines(std::move(*input));
    tables::Auditor auditor({.switch_flushes = options.switch_flushes, .page = page});
    std::string damage;
    for (;;) {
        const auto line = lines.next();
        if (!line) {
            if (lines.number() == 0) return std::unexpected(line.error());
            damage = line.error().what;
            break;
        }
        if (!*line) break;
        auditor.line(**line, lines.number());
    }
    auditor.finish();
    for (const std::string& note : auditor.problems().notes(name)) console.note(note);
    if (!damage.empty()) console.note(fmt::format("{}: {}", name, damage));
    if (auditor.events() == 0)
        return fail(name, "there is no event in it",
                    "docs/audit-log.md describes the log; a kernel prints lines like: alloc 0x80203000");

    const auto& findings = auditor.findings();
    std::string text;
    if (*options.output == Format::kJson) {
        Json json{{"schema", 1},
                  {"log", name},
                  {"events", auditor.events()},
                  {"found", auditor.found()},
                  {"tables_left", auditor.tables_left()},
                  {"unmapped_accesses", auditor.unmapped_accesses()},
                  {"lines_left_out", auditor.problems().total()},
                  {"findings", Json::array()}};
        for (const Finding& finding : findings) {
            Json one{{"line", finding.line}, {"fault", name_of(finding.fault)}, {"what", finding.what}};
            if (finding.earlier != 0) {
                one["earlier"] = finding.earlier;
                one["contradicts"] = finding.contradicts;
            }
            json["findings"].push_back(std::move(one));
        }
        text = json.dump(2) + "\n";
    } else if (*options.output == Format::kCsv) {
        text = "line,fault,earlier,what,contradicts\n";
        for (const Finding& finding : findings)
            text += fmt::format("{},{},{},\"{}\",\"{}\"\n", finding.line, name_of(finding.fault),
                                finding.earlier == 0 ? "" : std::to_string(finding.earlier), finding.what,
                                finding.contradicts);
    } else {
        if (findings.empty()) {
            text = fmt::format("{}: {} events, nothing wrong\n", name, grouped(auditor.events()));
        } else {
            text = finding_text(name, findings.front());
            if (options.all)
                for (std::size_t n = 1; n < findings.size(); ++n) text += finding_text(name, findings[n]);
            text +=
                fmt::format("{} wrong in {} events\n", grouped(auditor.found()), grouped(auditor.events()));
        }
        text += fmt::format("{} tables are allocated at the end; {} accesses met no mapping\n",
                            grouped(auditor.tables_left()), grouped(auditor.unmapped_accesses()));
    }
    if (auto done = console.print(text); !done) return std::unexpected(done.error());
    if (*options.output == Format::kText && !options.all && findings.size() > 1)
        console.suggest(
            fmt::format("tlbscope audit {} --all    all {} findings", options.log, grouped(auditor.found())));
    return findings.empty() ? Exit::kOk : Exit::kFailure;
}

}  // namespace

Command audit_command() {
    return {
        .name = "audit",
        .summary = "check a kernel's own log of page-table and TLB events",
        .examples =
            "  tlbscope audit serial.log                    the first event that went wrong, and what it "
            "contradicts\n"
            "  tlbscope audit serial.log --all --json       all of them\n"
            "  tlbscope audit serial.log --switch-flushes   of a machine without address-space identifiers\n",
        .declare = [](CLI::App& app, Console& console) -> Run {
            auto options = std::make_shared<Options>();
            app.add_option("log", options->log, "the log (docs/audit-log.md), - for standard input")
                ->required()
                ->option_text("LOG");
            app.add_option("--page", options->page, "bytes of a mapping that says none (default: 4K)")
                ->type_name("SIZE");
            app.add_flag("--switch-flushes", options->switch_flushes,
                         "a switch of space drops every translation but those of space *");
            app.add_flag("--all", options->all, "print every finding, not just the first");
            add_format_options(app, options->output);
            return [options, &console] { return run(*options, console); };
        }};
}

}  // namespace tlbscope::cli
