// tlbscope order: learn an order of functions from recordings.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <sstream>

#include "cli/command.h"
#include "cli/layout_options.h"
#include "core/files.h"
#include "core/numbers.h"
#include "layout/branches.h"
#include "layout/order_file.h"
#include "layout/ordering.h"
#include "layout/places.h"
#include "layout/trace.h"
#include "machine/machine_file.h"
#include "report/order_report.h"

namespace tlbscope::cli {

namespace {

struct Options {
    std::vector<std::string> recordings;
    std::vector<std::string> tests;
    std::vector<double> weights;
    std::string machine = kDefaultMachine;
    std::vector<std::string> changes;
    std::string method = "search";
    std::string format = "lld";
    std::string output;
    std::uint64_t seed = 1;
    double effort = 1;
    std::shared_ptr<ImageChoice> image = std::make_shared<ImageChoice>();
    std::shared_ptr<Format> print = std::make_shared<Format>(Format::kText);
    std::shared_ptr<unsigned> threads = std::make_shared<unsigned>(1);
    std::shared_ptr<ProgressMode> progress = std::make_shared<ProgressMode>(ProgressMode::kAuto);
};

// Trace elements that a search replays at effort 1: some 25 s of two cores.
constexpr double kBudget = 8e9;

Result<std::vector<layout::Method>> methods_of(const std::string& text) {
    std::vector<layout::Method> methods;
    std::istringstream words(text);
    for (std::string word; std::getline(words, word, ',');) {
        if (word == "all") {
            for (std::size_t i = 0; i < layout::kMethods; ++i)
                methods.push_back(static_cast<layout::Method>(i));
            continue;
        }
        const auto method = layout::method_named(word);
        if (!method) {
            std::string names = "all";
            for (std::size_t i = 0; i < layout::kMethods; ++i)
                names += fmt::format(", {}", name_of(static_cast<layout::Method>(i)));
            return usage_error(fmt::format("--method {}: no such method", word), "there are " + names);
        }
        methods.push_back(*method);
    }
    if (methods.empty()) return usage_error("--method names none", "for example --method all");
    return methods;
}

std::string format_names() {
    std::string names;
    for (const layout::FormatInfo& info : layout::formats())
        names += fmt::format("{}{}", names.empty() ? "" : ", ", info.name);
    return names;
}

std::string geometry_of(const machine::Machine& machine, Kind kind) {
    const machine::TlbGeometry& g = machine.tlb(kind).geometry;
    return fmt::format("{} TLB, {} entries {} {}, {} pages",
                       kind == Kind::kInstruction ? "instruction" : "data", g.entries,
                       g.ways == g.entries ? "fully associative" : fmt::format("{}-way", g.ways),
                       name_of(g.replacement), size_name(machine.pages.base.bytes()));
}

// A recording as it is used here: opened, located and boiled down.
struct Used {
    recording::Recording recording;
    layout::Places places;
    layout::Trace trace;
};

Result<std::string> hash_of(const std::string& path) {
    const auto file = MappedFile::open(path);
    if (!file) return std::unexpected(file.error());
    return content_hash(file->bytes());
}

class OrderRun {
  public:
    OrderRun(const Options& options, Console& console) : options_(options), console_(console) {}

    Result<Exit> run() {
        const auto methods = methods_of(options_.method);
        if (!methods) return std::unexpected(methods.error());
        const auto format = layout::format_named(options_.format);
        if (!format)
            return usage_error(fmt::format("--format {}: no such format", options_.format),
                               "there are " + format_names());
        format_ = *format;
        if (options_.image->data && !format_.data) {
            std::string names;
            for (const layout::FormatInfo& info : layout::formats())
                if (info.data) names += fmt::format("{}{}", names.empty() ? "" : ", ", info.name);
            return usage_error(fmt::format("--format {} orders code only", format_.name),
                               "for data there are " + names);
        }
        if (!options_.weights.empty() && options_.weights.size() != options_.recordings.size())
            return usage_error(fmt::format("{} weights for {} recordings", options_.weights.size(),
                                           options_.recordings.size()),
                               "give --weight once for each recording, in their order");
        for (const double weight : options_.weights)
            if (!(weight > 0))
                return usage_error(fmt::format("--weight {:g} is not above 0", weight),
                                   "leave the recording out instead");
        if (!(options_.effort > 0) || options_.effort > 1000)
            return usage_error(fmt::format("--effort {:g} is no number above 0, to 1000", options_.effort),
                               "for example --effort 4");
        auto machine = machine::load_machine(options_.machine, options_.changes);
        if (!machine) return std::unexpected(machine.error());
        machine_ = std::move(*machine);
        if (auto done = open_output(); !done) return std::unexpected(done.error());
        if (auto done = open_all(); !done) return std::unexpected(done.error());
        return make(*methods);
    }

  private:
    // Before anything is read: a file that cannot be written should not be news after a minute of search, and
    // two runs do not write one file.
    Result<void> open_output() {
        if (options_.output.empty() || options_.output == "-") return {};
        std::vector<std::string> inputs = options_.recordings;
        inputs.insert(inputs.end(), options_.tests.begin(), options_.tests.end());
        inputs.push_back(options_.image->image);
        inputs.push_back(options_.image->map);
        inputs.insert(inputs.end(), options_.image->objects.begin(), options_.image->objects.end());
        for (const std::string& input : inputs) {
            std::error_code missing;
            if (std::filesystem::equivalent(input, options_.output, missing))
                return usage_error(fmt::format("-o {} would replace a file that is read", options_.output),
                                   "name another file");
        }
        auto file = OutputFile::create(options_.output);
        if (!file) return std::unexpected(file.error());
        output_.emplace(std::move(*file));
        return {};
    }

    Result<void> open_all() {
        const StopOnInterrupt stop;
        std::vector<std::string> names = options_.recordings;
        if (names.empty()) names.emplace_back(kDefaultRecording);
        for (std::size_t i = 0; i < names.size() + options_.tests.size(); ++i) {
            const bool training = i < names.size();
            const std::string& name = training ? names[i] : options_.tests[i - names.size()];
            auto recording = recording::Recording::open(name);
            if (!recording) return std::unexpected(recording.error());
            if (i == 0) {
                auto image = image_of(*recording, *options_.image, format_.linker);
                if (!image) return std::unexpected(image.error());
                image_ = std::move(*image);
            }
            if (!recording->whole())
                notes_.push_back(
                    fmt::format("{}: it is not whole ({}): the order is learnt from what it still holds",
                                name, recording->damage()));
            auto places = layout::Places::find(*recording, image_);
            if (!places) return std::unexpected(places.error());
            for (const std::string& note : places->notes())
                if (std::find(notes_.begin(), notes_.end(), note) == notes_.end()) notes_.push_back(note);
            Progress progress(fmt::format("reading {}", name), *options_.progress);
            auto trace = layout::trace_of(*recording, image_, *places, machine_,
                                          {.threads = *options_.threads,
                                           .image_shift = PageShift(0),
                                           .progress = [&](std::uint64_t done, std::uint64_t all) {
                                               progress.update(done, all);
                                               return !StopOnInterrupt::asked();
                                           }});
            if (!trace) return std::unexpected(trace.error());
            if (training) {
                const auto hash = hash_of(name);
                if (!hash) return std::unexpected(hash.error());
                origin_.recordings.push_back(name);
                origin_.contents.push_back(*hash);
            }
            if (trace->unplaced * 1000 > trace->references)
                notes_.push_back(fmt::format(
                    "{}: {} references lie in the image outside every piece and were taken to stay", name,
                    grouped(trace->unplaced)));
            used_.push_back({std::move(*recording), std::move(*places), std::move(*trace)});
        }
        trained_ = names.size();
        return {};
    }

    Result<Exit> make(const std::vector<layout::Method>& methods) {
        const layout::Units units(image_, format_.linker);
        std::vector<const layout::Trace*> traces;
        std::vector<const layout::Trace*> tests;
        for (std::size_t i = 0; i < used_.size(); ++i)
            (i < trained_ ? traces : tests).push_back(&used_[i].trace);
        std::vector<double> weights = options_.weights;
        weights.resize(traces.size(), 1.0);
        std::optional<layout::Ordering> ordering;
        {
            const StopOnInterrupt stop;
            Progress progress("ordering", *options_.progress);
            auto made =
                layout::make_ordering(image_, units, format_.linker, machine_, traces, weights, tests,
                                      {.methods = methods,
                                       .seed = options_.seed,
                                       .budget = static_cast<std::uint64_t>(kBudget * options_.effort),
                                       .threads = *options_.threads,
                                       .progress = [&](std::string_view, double share) {
                                           progress.update(static_cast<std::uint64_t>(share * 1000), 1000);
                                           return !StopOnInterrupt::asked();
                                       }});
            if (!made) return std::unexpected(made.error());
            ordering = std::move(*made);
        }
        if (ordering->stopped) notes_.push_back("stopped early: this is the best order found so far");
        const layout::MethodResult& chosen = ordering->methods[ordering->chosen];
        report::OrderReport report{.machine = machine_.name,
                                   .geometry = geometry_of(machine_, traces[0]->kind),
                                   .kind = traces[0]->kind,
                                   .recordings = origin_.recordings,
                                   .weights = weights,
                                   .tests = options_.tests,
                                   .image = &image_,
                                   .linker = format_.linker,
                                   .format = std::string(format_.name),
                                   .output = {},
                                   .use = std::string(format_.use),
                                   .ordering = &*ordering,
                                   .notes = {},
                                   .real_pages = {}};
        if (auto done = note_page_size(chosen, units, report); !done) return std::unexpected(done.error());
        for (const std::string& note : image_.notes) notes_.push_back(note);
        if (image_.source == layout::ImageSource::kSymbols && format_.linker != layout::Linker::kBolt &&
            image_.path != origin_.recordings.front())
            notes_.push_back(
                "nothing says that every function has a section of its own; where it has none, the linker "
                "cannot move "
                "it. Link with -Wl,-Map=FILE and give --map FILE");
        if (!options_.output.empty()) {
            if (chosen.method == layout::Method::kAsLinked) {
                notes_.push_back("no order beats the linker's own, so none was written");
            } else {
                if (auto done = write(chosen, units, *ordering); !done) return std::unexpected(done.error());
                report.output = options_.output;
                const std::size_t at = report.use.find("ORDER");
                if (at != std::string::npos) report.use.replace(at, 5, options_.output);
            }
        }
        report.notes = notes_;
        const std::string text = *options_.print == Format::kJson ? report::as_json(report)
                                 : *options_.print == Format::kCsv
                                     ? report::as_csv(report)
                                     : report::as_text(report, console_.color());
        if (options_.output != "-")
            if (auto done = console_.print(text); !done) return std::unexpected(done.error());
        if (*options_.print == Format::kText && options_.output != "-") {
            const std::string recording =
                options_.recordings.empty() ? std::string(kDefaultRecording) : options_.recordings.front();
            console_.suggest(
                options_.output.empty()
                    ? fmt::format("tlbscope order {} --machine {} -o ORDER    write the order", recording,
                                  options_.machine)
                    : fmt::format(
                          "tlbscope prove REC2 --order {} --machine {}    try it on a run it has not seen",
                          options_.output, options_.machine));
        }
        return Exit::kOk;
    }

    // Kernels whose text is mapped with larger pages: what they really miss, beside the 4K figure.
    Result<void> note_page_size(const layout::MethodResult& chosen, const layout::Units& units,
                                report::OrderReport& report) {
        const auto page = text_page_of(image_);
        if (!page || image_.what != layout::What::kText) return {};
        layout::Placer placer(image_, units, format_.linker);
        const layout::Placement placement = chosen.method == layout::Method::kAsLinked
                                                ? layout::as_linked(image_)
                                                : placer.placed(chosen.order);
        report::OrderReport::RealPages real{.size = size_name(page->bytes()), .before = 0, .after = 0};
        for (std::size_t i = 0; i < trained_; ++i) {
            auto trace =
                layout::trace_of(used_[i].recording, image_, used_[i].places, machine_,
                                 {.threads = *options_.threads, .image_shift = *page, .progress = {}});
            if (!trace) return std::unexpected(trace.error());
            layout::Evaluator evaluator(*trace, machine_);
            real.before += evaluator.misses(layout::as_linked(image_)).total();
            real.after += evaluator.misses(placement).total();
        }
        notes_.push_back(fmt::format(
            "this kernel's text is mapped with {0} pages, so every {1} figure here is a what-if (a processor "
            "or hypervisor "
            "that splits large mappings, or a kernel without them); with {0} text pages: {2} misses as "
            "linked, {3} ordered",
            real.size, size_name(machine_.pages.base.bytes()), grouped(real.before), grouped(real.after)));
        report.real_pages.push_back(real);
        return {};
    }

    Result<void> write(const layout::MethodResult& chosen, const layout::Units& units,
                       const layout::Ordering& ordering) {
        std::vector<layout::Branch> branches;
        if (format_.format == layout::OrderFormat::kBoltProfile)
            for (std::size_t i = 0; i < trained_; ++i)
                if (auto done = layout::add_branches(used_[i].recording, image_, used_[i].places,
                                                     *options_.threads, branches);
                    !done)
                    return done;
        origin_.image = image_.path;
        origin_.build_id = image_.build_id;
        origin_.machine = machine_.name + (machine_.changes.empty() ? "" : ", " + machine_.changes_text());
        origin_.method = name_of(chosen.method);
        const std::string text = layout::written(format_.format, {.image = &image_,
                                                                  .units = &units,
                                                                  .graph = &ordering.graph,
                                                                  .order = chosen.order,
                                                                  .branches = branches,
                                                                  .origin = origin_});
        if (options_.output == "-") return console_.print(text);
        if (auto done = output_->write({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
            !done)
            return done;
        return output_->commit();
    }

    const Options& options_;
    Console& console_;
    layout::FormatInfo format_{};
    machine::Machine machine_;
    layout::Image image_;
    std::optional<OutputFile> output_;
    std::vector<Used> used_;
    std::size_t trained_ = 0;
    layout::Origin origin_;
    std::vector<std::string> notes_;
};

}  // namespace

Command order_command() {
    return {
        .name = "order",
        .summary = "learn an order of functions that misses least",
        .examples =
            "  tlbscope order app.rec --map app.map -o app.order     for lld, by search on an MPC855T\n"
            "  tlbscope order a.rec b.rec --test c.rec --method all  compare methods, also on a run not "
            "learnt from\n"
            "  tlbscope order dd.rec --image vmlinux --map vmlinux.map --format linux -o order.lds.h\n"
            "                                                        a kernel, for its linker script\n"
            "  tlbscope order app.rec --format bolt-profile -o app.fdata\n"
            "                                                        a profile for BOLT without branch "
            "records\n",
        .declare = [](CLI::App& app, Console& console) -> Run {
            auto options = std::make_shared<Options>();
            app.add_option("recording", options->recordings, "recordings to learn from")
                ->option_text(fmt::format("REC... (default: {})", kDefaultRecording))
                ->expected(0, 1 << 20);
            app.add_option("-o,--output", options->output,
                           "write the order to this file; - for standard output")
                ->type_name("ORDER");
            app.add_option("--format", options->format, "what it is for: " + format_names())
                ->type_name("NAME")
                ->capture_default_str();
            app.add_option("--test", options->tests,
                           "a recording to try the orders on and not to learn from; repeatable")
                ->type_name("REC")
                ->expected(1)
                ->take_all();
            app.add_option(
                   "--method", options->method,
                   "as-linked, density, first-touch, pettis-hansen, c3-4k, c3, cdsort, temporal, partition, "
                   "search; all compares them")
                ->type_name("NAME[,...]")
                ->capture_default_str();
            app.add_option("--weight", options->weights,
                           "how much a recording's misses matter, once for each; by default 1")
                ->type_name("N")
                ->expected(1)
                ->take_all();
            app.add_option("--machine", options->machine, "a machine by name or file")
                ->type_name("NAME|FILE")
                ->capture_default_str();
            app.add_option("--set", options->changes, "change a fact of the machine; repeatable")
                ->type_name("KEY=VALUE")
                ->expected(1)
                ->take_all();
            app.add_option("--seed", options->seed,
                           "of the search's choices; the same seed gives the same order")
                ->type_name("N")
                ->capture_default_str();
            app.add_option("--effort", options->effort, "how long to search; 1 is some 25 s on two cores")
                ->type_name("N")
                ->capture_default_str();
            add_image_options(app, options->image);
            add_format_options(app, options->print);
            add_threads_option(app, options->threads);
            add_progress_option(app, options->progress);
            return [options, &console] { return OrderRun(*options, console).run(); };
        }};
}

}  // namespace tlbscope::cli
