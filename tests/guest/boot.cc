#include "boot.h"

#include <chrono>
#include <cstring>
#include <map>
#include <sstream>

#include "core/files.h"

namespace tlbscope::capture {

namespace {

// Lines "CPU TASK" and "CPU mark NUMBER"; each task gets a space of its own.
std::vector<CpuSwitches> read_switches(const std::string& text) {
    std::map<std::uint32_t, CpuSwitches> cpus;
    std::map<std::uint64_t, std::uint32_t> spaces;
    std::istringstream lines(text);
    std::uint32_t number = 0;
    std::string word;
    while (lines >> number >> word) {
        CpuSwitches& cpu = cpus[number];
        cpu.cpu = number;
        if (word == "mark") {
            lines >> word;
            if (word == "ff01") cpu.begin = cpu.switches.size();
            if (word == "ff02") cpu.end = cpu.switches.size();
            continue;
        }
        const std::uint64_t task = std::stoull(word, nullptr, 16);
        const auto space = spaces.emplace(task, static_cast<std::uint32_t>(spaces.size())).first->second;
        cpu.switches.push_back({task, SpaceId(space)});
    }
    std::vector<CpuSwitches> list;
    for (auto& [cpu, switches] : cpus) list.push_back(std::move(switches));
    return list;
}

}  // namespace

Boot boot(const GuestRequest& request) {
    Boot result;
    auto guest = prepare_guest(request);
    if (!guest) {
        result.error = guest.error().message();
        return result;
    }
    const std::string folder = guest->folder.path().string();
    std::vector<std::string> argv{"timeout", "-s", "KILL", "120"};
    argv.insert(argv.end(), guest->qemu.begin(), guest->qemu.end());
    argv.insert(argv.end(),
                {"-plugin", std::string(CHANNEL_PLUGIN) + ",channel=" + folder + "/channel,marks=" + folder +
                                "/marks,switches=" + folder + "/switches,reset=on"});
    const auto start = std::chrono::steady_clock::now();
    const auto qemu = run(argv);
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (!qemu) {
        result.error = qemu.error().message();
        return result;
    }
    result.state.seconds = result.seconds;
    result.state.memory_mib = request.memory_mib;
    result.state.qemu_errors = qemu->errors;
    result.state.qemu_status = qemu->ok ? 0 : 256;
    result.console = read_text(guest->console_log).value_or("");
    result.channel = read_text(folder + "/channel").value_or("");
    result.marks = read_text(folder + "/marks").value_or("");
    result.switches = read_switches(read_text(folder + "/switches").value_or(""));
    result.kernel = guest->kernel;
    result.host_files = guest->host_files;

    std::vector<std::uint16_t> units(result.channel.size() / 2);
    std::memcpy(units.data(), result.channel.data(), units.size() * 2);
    GuestReport report;
    if (const auto done = report.feed(units); !done) result.error = done.error().message();
    result.facts = report.facts();
    result.state.report_started = report.units() > 0;
    result.state.began = result.marks.find("ff01 ") != std::string::npos;
    result.state.ended = result.marks.find("ff02 ") != std::string::npos;
    return result;
}

}  // namespace tlbscope::capture
