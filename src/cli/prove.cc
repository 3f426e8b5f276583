// tlbscope prove: what an order is worth, by replay of a recording with every function where the linker would
// put it.
#include <fmt/format.h>

#include <algorithm>

#include "cli/command.h"
#include "cli/layout_options.h"
#include "cli/name_options.h"
#include "core/files.h"
#include "core/numbers.h"
#include "layout/order_file.h"
#include "layout/places.h"
#include "layout/proof.h"
#include "machine/machine_file.h"
#include "report/order_report.h"

namespace tlbscope::cli {

namespace {

struct Options {
    std::string recording = kDefaultRecording;
    std::string order;
    std::string linker;
    std::string machine = kDefaultMachine;
    std::vector<std::string> changes;
    std::vector<std::string> paths;
    std::optional<std::uint64_t> max_misses;
    std::shared_ptr<ImageChoice> image = std::make_shared<ImageChoice>();
    std::shared_ptr<explain::NameOptions> names = std::make_shared<explain::NameOptions>();
    std::shared_ptr<Format> format = std::make_shared<Format>(Format::kText);
    std::shared_ptr<unsigned> threads = std::make_shared<unsigned>(1);
    std::shared_ptr<ProgressMode> progress = std::make_shared<ProgressMode>(ProgressMode::kAuto);
};

// Whether the order was made from this very recording.
Result<report::ProofReport::Seen> seen(const layout::Origin& origin, const std::string& recording) {
    using Seen = report::ProofReport::Seen;
    if (origin.contents.empty()) return Seen::kUnknown;
    const auto file = MappedFile::open(recording);
    if (!file) return std::unexpected(file.error());
    const std::string hash = content_hash(file->bytes());
    return std::find(origin.contents.begin(), origin.contents.end(), hash) != origin.contents.end()
               ? Seen::kSeen
               : Seen::kUnseen;
}

Result<Exit> run(const Options& options, Console& console) {
    const auto machine = machine::load_machine(options.machine, options.changes);
    if (!machine) return std::unexpected(machine.error());
    const auto text = read_text(options.order);
    if (!text) return std::unexpected(text.error());
    auto order = layout::parse_order(*text, options.order);
    if (!order) return std::unexpected(order.error());
    if (!options.linker.empty()) {
        const auto linker = layout::linker_named(options.linker);
        if (!linker)
            return usage_error(fmt::format("--linker {}: no such linker", options.linker),
                               "there are lld, gold, ld, ld-sorted, mold, apple, bolt, linux");
        order->linker = *linker;
    }
    const auto recording = recording::Recording::open(options.recording);
    if (!recording) return std::unexpected(recording.error());
    const auto image = image_of(*recording, *options.image, order->linker);
    if (!image) return std::unexpected(image.error());
    const auto places = layout::Places::find(*recording, *image);
    if (!places) return std::unexpected(places.error());
    const layout::Units units(*image, order->linker);
    const layout::Matched matched = layout::match(*order, *image, units);
    if (matched.order.empty())
        return fail(options.order,
                    fmt::format("none of its {} names is a function of {} that can move", order->keys.size(),
                                image->path),
                    "it may be an order of another program, or the program may lack -ffunction-sections");

    report::ProofReport report{.recording = options.recording,
                               .order = options.order,
                               .trained_on = order->origin.recordings,
                               .seen = report::ProofReport::Seen::kUnknown,
                               .image = &*image,
                               .linker = order->linker,
                               .listed = matched.order.size(),
                               .missing = matched.missing.size(),
                               .proof = nullptr,
                               .paths = {},
                               .notes = {}};
    const auto is_seen = seen(order->origin, options.recording);
    if (!is_seen) return std::unexpected(is_seen.error());
    report.seen = *is_seen;
    if (!matched.missing.empty()) {
        std::string names;
        for (std::size_t i = 0; i < std::min<std::size_t>(matched.missing.size(), 5); ++i)
            names += fmt::format("{}{}", i == 0 ? "" : ", ", matched.missing[i]);
        report.notes.push_back(
            fmt::format("{} of the order's {} names are no function of {} that can move: {}{}; the linker "
                        "would warn or leave them out",
                        matched.missing.size(), order->keys.size(), image->path, names,
                        matched.missing.size() > 5 ? " ..." : ""));
    }
    if (!order->origin.build_id.empty() && !image->build_id.empty() &&
        order->origin.build_id != image->build_id)
        report.notes.push_back(
            fmt::format("the order was made for another build of the program (build-id {}, this one {})",
                        order->origin.build_id, image->build_id));
    for (const std::string& note : places->notes()) report.notes.push_back(note);
    for (const std::string& note : image->notes) report.notes.push_back(note);
    if (image->source == layout::ImageSource::kSymbols && order->linker != layout::Linker::kBolt &&
        image->path != options.recording)
        report.notes.emplace_back(
            "nothing says that every function has a section of its own; --map FILE would");
    if (order->linker == layout::Linker::kBolt)
        report.notes.emplace_back("BOLT also rewrites the functions it moves, so this is an estimate");
    if (const auto page = text_page_of(*image))
        report.notes.push_back(
            fmt::format("this kernel's text is mapped with {} pages: the {} figures are a what-if; `tlbscope "
                        "order` prints both",
                        size_name(page->bytes()), size_name(machine->pages.base.bytes())));
    explain::NameOptions name_options = *options.names;
    name_options.threads = *options.threads;
    name_options.find_stacks = false;
    std::optional<explain::Names> names;
    if (!options.paths.empty()) {
        auto loaded = load_names(*recording, name_options, console);
        if (!loaded) return std::unexpected(loaded.error());
        names = std::move(*loaded);
        for (const std::string& path : options.paths) {
            auto parsed = explain::parse_path(path, *recording, *names);
            if (!parsed) return std::unexpected(parsed.error());
            report.paths.push_back(std::move(*parsed));
        }
    }
    layout::Placer placer(*image, units, order->linker);
    std::optional<layout::Proof> proof;
    {
        Progress progress("replaying", *options.progress);
        auto made = layout::prove(
            *recording, *image, *places, placer.placed(matched.order), *machine, names ? &*names : nullptr,
            report.paths,
            {.threads = *options.threads, .progress = [&](std::uint64_t done, std::uint64_t all) {
                 progress.update(done, all);
                 return true;
             }});
        if (!made) return std::unexpected(made.error());
        proof = std::move(*made);
    }
    report.proof = &*proof;
    for (const std::string& note : proof->before.ledger.notes) report.notes.push_back(note);
    const std::string printed = *options.format == Format::kJson  ? report::as_json(report)
                                : *options.format == Format::kCsv ? report::as_csv(report)
                                                                  : report::as_text(report, console.color());
    if (auto done = console.print(printed); !done) return std::unexpected(done.error());
    const Kind kind = image->what == layout::What::kText ? Kind::kInstruction : Kind::kData;
    if (const std::uint64_t misses = proof->after.ledger.misses.of(kind);
        options.max_misses && misses > *options.max_misses) {
        console.note(fmt::format("{} misses, {} more than --max-misses {}", misses,
                                 misses - *options.max_misses, *options.max_misses));
        return Exit::kBudgetExceeded;
    }
    if (*options.format == Format::kText)
        console.suggest("link with the order, record again, and compare: tlbscope diff OLD.rec NEW.rec");
    return Exit::kOk;
}

}  // namespace

Command prove_command() {
    return {
        .name = "prove",
        .summary = "replay a recording with an order applied",
        .examples =
            "  tlbscope prove app.rec --order app.order --map app.map       before and after\n"
            "  tlbscope prove b.rec --order app.order --map app.map         on a run the order has not seen\n"
            "  tlbscope prove dd.rec --order order.lds --image vmlinux --path sys_read --path sys_write\n",
        .declare = [](CLI::App& app, Console& console) -> Run {
            auto options = std::make_shared<Options>();
            app.add_option("recording", options->recording, "a recording")
                ->type_name("REC")
                ->capture_default_str();
            app.add_option("--order", options->order,
                           "an order, of any format that lists functions, sections or files")
                ->type_name("ORDER")
                ->required();
            app.add_option(
                   "--linker", options->linker,
                   "which linker's rules to apply, if not those the order is for: lld, gold, ld, ld-sorted, "
                   "mold, apple, bolt, linux")
                ->type_name("NAME");
            app.add_option("--path", options->paths,
                           "also count a path's misses and pages: a function or mark:A..mark:B; repeatable")
                ->type_name("PATH")
                ->expected(1)
                ->take_all();
            app.add_option("--machine", options->machine, "a machine by name or file")
                ->type_name("NAME|FILE")
                ->capture_default_str();
            app.add_option("--set", options->changes, "change a fact of the machine; repeatable")
                ->type_name("KEY=VALUE")
                ->expected(1)
                ->take_all();
            app.add_option("--max-misses", options->max_misses,
                           "exit with status 3 above this many misses when ordered")
                ->type_name("N");
            add_image_options(app, options->image);
            add_name_options(app, options->names);
            add_format_options(app, options->format);
            add_threads_option(app, options->threads);
            add_progress_option(app, options->progress);
            return [options, &console] { return run(*options, console); };
        }};
}

}  // namespace tlbscope::cli
