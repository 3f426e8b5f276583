// tlbscope: finds the command, reads its options, runs it, and turns what it returns into an exit status.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <algorithm>
#include <exception>
#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "core/nearest.h"

namespace tlbscope::cli {

#define TLBSCOPE_COMMAND(name) Command name##_command();
#include "cli/commands.def"
#undef TLBSCOPE_COMMAND

namespace {

std::vector<Command> all_commands() {
    std::vector<Command> commands;
#define TLBSCOPE_COMMAND(name) commands.push_back(name##_command());
#include "cli/commands.def"
#undef TLBSCOPE_COMMAND
    return commands;
}

// Help that begins with what people look for: examples, then options.
class ExamplesFirst : public CLI::Formatter {
  public:
    std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
        if (mode == CLI::AppFormatMode::Sub) return CLI::Formatter::make_help(app, name, mode);
        std::string text = app->get_description() + "\n\n";
        if (!app->get_footer().empty()) text += "Examples:\n" + app->get_footer() + "\n";
        text += make_usage(app, name);
        text += make_positionals(app);
        text += make_groups(app, mode);
        text += make_subcommands(app, mode);
        return text;
    }
};

std::string short_usage(const std::vector<Command>& commands) {
    std::string text =
        "tlbscope shows what address translation costs a program or a kernel.\n\n"
        "  tlbscope record -- COMMAND...     record a run once\n"
        "  tlbscope replay                   what its TLB misses cost on an MPC855T\n\n"
        "commands:\n";
    for (const Command& command : commands)
        text += fmt::format("  {:<10} {}\n", command.name, command.summary);
    return text + "\n`tlbscope COMMAND --help` says more.\n";
}

int failure(Console& console, const Error& error) {
    console.error(error);
    switch (error.error_class) {
        case ErrorClass::kUsage:
            return static_cast<int>(Exit::kUsage);
        case ErrorClass::kInterrupted:
            return static_cast<int>(Exit::kInterrupted);
        case ErrorClass::kFailure:
            break;
    }
    return static_cast<int>(Exit::kFailure);
}

// One line for an option that CLI11 did not like.
Error usage_problem(const CLI::App& app, const CLI::ParseError& problem) {
    Error error{.where = "", .what = problem.what(), .hint = "", .error_class = ErrorClass::kUsage};
    while (!error.what.empty() && (error.what.back() == '\n' || error.what.back() == '.'))
        error.what.pop_back();
    std::replace(error.what.begin(), error.what.end(), '\n', ' ');
    const CLI::App* command = app.get_subcommands().empty() ? &app : app.get_subcommands().front();
    error.hint = fmt::format("`tlbscope {}--help` shows what there is",
                             command == &app ? "" : command->get_name() + " ");
    if (dynamic_cast<const CLI::ExtrasError*>(&problem) != nullptr) {
        std::vector<std::string> options;
        for (const CLI::Option* option : command->get_options())
            for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
        const std::vector<std::string> extras = app.remaining(true);
        const std::string extra = extras.empty() ? std::string{} : extras.front();
        const std::string stem = extra.substr(0, extra.find('='));
        if (extra.starts_with("-")) {
            error.what = fmt::format("unknown option {}", stem);
            if (const std::string guess = nearest(stem, options); !guess.empty())
                error.hint = fmt::format("did you mean {}?", guess);
        } else if (!extra.empty()) {
            error.what = fmt::format("unexpected argument {}", extra);
        }
    }
    return error;
}

int run(std::span<char*> arguments) {
    Console console;
    std::vector<Command> commands = all_commands();
    if (arguments.size() < 2) {
        if (auto done = console.print(short_usage(commands)); !done) return failure(console, done.error());
        return static_cast<int>(Exit::kOk);
    }
    std::vector<std::string> names;
    names.reserve(commands.size());
    for (const Command& command : commands) names.push_back(command.name);
    const std::string first = arguments[1];
    if (!first.starts_with("-") && std::find(names.begin(), names.end(), first) == names.end()) {
        const std::string guess = nearest(first, names);
        return failure(console, {.where = "",
                                 .what = fmt::format("there is no command {}", first),
                                 .hint = guess.empty() ? "`tlbscope` lists the commands"
                                                       : fmt::format("did you mean `tlbscope {}`?", guess),
                                 .error_class = ErrorClass::kUsage});
    }

    CLI::App app("tlbscope shows what address translation costs a program or a kernel.", "tlbscope");
    app.formatter(std::make_shared<ExamplesFirst>());
    app.set_help_flag("-h,--help", "show this help");
    app.set_version_flag("--version", "tlbscope " TLBSCOPE_VERSION);
    app.require_subcommand(1);
    app.footer(
        "  tlbscope record -- dd if=/dev/zero of=file bs=4k count=3840    record a run once\n"
        "  tlbscope replay                 what its TLB misses cost on an MPC855T\n");
    const std::map<std::string, ColorMode> color_modes{
        {"auto", ColorMode::kAuto}, {"always", ColorMode::kAlways}, {"never", ColorMode::kNever}};
    app.add_option_function<std::string>(
           "--color", [&](const std::string& word) { console.set_color(color_modes.at(word)); },
           "whether to colour text; NO_COLOR is honoured")
        ->check(CLI::IsMember({"auto", "always", "never"}))
        ->option_text("auto|always|never");

    std::vector<std::pair<CLI::App*, Run>> runs;
    for (const Command& command : commands) {
        CLI::App* sub = app.add_subcommand(command.name, command.summary);
        sub->footer(command.examples);
        sub->fallthrough();
        runs.emplace_back(sub, command.declare(*sub, console));
    }
    try {
        app.parse(static_cast<int>(arguments.size()), arguments.data());
    } catch (const CLI::CallForHelp&) {
        const CLI::App* shown = app.get_subcommands().empty() ? &app : app.get_subcommands().front();
        const std::string prefix = shown == &app ? "" : app.get_name();
        if (auto done = console.print(shown->help(prefix, CLI::AppFormatMode::Normal)); !done)
            return failure(console, done.error());
        return static_cast<int>(Exit::kOk);
    } catch (const CLI::CallForVersion&) {
        if (auto done = console.print("tlbscope " TLBSCOPE_VERSION "\n"); !done)
            return failure(console, done.error());
        return static_cast<int>(Exit::kOk);
    } catch (const CLI::ParseError& problem) {
        return failure(console, usage_problem(app, problem));
    }
    for (auto& [sub, command_run] : runs) {
        if (!sub->parsed()) continue;
        Result<Exit> result = command_run();
        return result ? static_cast<int>(*result) : failure(console, result.error());
    }
    return static_cast<int>(Exit::kUsage);
}

}  // namespace
}  // namespace tlbscope::cli

int main(int argc, char** argv) {
    try {
        return tlbscope::cli::run(std::span(argv, static_cast<std::size_t>(argc)));
    } catch (const std::bad_alloc&) {
        tlbscope::cli::Console{}.note("out of memory; close something or use fewer threads");
    } catch (const std::exception& problem) {
        tlbscope::cli::Console{}.note(fmt::format("internal error: {}; please report it", problem.what()));
    }
    return 1;
}
