#include <fmt/format.h>

#include <array>

#include "capture/program.h"
#include "capture/qemu.h"
#include "capture/session.h"

namespace tlbscope::capture {

namespace {

Result<WindowPoint> program_point(const Program& program, const std::string& symbol) {
    auto address = find_symbol(program.path, symbol);
    if (!address) return std::unexpected(address.error());
    if (!*address) {
        auto error = fail(program.path.string(), fmt::format("it has no symbol {}", symbol),
                          "check the name with nm, or set a mark (tlbscope/mark.h) and give mark:N");
        return error;
    }
    if (!program.position_independent)
        return WindowPoint{.kind = WindowPoint::Kind::kAddress, .address = **address};
    return WindowPoint{.kind = WindowPoint::Kind::kFromStartOfCode,
                       .address = **address - program.code_start};
}

std::string cpu_model(const std::string& target) {
    // QEMU's default for each target; for x86_64 it is named, since it decides which instructions libraries
    // choose.
    return target == "x86_64" ? "qemu64" : "QEMU's default";
}

}  // namespace

Result<Session> record_program(const RecordOptions& options) {
    auto program = find_program(options.command);
    if (!program) return std::unexpected(program.error());
    auto qemu = find_qemu("qemu-" + program->target);
    if (!qemu) return std::unexpected(qemu.error());

    RecordRequest request{.output = options.output, .most_references = options.most_references};
    const auto resolve = [&](const std::string& symbol) { return program_point(*program, symbol); };
    auto from = parse_point("--from", options.from, resolve);
    if (!from) return std::unexpected(from.error());
    auto to = parse_point("--to", options.to, resolve);
    if (!to) return std::unexpected(to.error());
    request.from = *from;
    request.to = *to;

    request.qemu_arguments = {qemu->string()};
    const std::string prefix =
        options.library_prefix.empty() ? library_prefix(program->target) : options.library_prefix;
    if (!prefix.empty()) request.qemu_arguments.insert(request.qemu_arguments.end(), {"-L", prefix});
    request.qemu_arguments.insert(request.qemu_arguments.end(), {"-0", program->arguments.front()});
    request.qemu_arguments.push_back(program->path.string());
    request.qemu_arguments.insert(request.qemu_arguments.end(), program->arguments.begin() + 1,
                                  program->arguments.end());

    recording::Metadata& metadata = request.metadata;
    metadata.tool_version = options.tool_version;
    metadata.command = options.command;
    metadata.target = program->target;
    metadata.qemu_version = qemu_version(*qemu);
    metadata.cpu_model = cpu_model(program->target);
    metadata.granularity = options.granularity;
    metadata.window = window_words(options);
    metadata.spaces = {{.id = SpaceId(0), .name = program->path.filename().string()}};
    metadata.not_recorded = {"the kernel: system calls, page faults, interrupts (use --system)"};

    Session session;
    auto outcome =
        record(request, [&](const RecordOutcome& run, recording::Metadata& m) -> Result<std::string> {
            m.outcome =
                run.limit_reached ? "was stopped after enough references" : ending_words(run.wait_status);
            if (run.interrupted) m.outcome = "was interrupted";
            if (run.forks != 0)
                m.not_recorded.push_back(
                    fmt::format("{} forked child{} (use --system to record every process)", run.forks,
                                run.forks == 1 ? "" : "ren"));
            if (run.execs != 0 && !run.exited)
                m.not_recorded.emplace_back(
                    "the program that this one replaced itself by with exec (use --system)");
            if (run.limit_reached)
                m.not_recorded.push_back(fmt::format("everything after the first {} references (--max-refs)",
                                                     options.most_references));
            if (m.cpus > 1)
                m.not_recorded.emplace_back(
                    "the exact interleaving of the threads: each is a CPU of its own, ordered by buffers");
            auto checked = check_window(options, run);
            if (checked) session.metadata = m;
            return checked;
        });
    if (!outcome) return std::unexpected(outcome.error());
    session.outcome = std::move(*outcome);
    std::error_code ignored;
    session.file_bytes = std::filesystem::file_size(options.output, ignored);
    return session;
}

}  // namespace tlbscope::capture
