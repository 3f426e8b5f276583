// tlbscope decode: debugger dumps of a TLB, readable and named; operands of POWER's tlbie in words.
#include <fmt/format.h>

#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/command.h"
#include "core/files.h"
#include "core/tlbie.h"
#include "report/decode_report.h"

namespace tlbscope::cli {

namespace {

struct Options {
    std::string format_name;
    std::string first;
    std::string second;
    std::string symbols;
    std::shared_ptr<Format> format = std::make_shared<Format>(Format::kText);
};

Result<std::string> read_input(const std::string& file) {
    if (file != "-") return read_text(file);
    return std::string(std::istreambuf_iterator<char>(std::cin), {});
}

Result<explain::Mpc8xxDump> read_dump(const std::string& file, Console& console) {
    auto text = read_input(file);
    if (!text) return std::unexpected(text.error());
    explain::Mpc8xxDump dump = explain::parse_mpc8xx_dump(*text);
    for (const std::string& warning : dump.warnings) console.note(fmt::format("{}: {}", file, warning));
    if (dump.entries.empty() && dump.others.empty())
        return fail(file, "there is no line `SPR NUMBER : 0xVALUE` in it",
                    "give the text that the debugger printed, or a diff of two such texts");
    return dump;
}

// Operands of tlbie and tlbiel, a line each, as the tracepoint powerpc:tlbie prints them.
Result<Exit> decode_tlbie(const Options& options, Console& console) {
    if (!options.second.empty() || !options.symbols.empty())
        return usage_error("decode tlbie takes one file", "tlbscope decode tlbie FILE");
    if (*options.format == Format::kCsv)
        return usage_error("decode has no CSV form", "use --json, or the text");
    auto text = read_input(options.first);
    if (!text) return std::unexpected(text.error());
    std::string out;
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    std::istringstream lines(*text);
    std::uint64_t number = 0;
    std::uint64_t found = 0;
    for (std::string line; std::getline(lines, line);) {
        ++number;
        const auto operands = parse_tlbie(line);
        if (!operands) continue;
        ++found;
        const TlbOperation operation = operation_of(*operands);
        out += in_words(*operands) + "\n";
        rows.push_back({{"line", number},
                        {"local", operation.local},
                        {"scope", name_of(operation.scope)},
                        {"walk_cache", operation.walk_cache},
                        {"id", operation.hardware},
                        {"start", fmt::format("{:#x}", operation.start.value())},
                        {"bytes", operation.bytes},
                        {"words", in_words(*operands)}});
    }
    if (found == 0)
        return fail(
            options.first, "there are no operands `rb=... rs=...` in it",
            "give lines of the tracepoint powerpc:tlbie, or one such as rb=0x400 rs=0x500000000 ric=2");
    if (number > found)
        console.note(fmt::format("{}: {} other lines left out", options.first, number - found));
    if (*options.format == Format::kJson)
        out = nlohmann::ordered_json{{"schema", 1}, {"format", "tlbie"}, {"operations", rows}}.dump(2) + "\n";
    if (auto done = console.print(out); !done) return std::unexpected(done.error());
    return Exit::kOk;
}

Result<Exit> run(const Options& options, Console& console) {
    if (options.format_name == "tlbie") return decode_tlbie(options, console);
    report::Mpc8xxDecoded decoded{.file = options.first,
                                  .second_file = options.second,
                                  .dump = {},
                                  .second = {},
                                  .have_symbols = !options.symbols.empty(),
                                  .symbols = {}};
    auto first = read_dump(options.first, console);
    if (!first) return std::unexpected(first.error());
    decoded.dump = std::move(*first);
    if (!options.second.empty()) {
        auto second = read_dump(options.second, console);
        if (!second) return std::unexpected(second.error());
        decoded.second = std::move(*second);
    }
    if (!options.symbols.empty()) {
        auto text = read_input(options.symbols);
        if (!text) return std::unexpected(text.error());
        explain::KernelSymbols symbols = explain::parse_kallsyms(*text);
        if (symbols.kernel.empty())
            return fail(options.symbols, "there are no kernel functions in it",
                        "give the System.map of the kernel that ran, or its /proc/kallsyms as root saw it");
        decoded.symbols = explain::SymbolTable(std::move(symbols.kernel));
    }
    if (*options.format == Format::kCsv)
        return usage_error("decode has no CSV form", "use --json, or the text");
    if (auto done = console.print(*options.format == Format::kJson ? report::as_json(decoded)
                                                                   : report::as_text(decoded));
        !done)
        return std::unexpected(done.error());
    return Exit::kOk;
}

}  // namespace

Command decode_command() {
    return {.name = "decode",
            .summary = "make a debugger's dump of a TLB, or tlbie operands, readable",
            .examples =
                "  tlbscope decode mpc8xx itlb.txt                       entries of an MPC8xx, page by page\n"
                "  tlbscope decode mpc8xx before.txt after.txt --symbols System.map\n"
                "                                                        what one system call brought in\n"
                "  diff -u before.txt after.txt | tlbscope decode mpc8xx -   a diff is as good\n"
                "  echo 'local=1 rb=0x400 rs=0x500000000 ric=2' | tlbscope decode tlbie -\n"
                "                                                        POWER's tlbie operands in words\n",
            .declare = [](CLI::App& app, Console& console) -> Run {
                auto options = std::make_shared<Options>();
                app.add_option("format", options->format_name, "what the dump is of: mpc8xx or tlbie")
                    ->required()
                    ->check(CLI::IsMember({"mpc8xx", "tlbie"}))
                    ->type_name("FORMAT");
                app.add_option("file", options->first, "the debugger's text; - for standard input")
                    ->required()
                    ->type_name("FILE");
                app.add_option("file2", options->second, "a later dump: print what is new in it")
                    ->type_name("FILE2");
                app.add_option("--symbols", options->symbols, "System.map or kallsyms of that kernel")
                    ->type_name("FILE");
                add_format_options(app, options->format);
                return [options, &console] { return run(*options, console); };
            }};
}

}  // namespace tlbscope::cli
