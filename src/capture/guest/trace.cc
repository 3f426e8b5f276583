// The kernel's ring buffer (include/linux/ring_buffer.h, Documentation/trace/ring-buffer-design.rst): a page
// starts with the time of its first event and the number of bytes that follow; an event is a word of 5 bits
// of type and 27 bits of time since the one before, then its data:
//   1 to 28  data of 4 * type bytes          29  padding; without a time, the page's end
//   0        data of the next word's bytes   30  more time: next word << 27
//                                            31  the time itself: next word << 27 | the 27 bits
// What the data mean stands in the events' format files, which the guest sends too.
//
// A system call is told at its entry, with the arguments, and at its exit, with the result; the event that is
// made of both belongs where the call began, since what the kernel did because of it lies in between. So the
// pages are read twice: first for the calls, which are few, then for everything, in one pass and without
// holding it.
#include "capture/guest/trace.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <optional>
#include <tuple>

#include <fmt/format.h>

#include "capture/guest/messages.h"
#include "capture/guest/tasks.h"

namespace tlbscope::capture {

namespace {

using recording::KernelEvent;

enum class Event : std::uint8_t {
    kNone,
    kPrint,
    kCallEnter,
    kCallExit,
    kSwitch,
    kFork,
    kExec,
    kExit,
    kUserFault,
    kKernelFault,
    kFault,
    kClone,
    kTlbie,
    kTlbFlush,
    kFlushGather,
    kFlushRange,
    kFlushPage,
    kFlushHuge,
    kFlushMm,
    kFlushKernel,
    kFlushEverything,
    kExitSpace,
    kProtect,
    kUnmap,
};

struct Known {
    std::string_view name;
    Event event;
    std::array<std::string_view, 8> fields;  // in the order that the reader below numbers them
};
constexpr Known kKnown[] = {
    {"print", Event::kPrint, {"buf"}},
    {"sys_enter", Event::kCallEnter, {"id", "args"}},
    {"sys_exit", Event::kCallExit, {"id", "ret"}},
    {"sched_switch", Event::kSwitch, {"prev_pid", "next_pid"}},
    {"sched_process_fork", Event::kFork, {"parent_pid", "child_pid"}},
    {"sched_process_exec", Event::kExec, {"pid", "old_pid"}},
    {"sched_process_exit", Event::kExit, {"pid"}},
    {"page_fault_user", Event::kUserFault, {"address", "error_code"}},
    {"page_fault_kernel", Event::kKernelFault, {"address", "error_code"}},
    {"fault", Event::kFault, {"address", "flags", "mm"}},
    {"clone", Event::kClone, {"flags"}},
    {"tlbie", Event::kTlbie, {"lpid", "local", "rb", "rs", "ric", "prs", "r"}},
    {"tlb_flush", Event::kTlbFlush, {"reason", "pages"}},
    {"flush_gather", Event::kFlushGather, {"mm", "start", "end", "bits", "page"}},
    {"flush_range", Event::kFlushRange, {"mm", "start", "end"}},
    {"flush_page", Event::kFlushPage, {"mm", "start"}},
    {"flush_huge", Event::kFlushHuge, {"mm", "start", "end"}},
    {"flush_collapsed", Event::kFlushHuge, {"mm", "start"}},
    {"flush_mm", Event::kFlushMm, {"mm", "start", "end", "shift", "freed"}},
    {"flush_all_mm", Event::kFlushMm, {"mm"}},
    {"flush_kernel", Event::kFlushKernel, {"start", "end"}},
    {"flush_everything", Event::kFlushEverything, {}},
    {"exit_space", Event::kExitSpace, {"mm"}},
    {"protect", Event::kProtect, {"mm", "start", "end"}},
    {"unmap", Event::kUnmap, {"mm", "start", "end"}},
};

struct Field {
    std::size_t offset = 0;
    std::size_t size = 0;  // 0: the kernel does not have it
};
struct Format {
    const Known* known = nullptr;
    std::array<Field, 8> fields;
};

constexpr std::size_t kCommonPid =
    4;  // u16 type, u8 flags, u8 preempt_count, s32 pid: the same for every event

std::string_view line_value(std::string_view text, std::string_view key) {
    const std::size_t at = text.find(key);
    if (at == std::string_view::npos) return {};
    text.remove_prefix(at + key.size());
    return text.substr(0, text.find_first_of(";\n"));
}

std::optional<std::size_t> number(std::string_view text) {
    std::size_t value = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc()) return std::nullopt;
    return value;
}

// Lines "\tfield:unsigned long args[6];\toffset:16;\tsize:48;\tsigned:0;".
std::map<std::uint16_t, Format> read_formats(const std::vector<std::string>& texts) {
    std::map<std::uint16_t, Format> formats;
    for (const std::string& text : texts) {
        const std::string_view name = line_value(text, "name: ");
        const auto id = number(line_value(text, "ID: "));
        const auto* known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                         [&](const Known& k) { return k.name == name; });
        if (!id || *id > 0xffff || known == std::end(kKnown)) continue;
        Format format{.known = known, .fields = {}};
        for (std::size_t at = text.find("field:"); at != std::string::npos;
             at = text.find("field:", at + 1)) {
            const std::string_view line = std::string_view(text).substr(at, text.find('\n', at) - at);
            std::string_view declared = line_value(line, "field:");
            if (const std::size_t bracket = declared.find('[');
                bracket != std::string_view::npos && declared.find(' ', bracket) == std::string_view::npos)
                declared = declared.substr(0, bracket);
            declared = declared.substr(declared.find_last_of(" *") + 1);
            const auto offset = number(line_value(line, "offset:"));
            const auto size = number(line_value(line, "size:"));
            const auto field = std::find(known->fields.begin(), known->fields.end(), declared);
            if (!offset || !size || field == known->fields.end() || declared.empty()) continue;
            format.fields[static_cast<std::size_t>(field - known->fields.begin())] = {*offset, *size};
        }
        formats[static_cast<std::uint16_t>(*id)] = format;
    }
    return formats;
}

// One event's data, by the numbers of the fields in kKnown.
class Data {
  public:
    Data(std::span<const std::uint8_t> bytes, const Format& format) : bytes_(bytes), format_(format) {}
    // 0 where the event has no such field.
    [[nodiscard]] std::uint64_t of(std::size_t field, std::size_t index = 0) const {
        const Field& f = format_.fields[field];
        const std::size_t size = f.size > 8 ? 8 : f.size;
        const std::size_t at = f.offset + index * 8;
        std::uint64_t value = 0;
        if (size == 0 || at + size > bytes_.size()) return 0;
        std::memcpy(&value, bytes_.data() + at, size);  // guests that have these events are little-endian
        return value;
    }
    [[nodiscard]] std::uint32_t word(std::size_t field) const {
        return static_cast<std::uint32_t>(of(field));
    }
    [[nodiscard]] bool has(std::size_t field) const { return format_.fields[field].size != 0; }
    [[nodiscard]] std::uint32_t thread() const {
        std::uint32_t value = 0;
        if (bytes_.size() >= kCommonPid + 4) std::memcpy(&value, bytes_.data() + kCommonPid, 4);
        return value;
    }
    [[nodiscard]] std::string_view text(std::size_t field) const {
        const Field& f = format_.fields[field];
        if (f.offset >= bytes_.size()) return {};
        const auto* start = reinterpret_cast<const char*>(bytes_.data()) + f.offset;
        return {start, ::strnlen(start, bytes_.size() - f.offset)};
    }
    [[nodiscard]] Event event() const { return format_.known->event; }

  private:
    std::span<const std::uint8_t> bytes_;
    const Format& format_;
};

std::uint32_t word_at(std::span<const std::uint8_t> bytes, std::size_t at) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, 4);
    return value;
}

// Visits a page's events with their times; false when it is not what a kernel writes.
template <class Visit>
Result<bool> each_event(std::span<const std::uint8_t> page, std::uint64_t& unknown,
                        const std::map<std::uint16_t, Format>& formats, Visit&& visit) {
    if (page.size() < 16) return false;
    std::uint64_t time = 0;
    std::uint64_t commit = 0;
    std::memcpy(&time, page.data(), 8);
    std::memcpy(&commit, page.data() + 8, 8);
    commit &= 0xfffff;
    if (commit > page.size() - 16) return false;
    const auto bytes = page.subspan(16, commit);
    for (std::size_t at = 0; at + 4 <= bytes.size();) {
        const std::uint32_t head = word_at(bytes, at);
        const std::uint32_t type = head & 31;
        const std::uint32_t delta = head >> 5;
        at += 4;
        std::size_t length = std::size_t{type} * 4;
        if (type == 29 && delta == 0) break;
        if (type == 0 || type >= 29) {
            if (at + 4 > bytes.size()) return false;
            const std::uint32_t next = word_at(bytes, at);
            if (type == 31) {
                constexpr std::uint64_t kAbove = std::uint64_t{0xf8} << 56;  // the word has no room for these
                time = (time & kAbove) | (std::uint64_t{next} << 27 | delta);
                at += 4;
                continue;
            }
            time += delta;
            if (type == 30) {
                time += std::uint64_t{next} << 27;
                at += 4;
                continue;
            }
            if (next < 4) return false;
            length = next - 4;
            at += 4;
            if (type == 29) {
                at += length;
                continue;
            }
        } else {
            time += delta;
        }
        if (length > bytes.size() - at) return false;
        const auto data = bytes.subspan(at, length);
        at += (length + 3) / 4 * 4;
        if (data.size() < 8) return false;
        const auto id = static_cast<std::uint16_t>(data[0] | data[1] << 8);
        const auto format = formats.find(id);
        if (format == formats.end()) {
            ++unknown;
            continue;
        }
        if (Result<void> done = visit(time, Data(data, format->second)); !done)
            return std::unexpected(done.error());
    }
    return true;
}

// Numbers of the system calls, arch/*/entry/syscalls/syscall*.tbl.
struct CallNumbers {
    std::uint64_t map, protect, unmap, move_break, remap, advise;
};
constexpr CallNumbers kX86Calls{9, 10, 11, 12, 25, 28};
constexpr CallNumbers kPowerCalls{90, 125, 91, 45, 163, 205};

constexpr std::uint64_t kMapAnonymous = 0x20;    // MAP_ANONYMOUS
constexpr std::uint64_t kDontNeed = 4;           // MADV_DONTNEED
constexpr std::uint64_t kCloneVm = 0x100;        // CLONE_VM
constexpr std::uint64_t kCloneThread = 0x10000;  // CLONE_THREAD
constexpr std::uint64_t kFaultWrite = 1;         // FAULT_FLAG_WRITE
constexpr std::uint64_t kErrorWrite = 2;         // X86_PF_WRITE
constexpr std::uint64_t kFullMm = 1;             // bits of struct mmu_gather
constexpr std::uint64_t kNeedFlushAll = 2;
constexpr std::uint64_t kFreedTables = 4;

class TraceReader {
  public:
    TraceReader(const GuestFacts& facts, bool x86)
        : facts_(facts),
          x86_(x86),
          formats_(read_formats(facts.trace_formats)),
          page_bytes_(facts.page_size == 0 ? 4096 : facts.page_size) {
        for (const auto& [thread, task] : tasks_by_tid(facts, {})) processes_[thread] = task.pid;
    }

    Result<TraceFacts> run(const std::function<Result<void>(std::uint32_t, const KernelEvent&)>& visit) {
        auto first = each([&](std::uint32_t cpu, std::uint64_t time, const Data& data) -> Result<void> {
            look(cpu, time, data);
            return {};
        });
        if (!first) return std::unexpected(first.error());
        found_.unknown = unknown_;
        if (!found_.has_begin) return found_;
        for (auto& [thread, clones] : clones_) std::sort(clones.begin(), clones.end());
        // A process is the thread that began it.
        std::sort(forks_.begin(), forks_.end());
        for (const auto& [time, parent, child] : forks_)
            processes_[child] = (clone_flags(parent, time) & kCloneThread) != 0 ? process(parent) : child;
        make_calls();
        std::map<std::uint32_t, std::size_t> next;
        const auto give_calls = [&](std::uint32_t cpu, std::uint64_t until) -> Result<void> {
            auto& at = next[cpu];
            const auto& own = calls_[cpu];
            for (; at < own.size() && own[at].time <= until; ++at)
                if (inside(own[at].time))
                    if (auto done = visit(cpu, own[at]); !done) return done;
            return {};
        };
        auto second = each([&](std::uint32_t cpu, std::uint64_t time, const Data& data) -> Result<void> {
            if (auto done = give_calls(cpu, time); !done) return done;
            if (!inside(time)) return {};
            const auto event = make(cpu, time, data);
            return event ? visit(cpu, *event) : Result<void>{};
        });
        if (!second) return std::unexpected(second.error());
        for (const auto& [cpu, own] : calls_)
            if (auto done = give_calls(cpu, ~std::uint64_t{0}); !done) return std::unexpected(done.error());
        return found_;
    }

  private:
    template <class Visit>
    Result<void> each(Visit&& visit) {
        unknown_ = 0;
        for (const auto& [cpu, pages] : facts_.trace)
            for (std::size_t n = 0; n < pages.size(); ++n) {
                const auto good =
                    each_event(pages[n], unknown_, formats_,
                               [&](std::uint64_t time, const Data& data) { return visit(cpu, time, data); });
                if (!good) return std::unexpected(good.error());
                if (!*good)
                    return fail(fmt::format("guest's trace of CPU {}:page {}", cpu, n),
                                "is not a page of a kernel's trace buffer", "please report this");
            }
        return {};
    }

    // Strictly between the markers.
    [[nodiscard]] bool inside(std::uint64_t time) const {
        return found_.has_begin && time > begin_ && (!found_.has_end || time < end_);
    }
    [[nodiscard]] std::uint32_t process(std::uint32_t thread) const {
        const auto known = processes_.find(thread);
        return known == processes_.end() ? thread : known->second;
    }

    // What has to be known before the events can be told in order.
    void look(std::uint32_t cpu, std::uint64_t time, const Data& data) {
        switch (data.event()) {
            case Event::kPrint:
                if (data.text(0).starts_with(kTraceBegin)) {
                    found_.has_begin = true;
                    begin_ = time;
                } else if (data.text(0).starts_with(kTraceEnd)) {
                    found_.has_end = true;
                    end_ = time;
                }
                break;
            case Event::kCallEnter: {
                Half half{.time = time, .cpu = cpu, .thread = data.thread(), .id = data.of(0)};
                for (std::size_t i = 0; i < half.arguments.size(); ++i) half.arguments[i] = data.of(1, i);
                halves_.push_back(half);
                break;
            }
            case Event::kCallExit:
                halves_.push_back({.time = time,
                                   .cpu = cpu,
                                   .thread = data.thread(),
                                   .exit = true,
                                   .id = data.of(0),
                                   .arguments = {data.of(1)}});
                break;
            case Event::kClone:
                clones_[data.thread()].emplace_back(time, data.of(0));
                break;
            case Event::kFork:
                forks_.emplace_back(time, data.word(0), data.word(1));
                break;
            default:
                break;
        }
    }

    struct Half {
        std::uint64_t time = 0;
        std::uint32_t cpu = 0;
        std::uint32_t thread = 0;
        bool exit = false;
        std::uint64_t id = 0;
        std::array<std::uint64_t, 5> arguments{};
    };

    // Entries and exits to calls_, each CPU's in order of time.
    void make_calls() {
        std::stable_sort(halves_.begin(), halves_.end(),
                         [](const Half& a, const Half& b) { return a.time < b.time; });
        std::map<std::uint32_t, const Half*> open;
        for (const Half& half : halves_) {
            if (!half.exit) {
                open[half.thread] = &half;
                continue;
            }
            const auto entry = open.find(half.thread);
            if (entry == open.end() || entry->second->id != half.id) continue;
            if (auto event = call(*entry->second, half.arguments[0])) calls_[event->cpu].push_back(*event);
            open.erase(entry);
        }
        for (auto& [cpu, own] : calls_)
            std::stable_sort(own.begin(), own.end(),
                             [](const MemoryEvent& a, const MemoryEvent& b) { return a.time < b.time; });
    }

    [[nodiscard]] std::optional<MemoryEvent> call(const Half& entry, std::uint64_t result) const {
        const CallNumbers& numbers = x86_ ? kX86Calls : kPowerCalls;
        const bool failed = result > ~std::uint64_t{4095};
        const auto& a = entry.arguments;
        const auto whole_pages = [&](std::uint64_t bytes) {
            return (bytes + page_bytes_ - 1) / page_bytes_ * page_bytes_;
        };
        MemoryEvent event{
            .cpu = entry.cpu, .process = process(entry.thread), .thread = entry.thread, .time = entry.time};
        if (failed) return std::nullopt;
        if (entry.id == numbers.map) {
            event.kind = MemoryEventKind::kMap;
            event.start = VirtAddr(result);
            event.bytes = whole_pages(a[1]);
            event.protection = static_cast<std::uint8_t>(a[2] & 7);
            event.file = (a[3] & kMapAnonymous) == 0;
        } else if (entry.id == numbers.unmap) {
            event.kind = MemoryEventKind::kUnmap;
            event.start = VirtAddr(a[0]);
            event.bytes = whole_pages(a[1]);
        } else if (entry.id == numbers.protect) {
            event.kind = MemoryEventKind::kProtect;
            event.start = VirtAddr(a[0]);
            event.bytes = whole_pages(a[1]);
            event.protection = static_cast<std::uint8_t>(a[2] & 7);
        } else if (entry.id == numbers.remap) {
            event.kind = MemoryEventKind::kRemap;
            event.old_start = VirtAddr(a[0]);
            event.old_bytes = whole_pages(a[1]);
            event.start = VirtAddr(result);
            event.bytes = whole_pages(a[2]);
        } else if (entry.id == numbers.move_break) {
            event.kind = MemoryEventKind::kBreak;
            event.start = VirtAddr(result);
        } else if (entry.id == numbers.advise && a[2] == kDontNeed) {
            event.kind = MemoryEventKind::kDiscard;
            event.start = VirtAddr(a[0]);
            event.bytes = whole_pages(a[1]);
        } else {
            return std::nullopt;
        }
        return event;
    }

    // The flags of the thread's last clone before `time`.
    [[nodiscard]] std::uint64_t clone_flags(std::uint32_t thread, std::uint64_t time) const {
        const auto own = clones_.find(thread);
        if (own == clones_.end()) return 0;
        const auto after =
            std::upper_bound(own->second.begin(), own->second.end(), std::pair(time, ~std::uint64_t{0}));
        return after == own->second.begin() ? 0 : std::prev(after)->second;
    }

    std::optional<KernelEvent> make(std::uint32_t cpu, std::uint64_t time, const Data& data) const {
        const std::uint32_t thread = data.thread();
        MemoryEvent memory{.cpu = cpu, .process = process(thread), .thread = thread, .time = time};
        MemoryCall called{.cpu = cpu, .process = process(thread), .thread = thread, .time = time};
        switch (data.event()) {
            case Event::kNone:
            case Event::kPrint:
            case Event::kCallEnter:
            case Event::kCallExit:
            case Event::kClone:
                return std::nullopt;
            case Event::kSwitch:
                memory.kind = MemoryEventKind::kSwitch;
                memory.thread = data.word(1);
                memory.process = process(memory.thread);
                return memory;
            case Event::kFork:
                memory.kind = MemoryEventKind::kFork;
                memory.thread = data.word(0);
                memory.process = process(memory.thread);
                memory.child = data.word(1);
                memory.shares_space = (clone_flags(memory.thread, time) & kCloneVm) != 0;
                return memory;
            case Event::kExec:
                memory.kind = MemoryEventKind::kExec;
                memory.thread = data.word(0);
                memory.process = process(memory.thread);
                return memory;
            case Event::kExit:
                memory.kind = MemoryEventKind::kExit;
                memory.thread = data.word(0);
                memory.process = process(memory.thread);
                return memory;
            case Event::kUserFault:
            case Event::kKernelFault:
                memory.kind = MemoryEventKind::kFault;
                memory.start = VirtAddr(data.of(0));
                memory.write = (data.of(1) & kErrorWrite) != 0;
                return memory;
            case Event::kFault:
                memory.kind = MemoryEventKind::kFault;
                memory.start = VirtAddr(data.of(0));
                memory.write = (data.of(1) & kFaultWrite) != 0;
                return memory;
            case Event::kTlbie:
                return tlbie(cpu, time, data);
            case Event::kTlbFlush:
                return tlb_flush(cpu, time, data);
            default:
                return flush_call(called, data);
        }
    }

    // Power ISA 3.0B book III 5.9.3.3; arch/powerpc/mm/book3s64/radix_tlb.c.
    static KernelEvent tlbie(std::uint32_t cpu, std::uint64_t time, const Data& data) {
        constexpr std::uint64_t kRicWalkCache = 1;
        constexpr std::uint64_t kRicAll = 2;
        TlbOperation operation{.source = TlbOperation::Source::kTlbie, .cpu = cpu, .time = time};
        TlbieOperands& operands = operation.operands;
        operands = {.lpid = data.of(0),
                    .local = data.of(1) != 0,
                    .rb = data.of(2),
                    .rs = data.of(3),
                    .ric = data.of(4),
                    .prs = data.of(5),
                    .r = data.of(6)};
        operation.local = operands.local;
        operation.walk_cache = operands.ric == kRicWalkCache || operands.ric == kRicAll;
        operation.hardware = operands.prs != 0 ? operands.rs >> 32 : operands.lpid;
        const std::uint64_t selector = operands.rb >> 10 & 3;  // IS
        if (operands.ric == kRicWalkCache) {
            operation.scope = TlbScope::kWalkCache;
        } else if (selector == 0) {
            operation.scope = TlbScope::kPage;
            operation.start = VirtAddr(operands.rb & ~std::uint64_t{0xfff});
            // AP: 4K 0, 64K 5, 2M 1, 1G 2.
            const std::uint64_t size = operands.rb >> 5 & 7;
            operation.bytes = std::uint64_t{1} << (size == 0 ? 12 : size == 5 ? 16 : size == 1 ? 21 : 30);
        } else {
            operation.scope = selector == 1 ? TlbScope::kPid : TlbScope::kAll;
        }
        return operation;
    }

    [[nodiscard]] KernelEvent tlb_flush(std::uint32_t cpu, std::uint64_t time, const Data& data) const {
        TlbOperation operation{.source = TlbOperation::Source::kTlbFlush, .cpu = cpu, .time = time};
        operation.reason = data.word(0);
        const std::uint64_t pages = data.of(1);
        operation.local = operation.reason != 4;  // remote IPI send
        if (pages == ~std::uint64_t{0}) {
            operation.scope = TlbScope::kPid;
        } else {
            operation.scope = pages == 1 ? TlbScope::kPage : TlbScope::kRange;
            operation.bytes = pages * page_bytes_;
        }
        return operation;
    }

    static std::optional<KernelEvent> flush_call(MemoryCall called, const Data& data) {
        const auto range = [&](std::size_t first) {
            called.start = data.of(first);
            called.end = data.of(first + 1);
        };
        const auto shift_of = [](std::uint64_t bytes) {
            std::uint8_t shift = 0;
            while (bytes > 1) bytes >>= 1, ++shift;
            return shift;
        };
        called.space = data.of(0);
        switch (data.event()) {
            case Event::kFlushGather: {
                called.kind = MemoryCallKind::kGather;
                range(1);
                const std::uint64_t bits = data.of(3);
                called.whole = (bits & (kFullMm | kNeedFlushAll)) != 0;
                called.freed_tables = (bits & kFreedTables) != 0;
                called.page_shift = shift_of(data.of(4));
                return called;
            }
            case Event::kFlushRange:
                called.kind = MemoryCallKind::kRange;
                range(1);
                return called;
            case Event::kFlushPage:
                called.kind = MemoryCallKind::kPage;
                called.start = data.of(1);
                return called;
            case Event::kFlushHuge:
                called.kind = MemoryCallKind::kHuge;
                called.start = data.of(1);
                called.end = data.has(2) ? data.of(2) : called.start;
                return called;
            case Event::kFlushMm:
                // On x86 one function serves all: its range says what is meant.
                called.kind = MemoryCallKind::kSpace;
                if (data.has(2)) {
                    range(1);
                    called.whole = called.end == ~std::uint64_t{0};
                    called.page_shift = static_cast<std::uint8_t>(data.of(3));
                    // flush_tlb_mm gives no page size; a gather does, even the last one of a space.
                    if (!called.whole || called.page_shift != 0) called.kind = MemoryCallKind::kGather;
                    called.freed_tables = data.of(4) != 0;
                }
                return called;
            case Event::kFlushKernel:
                called.kind = MemoryCallKind::kKernel;
                called.space = 0;
                range(0);
                return called;
            case Event::kFlushEverything:
                called.kind = MemoryCallKind::kEverything;
                called.space = 0;
                return called;
            case Event::kExitSpace:
                called.kind = MemoryCallKind::kExit;
                return called;
            case Event::kProtect:
                called.kind = MemoryCallKind::kProtect;
                range(1);
                return called;
            case Event::kUnmap:
                called.kind = MemoryCallKind::kUnmap;
                range(1);
                return called;
            default:
                return std::nullopt;
        }
    }

    const GuestFacts& facts_;
    bool x86_;
    std::map<std::uint16_t, Format> formats_;
    std::uint64_t page_bytes_;
    TraceFacts found_;
    std::uint64_t unknown_ = 0;
    std::uint64_t begin_ = 0;
    std::uint64_t end_ = 0;
    std::map<std::uint32_t, std::uint32_t> processes_;                            // by thread
    std::vector<std::tuple<std::uint64_t, std::uint32_t, std::uint32_t>> forks_;  // time, parent, child
    std::vector<Half> halves_;
    std::map<std::uint32_t, std::vector<MemoryEvent>> calls_;  // by CPU
    std::map<std::uint32_t, std::vector<std::pair<std::uint64_t, std::uint64_t>>>
        clones_;  // by thread: time, flags
};

}  // namespace

Result<TraceFacts> read_trace(
    const GuestFacts& facts, bool x86,
    const std::function<Result<void>(std::uint32_t cpu, const KernelEvent&)>& visit) {
    return TraceReader(facts, x86).run(visit);
}

}  // namespace tlbscope::capture
