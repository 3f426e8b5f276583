#include "tables/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "core/numbers.h"

namespace tlbscope::tables {

namespace {

constexpr std::uint8_t kReadBit = 1;
constexpr std::uint8_t kWriteBit = 2;
constexpr std::uint8_t kExecuteBit = 4;
constexpr std::string_view kEverywhere = "*";  // a space whose mappings all spaces see; any CPU, any address

std::optional<std::uint64_t> number_of(std::string_view text) {
    const bool hex = text.starts_with("0x") || text.starts_with("0X");
    if (hex) text.remove_prefix(2);
    std::uint64_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value, hex ? 16 : 10);
    if (code != std::errc{} || end != text.data() + text.size() || text.empty()) return {};
    return value;
}

std::optional<std::uint8_t> protection_of(std::string_view text) {
    std::uint8_t bits = 0;
    for (const char c : text) {
        if (c == 'r')
            bits |= kReadBit;
        else if (c == 'w')
            bits |= kWriteBit;
        else if (c == 'x')
            bits |= kExecuteBit;
        else if (c != '-')
            return {};
    }
    return bits;
}

bool overlaps(std::uint64_t a, std::uint64_t a_bytes, std::uint64_t b, std::uint64_t b_bytes) {
    return a < b ? b - a < a_bytes : a - b < b_bytes;
}

// The first of a map's ranges that may overlap one that starts at `start`.
template <class Map>
auto first_overlapping(Map& map, std::uint64_t start) {
    auto at = map.upper_bound(start);
    if (at != map.begin()) {
        auto before = std::prev(at);
        if (start - before->first < before->second.bytes) return before;
    }
    return at;
}

}  // namespace

std::string_view name_of(Fault fault) {
    static constexpr std::string_view kNames[] = {
        "double allocation",    "double free",     "free of an unknown frame", "freed in use",
        "use of a freed table", "overlapping map", "unmap of nothing",         "protect of nothing",
        "stale translation",    "leaked table"};
    return kNames[static_cast<std::size_t>(fault)];
}

// The words of a line: plain ones in order, then KEY=VALUE.
struct Auditor::Words {
    std::uint64_t line = 0;
    std::vector<std::string_view> plain;
    std::map<std::string_view, std::string_view> named;
    std::uint64_t bytes = 0;
    std::uint64_t table = 0;  // in=
    bool pointer = false;     // perm=table
    std::uint8_t protection = 7;

    [[nodiscard]] std::optional<std::uint64_t> number(std::size_t index) const {
        return index < plain.size() ? number_of(plain[index]) : std::nullopt;
    }
};

void Auditor::find(Fault fault, std::uint64_t line, std::string what, std::uint64_t earlier,
                   std::string contradicts) {
    ++found_;
    if (findings_.size() >= options_.most_findings) return;
    findings_.push_back({.fault = fault,
                         .line = line,
                         .earlier = earlier,
                         .what = std::move(what),
                         .contradicts = std::move(contradicts)});
}

void Auditor::line(std::string_view text, std::uint64_t number) {
    if (const std::size_t mark = text.find("audit:"); mark != std::string_view::npos) {
        marked_ = true;
        text.remove_prefix(mark + 6);
    } else if (marked_) {
        return;
    }
    Words words;
    words.line = number;
    words.bytes = options_.page;
    std::string_view verb;
    while (!text.empty()) {
        const std::size_t start = text.find_first_not_of(" \t");
        if (start == std::string_view::npos) break;
        text.remove_prefix(start);
        const std::string_view word = text.substr(0, text.find_first_of(" \t"));
        text.remove_prefix(word.size());
        if (word.starts_with("#")) break;
        if (verb.empty()) {
            verb = word;
        } else if (const std::size_t equals = word.find('='); equals != std::string_view::npos) {
            words.named[word.substr(0, equals)] = word.substr(equals + 1);
        } else {
            words.plain.push_back(word);
        }
    }
    if (verb.empty()) return;
    struct Verb {
        std::string_view name;
        std::size_t least;
        std::size_t most;
        void (Auditor::*run)(const Words&);
    };
    static constexpr std::array kVerbs{Verb{"alloc", 1, 2, &Auditor::alloc},
                                       Verb{"free", 1, 1, &Auditor::release},
                                       Verb{"map", 3, 3, &Auditor::map},
                                       Verb{"unmap", 2, 2, &Auditor::unmap},
                                       Verb{"protect", 3, 3, &Auditor::protect},
                                       Verb{"flush", 3, 3, &Auditor::flush},
                                       Verb{"switch", 2, 2, &Auditor::switch_space},
                                       Verb{"access", 2, 3, &Auditor::access}};
    const auto known =
        std::find_if(kVerbs.begin(), kVerbs.end(), [&](const Verb& v) { return v.name == verb; });
    if (known == kVerbs.end()) {
        problems_.add("no event that an audit log has", number);
        return;
    }
    bool good = words.plain.size() >= known->least && words.plain.size() <= known->most;
    for (const auto& [key, value] : words.named) {
        if (key == "size") {
            words.bytes = number_of(value).value_or(parse_size(std::string(value)));
            good = good && words.bytes != 0;
        } else if (key == "in") {
            const auto table = number_of(value);
            good = good && table.has_value();
            words.table = table.value_or(0);
        } else if (key == "perm" && value == "table") {
            words.pointer = true;
        } else if (key == "perm") {
            const auto bits = protection_of(value);
            good = good && bits.has_value();
            words.protection = bits.value_or(7);
        } else {
            good = false;
        }
    }
    if (!good) {
        problems_.add(fmt::format("words that are not those of {}", known->name), number);
        return;
    }
    const std::uint64_t before = problems_.total();
    (this->*known->run)(words);
    if (problems_.total() == before) ++events_;
}

void Auditor::alloc(const Words& words) {
    const auto address = words.number(0);
    if (!address || (words.plain.size() == 2 && words.plain[1] != "table" && words.plain[1] != "frame")) {
        problems_.add("words that are not those of alloc", words.line);
        return;
    }
    Frame& frame = frames_[*address];
    if (frame.allocated)
        find(Fault::kDoubleAllocation, words.line,
             fmt::format("{:#x} is handed out while it is in use", *address), frame.since,
             "it was allocated and not freed since");
    frame = {};
    frame.allocated = true;
    frame.table = words.plain.size() < 2 || words.plain[1] == "table";
    frame.since = words.line;
}

void Auditor::release(const Words& words) {
    const auto address = words.number(0);
    if (!address) {
        problems_.add("words that are not those of free", words.line);
        return;
    }
    const auto known = frames_.find(*address);
    if (known == frames_.end()) {
        find(Fault::kFreeOfUnknown, words.line,
             fmt::format("{:#x} is freed and was never allocated in this log", *address), 0, "");
        return;
    }
    Frame& frame = known->second;
    if (!frame.allocated) {
        find(Fault::kDoubleFree, words.line, fmt::format("{:#x} is freed", *address), frame.since,
             "it was freed already");
        return;
    }
    if (!frame.entries.empty()) {
        const auto& [space, at] = *frame.entries.begin();
        const auto mapping = spaces_[space].find(at);
        find(Fault::kFreedInUse, words.line,
             fmt::format("the table {:#x} is freed while {} of its entries {} live", *address,
                         frame.entries.size(), frame.entries.size() == 1 ? "is" : "are"),
             mapping == spaces_[space].end() ? 0 : mapping->second.line,
             fmt::format("it maps {:#x} in space {}", at, space));
    } else if (!frame.pointers.empty()) {
        const auto& [who, line] = *frame.pointers.begin();
        find(Fault::kFreedInUse, words.line,
             fmt::format("the table {:#x} is freed while an entry points to it", *address), line,
             fmt::format("it was linked into the table {:#x} at {:#x}", who.first, who.second));
    } else if (!frame.points.empty()) {
        find(Fault::kFreedInUse, words.line,
             fmt::format("the table {:#x} is freed while it points to {} other table{}", *address,
                         frame.points.size(), frame.points.size() == 1 ? "" : "s"),
             frames_[frame.points.begin()->second].pointers[{*address, frame.points.begin()->first}],
             fmt::format("it points to the table {:#x}", frame.points.begin()->second));
    }
    // As if the event had done what it says: what stood in the table is gone, and no CPU was told.
    for (const auto& [space, at] : std::set(frame.entries)) {
        const auto mapping = spaces_[space].find(at);
        if (mapping == spaces_[space].end()) continue;
        end_translations(space, at, mapping->second.bytes, words.line, "lost with its table", 0);
        spaces_[space].erase(mapping);
    }
    for (const auto& [at, lower] : frame.points) frames_[lower].pointers.erase({*address, at});
    for (const auto& [who, line] : frame.pointers) frames_[who.first].points.erase(who.second);
    frame = {};
    frame.since = words.line;
}

// Whether a table may be written to; a finding when it is free.
bool Auditor::table_usable(std::uint64_t table, const Words& words, const char* doing) {
    const auto known = frames_.find(table);
    if (known == frames_.end()) return true;  // from before the log began
    if (!known->second.allocated) {
        find(Fault::kFreedTableUsed, words.line, fmt::format("{} the table {:#x}", doing, table),
             known->second.since, "it was freed");
        return false;
    }
    known->second.used = words.line;
    return true;
}

void Auditor::forget_entry(const std::string& space, Space::iterator mapping) {
    if (mapping->second.table != 0) frames_[mapping->second.table].entries.erase({space, mapping->first});
    spaces_[space].erase(mapping);
}

// Marks what CPUs may hold of a range as gone, or (protect) as good for less.
void Auditor::end_translations(const std::string& space, std::uint64_t start, std::uint64_t bytes,
                               std::uint64_t line, const char* how, std::uint8_t protection) {
    for (auto& [name, cpu] : cpus_) {
        // Anything that overlaps begins less than the largest held range before.
        const std::uint64_t from = start >= cpu.largest ? start - cpu.largest : 0;
        for (auto at = cpu.held.lower_bound({space, from});
             at != cpu.held.end() && at->first.first == space && at->first.second <= start + (bytes - 1);
             ++at) {
            Held& held = at->second;
            if (held.gone != 0 || !overlaps(start, bytes, at->first.second, held.bytes)) continue;
            if ((held.protection & ~protection) == 0) continue;  // nothing was taken away
            held.gone = line;
            held.how = how;
        }
    }
}

void Auditor::map(const Words& words) {
    const std::string space(words.plain[0]);
    const auto address = words.number(1);
    const auto physical = words.number(2);
    if (!address || !physical || *address + (words.bytes - 1) < *address) {
        problems_.add("words that are not those of map", words.line);
        return;
    }
    const bool usable = words.table == 0 || table_usable(words.table, words, "an entry is written to");
    if (words.pointer) {
        const bool target_usable = table_usable(*physical, words, "an entry is made to point to");
        if (words.table != 0 && usable && target_usable) {
            Frame& upper = frames_[words.table];
            if (const auto old = upper.points.find(*address); old != upper.points.end())
                frames_[old->second].pointers.erase({words.table, *address});
            frames_[words.table].points[*address] = *physical;
            frames_[*physical].pointers[{words.table, *address}] = words.line;
            // Tables from before the log are allocated as far as it knows.
            for (const std::uint64_t table : {words.table, *physical})
                if (Frame& frame = frames_[table]; frame.since == 0) frame.allocated = true;
        }
        return;
    }
    Space& mappings = spaces_[space];
    for (auto old = first_overlapping(mappings, *address);
         old != mappings.end() && overlaps(*address, words.bytes, old->first, old->second.bytes);) {
        find(Fault::kOverlap, words.line, fmt::format("{:#x} is mapped in space {}", *address, space),
             old->second.line,
             fmt::format("{:#x} to {:#x} is mapped there already", old->first,
                         old->first + (old->second.bytes - 1)));
        end_translations(space, old->first, old->second.bytes, words.line, "mapped anew", 0);
        const auto next = std::next(old);
        forget_entry(space, old);
        old = next;
    }
    mappings[*address] = {.bytes = words.bytes,
                          .physical = *physical,
                          .table = usable ? words.table : 0,
                          .line = words.line,
                          .protection = words.protection};
    if (words.table != 0 && usable) {
        Frame& frame = frames_[words.table];
        if (frame.since == 0) frame.allocated = true;
        frame.entries.insert({space, *address});
    }
}

void Auditor::unmap(const Words& words) {
    const std::string space(words.plain[0]);
    const auto address = words.number(1);
    if (!address || *address + (words.bytes - 1) < *address) {
        problems_.add("words that are not those of unmap", words.line);
        return;
    }
    if (words.table != 0) (void)table_usable(words.table, words, "an entry is removed from");
    if (words.pointer) {
        Frame& upper = frames_[words.table];
        const auto lower = upper.points.find(*address);
        if (lower == upper.points.end()) {
            find(Fault::kUnmapOfNothing, words.line,
                 fmt::format("no entry of the table {:#x} at {:#x} points to a table", words.table, *address),
                 0, "");
            return;
        }
        frames_[lower->second].pointers.erase({words.table, *address});
        frames_[words.table].points.erase(*address);
        return;
    }
    Space& mappings = spaces_[space];
    bool any = false;
    for (auto old = first_overlapping(mappings, *address);
         old != mappings.end() && overlaps(*address, words.bytes, old->first, old->second.bytes);) {
        any = true;
        end_translations(space, old->first, old->second.bytes, words.line, "unmapped", 0);
        const auto next = std::next(old);
        forget_entry(space, old);
        old = next;
    }
    if (!any)
        find(Fault::kUnmapOfNothing, words.line,
             fmt::format("{:#x} is unmapped in space {} and is not mapped", *address, space), 0, "");
}

void Auditor::protect(const Words& words) {
    const std::string space(words.plain[0]);
    const auto address = words.number(1);
    const auto bits = protection_of(words.plain[2]);
    if (!address || !bits || *address + (words.bytes - 1) < *address) {
        problems_.add("words that are not those of protect", words.line);
        return;
    }
    Space& mappings = spaces_[space];
    bool any = false;
    for (auto at = first_overlapping(mappings, *address);
         at != mappings.end() && overlaps(*address, words.bytes, at->first, at->second.bytes); ++at) {
        any = true;
        end_translations(space, at->first, at->second.bytes, words.line, "protected", *bits);
        at->second.protection = *bits;
    }
    if (!any)
        find(Fault::kProtectOfNothing, words.line,
             fmt::format("{:#x} is protected in space {} and is not mapped", *address, space), 0, "");
}

void Auditor::flush(const Words& words) {
    const bool everywhere = words.plain[2] == kEverywhere;
    const auto address = words.number(2);
    if (!everywhere && !address) {
        problems_.add("words that are not those of flush", words.line);
        return;
    }
    for (auto& [name, cpu] : cpus_) {
        if (words.plain[0] != kEverywhere && words.plain[0] != name) continue;
        std::erase_if(cpu.held, [&](const auto& held) {
            const bool space = words.plain[1] == kEverywhere || words.plain[1] == held.first.first;
            return space &&
                   (everywhere || overlaps(*address, words.bytes, held.first.second, held.second.bytes));
        });
    }
}

void Auditor::switch_space(const Words& words) {
    Cpu& cpu = cpus_[std::string(words.plain[0])];
    cpu.space = words.plain[1];
    if (options_.switch_flushes)
        std::erase_if(cpu.held, [](const auto& held) { return held.first.first != kEverywhere; });
}

void Auditor::access(const Words& words) {
    const std::string cpu_name(words.plain[0]);
    const auto address = words.number(1);
    const auto bits =
        words.plain.size() > 2 ? protection_of(words.plain[2]) : std::optional<std::uint8_t>(kReadBit);
    if (!address || !bits) {
        problems_.add("words that are not those of access", words.line);
        return;
    }
    Cpu& cpu = cpus_[cpu_name];
    for (const std::string& space : {cpu.space, std::string(kEverywhere)}) {
        auto held = cpu.held.upper_bound({space, *address});
        if (held != cpu.held.begin() && !cpu.held.empty()) {
            --held;
            const bool covers =
                held->first.first == space && *address - held->first.second < held->second.bytes;
            // A translation that lost a permission is stale only for an access that needs it.
            const auto now = first_overlapping(spaces_[space], *address);
            const bool allowed_now =
                now != spaces_[space].end() && now->first <= *address &&
                now->second.physical - now->first == held->second.physical - held->first.second &&
                (*bits & ~now->second.protection) == 0;
            if (covers && held->second.gone != 0 && !allowed_now && (*bits & ~held->second.protection) == 0) {
                const std::uint64_t frame = held->second.physical & ~(options_.page - 1);
                const auto reused = frames_.find(frame);
                std::string what = fmt::format(
                    "CPU {} accesses {:#x} in space {} through a translation to {:#x} that it may still hold "
                    "from "
                    "line {}",
                    cpu_name, *address, space, held->second.physical + (*address - held->first.second),
                    held->second.used);
                if (reused != frames_.end() && reused->second.since > held->second.gone)
                    what += fmt::format("; that frame was {} in line {}",
                                        reused->second.allocated ? "given out again" : "freed",
                                        reused->second.since);
                find(Fault::kStale, words.line, what, held->second.gone,
                     fmt::format("it was {}, and no flush on this CPU covers it since", held->second.how));
                cpu.held.erase(held);
                return;
            }
            if (covers && held->second.gone == 0) {
                held->second.used = words.line;
                return;
            }
        }
        const auto mapping = first_overlapping(spaces_[space], *address);
        if (mapping == spaces_[space].end() || mapping->first > *address) continue;
        if ((*bits & ~mapping->second.protection) != 0) break;  // a fault, as it should be
        cpu.largest = std::max(cpu.largest, mapping->second.bytes);
        cpu.held[{space, mapping->first}] = {.bytes = mapping->second.bytes,
                                             .physical = mapping->second.physical,
                                             .protection = mapping->second.protection,
                                             .used = words.line,
                                             .gone = 0,
                                             .how = {}};
        return;
    }
    ++unmapped_accesses_;
}

std::size_t Auditor::tables_left() const {
    return static_cast<std::size_t>(std::count_if(frames_.begin(), frames_.end(), [](const auto& frame) {
        return frame.second.allocated && frame.second.table && frame.second.since != 0;
    }));
}

void Auditor::finish() {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> leaks;  // (line, table)
    for (const auto& [address, frame] : frames_)
        if (frame.allocated && frame.table && frame.since != 0 && frame.entries.empty() &&
            frame.pointers.empty() && frame.points.empty())
            leaks.emplace_back(frame.since, address);
    std::sort(leaks.begin(), leaks.end());
    for (const auto& [line, address] : leaks)
        find(Fault::kLeak, line,
             fmt::format("the table {:#x} is allocated here, holds nothing at the end and is not freed",
                         address),
             frames_[address].used, frames_[address].used == 0 ? "" : "its last use");
}

}  // namespace tlbscope::tables
