#include "import_log/log.h"

#include <algorithm>
#include <memory>

#include "import_ftrace/ftrace.h"
#include "import_perf_script/perf_script.h"
#include "import_strace/strace.h"

namespace tlbscope::import {

namespace {

// Lines that are looked at to tell the format; a log may begin with some of another kind.
constexpr std::size_t kSniffedLines = 200;

class Reader {
  public:
    virtual ~Reader() = default;
    virtual void line(std::string_view text, std::uint64_t number) = 0;
    virtual void finish(LogSummary& summary) = 0;
};

class Strace : public Reader {
  public:
    explicit Strace(const LogSink& sink)
        : reader_([sink](const MemoryEvent& event) {
              if (sink.event) sink.event(event);
          }) {}
    void line(std::string_view text, std::uint64_t number) override { reader_.line(text, number); }
    void finish(LogSummary& summary) override {
        reader_.finish();
        summary.problems = reader_.problems();
        summary.others = reader_.other_calls();
        summary.failed_calls = reader_.failed_calls();
    }

  private:
    StraceReader reader_;
};

template <class Parser>
class Traced : public Reader {
  public:
    explicit Traced(const LogSink& sink) : reader_(sink) {}
    void line(std::string_view text, std::uint64_t number) override { reader_.line(text, number); }
    void finish(LogSummary& summary) override {
        reader_.finish();
        summary.problems = reader_.problems();
        summary.others = reader_.tracepoints().other_events();
        summary.failed_calls = reader_.tracepoints().failed_calls();
        summary.lost = reader_.lost();
    }

  private:
    Parser reader_;
};

struct Format {
    std::string_view name;
    bool (*looks_like)(std::string_view first_lines);
    std::unique_ptr<Reader> (*make)(const LogSink& sink);
};

template <class R>
std::unique_ptr<Reader> make(const LogSink& sink) {
    return std::make_unique<R>(sink);
}

// The first that recognises the text reads it; the order is from the strictest prefix to the loosest.
constexpr Format kFormats[] = {
    {"ftrace", looks_like_ftrace, make<Traced<FtraceReader>>},
    {"perf script", looks_like_perf_script, make<Traced<PerfScriptReader>>},
    {"strace", looks_like_strace, make<Strace>},
};

}  // namespace

Result<LogSummary> read_log(Input input, const LogSink& sink,
                            const std::function<void(std::uint64_t)>& bytes) {
    const std::string name = input.name();
    Lines lines(std::move(input));
    LogSummary summary;
    const LogSink counted{.event =
                              [&](const MemoryEvent& event) {
                                  ++summary.events;
                                  if (sink.event) sink.event(event);
                              },
                          .operation =
                              [&](const TlbOperation& operation) {
                                  ++summary.operations;
                                  if (sink.operation) sink.operation(operation);
                              }};
    std::vector<std::string> first;
    std::string together;
    std::uint64_t done = 0;
    std::optional<Error> broken;
    const auto next = [&]() -> std::optional<std::string_view> {
        auto line = lines.next();
        if (!line) {
            broken = line.error();
            return std::nullopt;
        }
        return *line;
    };
    bool ended = false;
    while (first.size() < kSniffedLines) {
        const auto line = next();
        if (!line) {
            ended = true;
            break;
        }
        if (together.empty() && line->starts_with("PERFILE2"))
            return fail(name, "this is perf's binary file", "give the text that `perf script` prints");
        if (together.empty() && line->substr(0, 20).find("tracing") != std::string_view::npos &&
            line->find('\0') != std::string_view::npos)
            return fail(name, "this is trace-cmd's binary file",
                        "give the text that `trace-cmd report` prints");
        first.emplace_back(*line);
        together.append(*line);
        together += '\n';
    }
    const Format* format = nullptr;
    for (const Format& candidate : kFormats)
        if (format == nullptr && candidate.looks_like(together)) format = &candidate;
    if (format == nullptr) {
        if (broken) return std::unexpected(*broken);
        const bool empty =
            std::all_of(first.begin(), first.end(), [](const std::string& line) { return line.empty(); });
        if (ended && empty) return fail(name, "the file is empty", "docs/flush.md says how to make a log");
        // The first line of a recording (recording/format.h), which is all that this stage knows of them.
        if (together.starts_with("\x89TLBREC\n"))
            return fail(name, "this is a recording, not a log",
                        "`tlbscope info` says what it holds; flush and tables read it as it is");
        return fail(name,
                    "no line of it is known: it is no recording and no text of strace, ftrace or perf script",
                    "docs/flush.md says how to make one");
    }
    summary.format = format->name;
    const std::unique_ptr<Reader> reader = format->make(counted);
    for (const std::string& line : first) {
        reader->line(line, ++summary.lines);
        done += line.size() + 1;
    }
    while (!ended) {
        const auto line = next();
        if (!line) break;
        reader->line(*line, ++summary.lines);
        done += line->size() + 1;
        if (bytes && (summary.lines & 0xffff) == 0) bytes(done);
    }
    reader->finish(summary);
    if (broken) summary.damage = broken->what;
    return summary;
}

Result<LogSummary> read_log(const std::string& name, const LogSink& sink,
                            const std::function<void(std::uint64_t)>& bytes) {
    auto input = Input::open(name);
    if (!input) return std::unexpected(input.error());
    return read_log(std::move(*input), sink, bytes);
}

}  // namespace tlbscope::import
