// Metadata is JSON inside the file: it grows with every stage, and an older reader skips the keys it does not
// know.
#include "recording/metadata.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "recording/writer.h"

namespace tlbscope::recording {

namespace {
using nlohmann::json;

// A guest's program names and paths need not be UTF-8; what is not becomes U+FFFD.
std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }
}  // namespace

std::string to_json(const Metadata& m) {
    json spaces = json::array();
    for (const Space& s : m.spaces)
        spaces.push_back({{"id", s.id.value()}, {"pid", s.pid}, {"name", s.name}, {"task", s.task}});
    json maps = json::array();
    for (const MappedRange& r : m.maps)
        maps.push_back({{"space", r.space.value()},
                        {"start", r.start.value()},
                        {"end", r.end.value()},
                        {"offset", r.file_offset},
                        {"protection", r.protection},
                        {"path", r.path},
                        {"build_id", r.build_id}});
    return dump(json{{"tool_version", m.tool_version},
                     {"command", m.command},
                     {"target", m.target},
                     {"system", m.system},
                     {"kernel_base", m.kernel_base},
                     {"qemu_version", m.qemu_version},
                     {"cpu_model", m.cpu_model},
                     {"kernel", m.kernel},
                     {"kernel_command_line", m.kernel_command_line},
                     {"kernel_build_id", m.kernel_build_id},
                     {"cpus", m.cpus},
                     {"deterministic", m.deterministic},
                     {"interface_version", m.interface_version},
                     {"granularity", name_of(m.granularity)},
                     {"window", m.window},
                     {"outcome", m.outcome},
                     {"not_recorded", m.not_recorded},
                     {"spaces", spaces},
                     {"maps", maps},
                     {"early_ends", m.early_ends},
                     {"uncertain_instructions", m.uncertain_instructions},
                     {"invalidations", m.invalidations},
                     {"barriers", m.barriers},
                     {"page_bytes", m.page_bytes},
                     {"kernel_events", m.kernel_events},
                     {"lost_kernel_events", m.lost_kernel_events}});
}

Result<Metadata> metadata_from_json(const std::string& text, const std::string& where) {
    // All numbers are whole; converting another could overflow.
    bool fractions = false;
    const auto look = [&](int, json::parse_event_t, const json& value) {
        fractions |= value.is_number_float();
        return true;
    };
    const json j = json::parse(text, look, false);
    if (!j.is_object() || fractions)
        return fail(where, "the recording's metadata is not readable", "record again");
    Metadata m;
    try {
        m.tool_version = j.value("tool_version", "");
        m.command = j.value("command", std::vector<std::string>{});
        m.target = j.value("target", "");
        m.system = j.value("system", false);
        m.kernel_base = j.value("kernel_base", m.kernel_base);
        m.qemu_version = j.value("qemu_version", "");
        m.cpu_model = j.value("cpu_model", "");
        m.kernel = j.value("kernel", "");
        m.kernel_command_line = j.value("kernel_command_line", "");
        m.kernel_build_id = j.value("kernel_build_id", "");
        m.cpus = j.value("cpus", 1U);
        m.deterministic = j.value("deterministic", false);
        m.interface_version = j.value("interface_version", 0U);
        const std::string granularity = j.value("granularity", "full");
        for (const Granularity known : {Granularity::kPage, Granularity::kNone})
            if (granularity == name_of(known)) m.granularity = known;
        m.window = j.value("window", "");
        m.outcome = j.value("outcome", "");
        m.not_recorded = j.value("not_recorded", std::vector<std::string>{});
        for (const json& s : j.value("spaces", json::array()))
            m.spaces.push_back({.id = SpaceId(s.value("id", 0U)),
                                .pid = s.value("pid", 0U),
                                .name = s.value("name", ""),
                                .task = s.value("task", std::uint64_t{0})});
        for (const json& r : j.value("maps", json::array()))
            m.maps.push_back({.space = SpaceId(r.value("space", 0U)),
                              .start = VirtAddr(r.value("start", std::uint64_t{0})),
                              .end = VirtAddr(r.value("end", std::uint64_t{0})),
                              .file_offset = r.value("offset", std::uint64_t{0}),
                              .protection = r.value("protection", ""),
                              .path = r.value("path", ""),
                              .build_id = r.value("build_id", "")});
        m.early_ends = j.value("early_ends", std::uint64_t{0});
        m.uncertain_instructions = j.value("uncertain_instructions", std::uint64_t{0});
        const auto counts = [&](const char* key, auto& into) {
            const auto list = j.value(key, std::vector<std::uint64_t>{});
            std::copy_n(list.begin(), std::min(list.size(), into.size()), into.begin());
        };
        counts("invalidations", m.invalidations);
        counts("barriers", m.barriers);
        m.page_bytes = j.value("page_bytes", 0U);
        m.kernel_events = j.value("kernel_events", false);
        m.lost_kernel_events = j.value("lost_kernel_events", std::uint64_t{0});
    } catch (const json::exception& e) {
        return fail(where, std::string("the recording's metadata is malformed (") + e.what() + ")",
                    "record again");
    }
    return m;
}

}  // namespace tlbscope::recording
