#include "tables/proc_maps.h"

#include <fmt/format.h>

#include <charconv>

#include "core/numbers.h"
#include "import_text/problems.h"

namespace tlbscope::tables {

namespace {

struct Line {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::uint8_t protection = 0;
    bool file = false;
    bool kernel = false;  // [vsyscall]: the kernel's, in every process
};

// "00400000-00452000 r-xp 00000000 08:02 173521  /usr/bin/dbus-daemon"
std::optional<Line> range_of(std::string_view text) {
    Line line;
    const char* const last = text.data() + text.size();
    auto [dash, code] = std::from_chars(text.data(), last, line.start, 16);
    if (code != std::errc{} || dash == last || *dash != '-') return {};
    auto [space, end_code] = std::from_chars(dash + 1, last, line.end, 16);
    if (end_code != std::errc{} || last - space < 5 || *space != ' ' || line.end <= line.start) return {};
    const std::string_view flags(space + 1, 4);
    if ((flags[0] != 'r' && flags[0] != '-') || (flags[3] != 'p' && flags[3] != 's')) return {};
    if (flags[0] == 'r') line.protection |= kProtectRead;
    if (flags[1] == 'w') line.protection |= kProtectWrite;
    if (flags[2] == 'x') line.protection |= kProtectExecute;
    line.file = text.find(" /") != std::string_view::npos;
    line.kernel = text.find("[vsyscall]") != std::string_view::npos;
    return line;
}

// "Rss:                 160 kB"
std::optional<std::uint64_t> resident_of(std::string_view text) {
    if (!text.starts_with("Rss:")) return {};
    text.remove_prefix(4);
    while (text.starts_with(' ')) text.remove_prefix(1);
    std::uint64_t kilobytes = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), kilobytes).ec != std::errc{}) return {};
    return kilobytes * 1024;
}

}  // namespace

bool looks_like_maps(std::string_view text) {
    while (text.starts_with('\n')) text.remove_prefix(1);
    return range_of(text.substr(0, text.find('\n'))).has_value();
}

Result<Events> read_maps(import::Lines& lines, std::uint64_t most) {
    Events made;
    made.name = lines.input().name();
    import::Problems problems;
    std::uint32_t process = 1;
    std::uint64_t end = 0;
    bool any_resident = false;
    std::uint64_t start = 0;
    std::uint64_t bytes = 0;
    bool writable = false;
    bool open = false;  // a range whose Rss has not come
    const auto touch = [&](std::uint64_t touched, std::uint64_t number) {
        for (std::uint64_t at = start; at < start + std::min(touched, bytes); at += 4096)
            made.events.push_back({.kind = MemoryEventKind::kFault,
                                   .write = writable,
                                   .process = process,
                                   .start = VirtAddr(at),
                                   .position = number});
        open = false;
    };
    for (;;) {
        const auto text = lines.next();
        if (!text) {
            if (made.events.empty()) return std::unexpected(text.error());
            made.notes.push_back(fmt::format("{}: {}", made.name, text.error().what));
            break;
        }
        if (!*text) break;
        if ((*text)->empty()) continue;
        if (const auto line = range_of(**text)) {
            if (open && !any_resident) touch(most * 4096, lines.number());
            if (line->kernel) {
                open = false;
                continue;
            }
            if (line->start < end) ++process;
            end = line->end;
            start = line->start;
            bytes = line->end - line->start;
            writable = (line->protection & kProtectWrite) != 0;
            open = line->protection != 0;
            made.events.push_back({.kind = MemoryEventKind::kMap,
                                   .protection = line->protection,
                                   .file = line->file,
                                   .process = process,
                                   .start = VirtAddr(start),
                                   .bytes = bytes,
                                   .position = lines.number()});
        } else if (const auto resident = resident_of(**text)) {
            any_resident = true;
            if (open) touch(*resident, lines.number());
        } else if ((*text)->find(':') == std::string_view::npos) {
            problems.add("neither a range nor a field of smaps", lines.number());
        }
    }
    if (open && !any_resident) touch(most * 4096, lines.number());
    if (made.events.empty())
        return fail(made.name, "there is no mapped range in it",
                    "give /proc/PID/maps, or better /proc/PID/smaps");
    for (const std::string& note : problems.notes(made.name)) made.notes.push_back(note);
    made.notes.push_back(
        any_resident
            ? "which pages were resident is not in the file: as many from each range's start"
            : fmt::format("maps does not tell which pages were touched: the first {} of each range; smaps "
                          "tells how many",
                          grouped(most)));
    for (std::uint32_t each = 1; each <= process; ++each)
        made.events.push_back({.kind = MemoryEventKind::kExit, .process = each, .position = lines.number()});
    return made;
}

}  // namespace tlbscope::tables
