// Problem: the same address is a different function in every space, and a replay asks about millions of
// places. Idea: each file is read once into a table of its own addresses; a space is a sorted list of its
// maps, each with the file's load address. A look-up is two binary searches. Ids are given to all functions
// when loading, in an order that depends on the recording and the files only, so they do not depend on who
// asks first. Rejected: one flat table per space, which repeats the C library for every process of a build.
#include "explain/names.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>

#include "core/files.h"
#include "explain/demangle.h"
#include "explain/jit_map.h"
#include "explain/kallsyms.h"
#include "explain/objects.h"
#include "explain/stacks.h"

namespace tlbscope::explain {

namespace {

using recording::MappedRange;
using recording::Metadata;

constexpr std::uint64_t kPage = 4096;

struct Function {
    std::string name;
    std::string_view object;
    std::uint64_t start = 0;  // of its first part, in its table's addresses
    std::uint64_t bytes = 0;
    bool unnamed = false;
    mutable std::once_flag shown_once;
    mutable std::string shown;
};

// A table of addresses with ids instead of names.
struct Ids {
    const SymbolTable* table = nullptr;
    std::uint32_t first = 0;  // id of the table's first name
    [[nodiscard]] std::uint32_t find(std::uint64_t address) const {
        if (table == nullptr) return 0;
        const auto name = table->find(address);
        return name ? first + *name : 0;
    }
};

struct ObjectIds {
    Ids named;
    Ids unnamed;
};

// A range of a space.
struct Place {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::uint64_t file_offset = 0;
    std::string_view name;  // path, or "[heap]" ...
    bool executable = false;
    const Object* object = nullptr;
    std::uint64_t base = 0;  // address in memory - address in the object
};

bool is_anonymous(std::string_view name) { return name.empty() || name == "[anon]"; }

}  // namespace

struct Names::State {
    std::uint64_t kernel_base = ~std::uint64_t{0};
    bool demangle = true;
    std::deque<Function> functions;  // by id; 0 is [unknown]
    std::deque<std::string> texts;
    std::deque<SymbolTable> tables;
    std::unique_ptr<Objects> objects;
    std::unordered_map<const Object*, ObjectIds> object_ids;
    std::vector<Ids> kernel;                       // the kernel, then its modules
    std::vector<AddressRange> kernel_ranges;       // what each of them spans
    std::map<SpaceId, std::vector<Place>> places;  // by address, without overlap
    std::map<SpaceId, Ids> jits;
    std::map<SpaceId, SpaceId> borrowed;  // by kernel thread
    KernelLayout layout{"", {}};
    StackPages stacks;
    std::map<SpaceId, AddressRange> heaps;
    std::vector<std::string> warnings;
    std::string stack_note;

    Ids add_table(const SymbolTable& table, std::string_view object, bool unnamed) {
        const Ids ids{.table = &table, .first = static_cast<std::uint32_t>(functions.size())};
        for (const std::string& name : table.names()) {
            Function& function = functions.emplace_back();
            function.name = name;
            function.object = object;
            function.unnamed = unnamed;
        }
        table.for_each([&](std::uint64_t start, std::uint64_t end, std::uint32_t name) {
            Function& function = functions[ids.first + name];
            if (function.bytes == 0) function.start = start;
            function.bytes += end - start;
        });
        return ids;
    }
    std::string_view keep(std::string text) { return texts.emplace_back(std::move(text)); }

    void load_kernel(std::string_view text, const std::string& source, const Metadata& metadata);
    void load_places(const Metadata& metadata);
    Result<void> load_jit(const Metadata& metadata, const NameOptions& options);
    [[nodiscard]] const Place* place_of(SpaceId space, std::uint64_t address) const;
    [[nodiscard]] std::uint32_t kernel_function(std::uint64_t address) const;
    [[nodiscard]] SpaceId space_with_maps(SpaceId space) const;
    [[nodiscard]] Name name_of_id(std::uint32_t id, std::string_view object) const;
};

void Names::State::load_kernel(std::string_view text, const std::string& source, const Metadata& metadata) {
    KernelSymbols symbols = parse_kallsyms(text);
    layout = KernelLayout(metadata.target, symbols.image);
    if (symbols.unreadable_lines > 0)
        warnings.push_back(fmt::format("{}: {} lines are no kernel symbols and were left out", source,
                                       symbols.unreadable_lines));
    if (symbols.kernel.empty()) {
        if (metadata.system)
            warnings.push_back(
                symbols.hidden
                    ? fmt::format("{}: all addresses are 0 (kernel.kptr_restrict), so kernel functions stay "
                                  "unknown; give the kernel's System.map with --kernel-symbols FILE",
                                  source)
                    : fmt::format("{}: it has no kernel symbols, so kernel functions stay unknown; give the "
                                  "kernel's System.map with --kernel-symbols FILE",
                                  source));
        return;
    }
    const auto add = [&](std::vector<Symbol> list, std::string object) {
        AddressRange range{~std::uint64_t{0}, 0};
        for (const Symbol& s : list) {
            range.start = std::min(range.start, s.start);
            range.end = std::max(range.end, s.start + s.size);
        }
        kernel.push_back(add_table(tables.emplace_back(std::move(list)), keep(std::move(object)), false));
        kernel_ranges.push_back(range);
    };
    add(std::move(symbols.kernel), "[kernel]");
    for (KernelSymbols::Module& module : symbols.modules)
        add(std::move(module.symbols), "[" + module.name + "]");
}

// Where the object of a place lies: each segment that covers the place's file offset gives a load address,
// and where several do (their edges share pages of the file), the one that other places of the object agree
// with.
std::optional<std::uint64_t> base_of(const Place& place, const Object& object, std::uint64_t known,
                                     bool have_known) {
    std::optional<std::uint64_t> first;
    for (const bool executable : {true, false})
        for (const ElfSegment& s : object.elf.segments) {
            if (s.executable != executable) continue;
            const std::uint64_t start = s.offset & ~(kPage - 1);
            const std::uint64_t end = s.offset + std::max<std::uint64_t>(s.bytes, 1);
            if (place.file_offset < start || place.file_offset >= end) continue;
            const std::uint64_t base = place.start - (s.address - s.offset + place.file_offset);
            if (have_known && base == known) return base;
            if (!first || (place.executable && executable)) first = first ? first : base;
        }
    if (first) return first;
    // A debug file keeps addresses but not always file offsets.
    const auto code = std::find_if(object.elf.segments.begin(), object.elf.segments.end(),
                                   [](const ElfSegment& s) { return s.executable; });
    if (place.executable && code != object.elf.segments.end())
        return place.start - (code->address & ~(kPage - 1));
    return std::nullopt;
}

void Names::State::load_places(const Metadata& metadata) {
    std::map<SpaceId, std::map<std::uint64_t, Place>> spaces;
    for (const MappedRange& range : metadata.maps) {
        auto& ranges = spaces[range.space];
        // A range recorded later lies over what was there before.
        const auto cut = [&ranges](std::uint64_t at) {
            auto after = ranges.upper_bound(at);
            if (after == ranges.begin()) return;
            Place& place = std::prev(after)->second;
            if (place.start == at || place.end <= at) return;
            Place upper = place;
            upper.start = at;
            upper.file_offset += at - place.start;
            place.end = at;
            ranges.emplace(at, upper);
        };
        cut(range.start.value());
        cut(range.end.value());
        ranges.erase(ranges.lower_bound(range.start.value()), ranges.lower_bound(range.end.value()));
        ranges[range.start.value()] = {.start = range.start.value(),
                                       .end = range.end.value(),
                                       .file_offset = range.file_offset,
                                       .name = range.path,
                                       .executable = range.protection.find('x') != std::string::npos,
                                       .object = nullptr,
                                       .base = 0};
    }
    if (!spaces.empty())
        for (const recording::Space& space : metadata.spaces)
            if (space.name.starts_with('[') && !spaces.contains(space.id))
                borrowed[space.id] = spaces.begin()->first;
    for (auto& [space, ranges] : spaces) {
        std::unordered_map<const Object*, std::uint64_t> bases;
        std::vector<Place>& list = places[space];
        for (auto& [start, place] : ranges) {
            if (const Object* object = objects->of(std::string(place.name))) {
                const auto known = bases.find(object);
                const bool have_known = known != bases.end();
                const auto base = place.name == "[vdso]"
                                      ? std::optional(place.start)
                                      : base_of(place, *object, have_known ? known->second : 0, have_known);
                if (base) {
                    place.object = object;
                    place.base = *base;
                    bases[object] = *base;
                }
                if (!object_ids.contains(object)) {
                    const std::string_view path = object->path;
                    object_ids[object] = {.named = add_table(object->named, path, false),
                                          .unnamed = add_table(object->unnamed, path, true)};
                }
            }
            list.push_back(place);
        }
        // A user-mode QEMU does not name the heap: it follows the program, whose maps come first.
        const auto first = std::find_if(list.begin(), list.end(), [](const Place& p) { return p.object; });
        if (metadata.system || first == list.end()) continue;
        // Before the heap the program's zeroed data take up the rest of its memory.
        std::uint64_t end_of_program = 0;
        for (const ElfSegment& s : first->object->elf.segments)
            end_of_program = std::max(end_of_program, first->base + s.address + s.memory_bytes);
        auto last = first;
        for (auto next = first; next != list.end(); ++next)
            if (next->object == first->object) last = next;
        for (auto next = std::next(last); next != list.end() && next->start == last->end; last = next++)
            if (is_anonymous(next->name)) {
                AddressRange& heap = heaps[space];
                if (heap.empty()) heap.start = std::max(next->start, end_of_program);
                heap.end = next->end;
            } else {
                break;
            }
    }
}

Result<void> Names::State::load_jit(const Metadata& metadata, const NameOptions& options) {
    for (const recording::Space& space : metadata.spaces) {
        std::filesystem::path file = options.jit_map;
        const std::string own_name = fmt::format("perf-{}.map", space.pid);
        if (!file.empty()) {
            // A map whose name says which process it is of is for that one; any other for the command.
            const std::string name = file.filename().string();
            const bool says = name.starts_with("perf-") && name.ends_with(".map");
            const bool its_own = says && name == own_name;
            const bool any_has = std::any_of(
                metadata.spaces.begin(), metadata.spaces.end(),
                [&](const recording::Space& s) { return name == fmt::format("perf-{}.map", s.pid); });
            if (any_has ? !its_own : space.id != metadata.spaces.front().id) continue;
        } else {
            // A guest's /tmp is not this machine's.
            if (space.pid == 0 || (metadata.system && options.sysroot.empty())) continue;
            file = options.sysroot / "tmp" / own_name;
            if (options.sysroot.empty()) file = std::filesystem::path("/tmp") / own_name;
            std::error_code ignored;
            if (!std::filesystem::exists(file, ignored)) continue;
        }
        auto text = read_text(file);
        if (!text) {
            if (!options.jit_map.empty()) return std::unexpected(text.error());
            warnings.push_back(text.error().message());
            continue;
        }
        JitMap map = parse_jit_map(*text);
        if (map.unreadable_lines > 0)
            warnings.push_back(fmt::format(
                "{}:{}: {} line{} not START SIZE NAME and {} left out; let the program finish "
                "writing its map, or give another with --jit-map FILE",
                file.string(), map.first_unreadable, map.unreadable_lines,
                map.unreadable_lines == 1 ? " is" : "s are", map.unreadable_lines == 1 ? "was" : "were"));
        jits[space.id] = add_table(tables.emplace_back(std::move(map.symbols)), keep("[jit]"), false);
    }
    return {};
}

const Place* Names::State::place_of(SpaceId space, std::uint64_t address) const {
    const auto list = places.find(space);
    if (list == places.end()) return nullptr;
    const auto after = std::upper_bound(list->second.begin(), list->second.end(), address,
                                        [](std::uint64_t a, const Place& place) { return a < place.start; });
    if (after == list->second.begin()) return nullptr;
    const Place& place = *std::prev(after);
    return address < place.end ? &place : nullptr;
}

// A kernel thread has no user addresses of its own; it runs on in the space of the task before it.
SpaceId Names::State::space_with_maps(SpaceId space) const {
    const auto other = borrowed.find(space);
    return other == borrowed.end() ? space : other->second;
}

std::uint32_t Names::State::kernel_function(std::uint64_t address) const {
    for (std::size_t i = 0; i < kernel.size(); ++i)
        if (kernel_ranges[i].contains(address))
            if (const std::uint32_t id = kernel[i].find(address)) return id;
    return 0;
}

Name Names::State::name_of_id(std::uint32_t id, std::string_view object) const {
    if (id == 0) return {.function = kUnknownFunction, .object = object, .function_id = 0, .unnamed = false};
    const Function& function = functions[id];
    std::call_once(function.shown_once,
                   [&] { function.shown = demangle ? demangled(function.name) : function.name; });
    return {.function = function.shown,
            .object = function.object,
            .function_id = id,
            .unnamed = function.unnamed};
}

Names::Names(std::unique_ptr<State> state) : state_(std::move(state)) {}
Names::Names(Names&&) noexcept = default;
Names& Names::operator=(Names&&) noexcept = default;
Names::~Names() = default;

Result<Names> Names::load(const recording::Recording& recording, const NameOptions& options) {
    const Metadata& metadata = recording.metadata();
    auto state = std::make_unique<State>();
    state->kernel_base = metadata.kernel_base;
    state->demangle = options.demangle;
    state->functions.emplace_back().name = kUnknownFunction;
    auto vdso = recording.vdso();
    if (!vdso) state->warnings.push_back(vdso.error().message());
    state->objects = std::make_unique<Objects>(metadata, options, vdso.value_or(std::string{}));
    state->layout = KernelLayout(metadata.target, {});

    std::string kernel_source = recording.path().string();
    auto kernel_text =
        options.kernel_symbols.empty() ? recording.kernel_symbols() : read_text(options.kernel_symbols);
    if (!options.kernel_symbols.empty()) {
        if (!kernel_text) return std::unexpected(kernel_text.error());
        kernel_source = options.kernel_symbols.string();
    }
    if (kernel_text)
        state->load_kernel(*kernel_text, kernel_source, metadata);
    else
        state->warnings.push_back(kernel_text.error().message());
    state->load_places(metadata);
    if (auto done = state->load_jit(metadata, options); !done) return std::unexpected(done.error());
    for (const std::string& warning : state->objects->warnings()) state->warnings.push_back(warning);

    if (options.find_stacks && metadata.granularity == recording::Granularity::kFull) {
        auto stacks = find_stacks(recording, state->layout, options.threads);
        if (!stacks) return std::unexpected(stacks.error());
        state->stacks = std::move(*stacks);
        state->stack_note = state->stacks.note();
    } else if (options.find_stacks) {
        state->stack_note =
            "the recording keeps pages only: stacks without a map of their own are not told apart";
    }
    return Names(std::move(state));
}

Name Names::function_at(SpaceId space, VirtAddr address) const {
    const std::uint64_t at = address.value();
    if (at >= state_->kernel_base) return state_->name_of_id(state_->kernel_function(at), "[kernel]");
    const Place* place = state_->place_of(space, at);
    std::uint32_t id = 0;
    if (place != nullptr && place->object != nullptr) {
        const ObjectIds& ids = state_->object_ids.at(place->object);
        id = ids.named.find(at - place->base);
        if (id == 0) id = ids.unnamed.find(at - place->base);
    } else if (const auto jit = state_->jits.find(space); jit != state_->jits.end()) {
        id = jit->second.find(at);
    }
    std::string_view object = place != nullptr ? place->name : std::string_view{};
    if (place != nullptr && object.empty()) object = "[anon]";
    return state_->name_of_id(id, object);
}

Name Names::name_of(std::uint32_t function_id) const { return state_->name_of_id(function_id, {}); }

std::uint64_t Names::bytes_of(std::uint32_t function_id) const {
    return state_->functions[function_id].bytes;
}

std::vector<FunctionPlace> Names::functions_named(std::string_view name) const {
    // arch/*/include/asm/syscall_wrapper.h (Linux 4.17 and later); the dot is of 64-bit PowerPC's ELFv1.
    const auto is_kin = [&](const std::string& candidate) {
        if (!name.starts_with("sys_")) return false;
        for (const std::string_view prefix :
             {"__x64_", "__ia32_", "__ia32_compat_", "__arm64_", "__powerpc_", "__riscv_", "."})
            if (candidate.size() == prefix.size() + name.size() && candidate.starts_with(prefix) &&
                candidate.ends_with(name))
                return true;
        return false;
    };
    const auto matches = [&](const Function& function) {
        if (function.name == name || is_kin(function.name)) return true;
        if (!function.name.starts_with("_Z") && !function.name.starts_with("_R")) return false;
        const std::string shown = demangled(function.name);
        return shown == name || std::string_view(shown).substr(0, shown.find('(')) == name;
    };
    std::vector<FunctionPlace> found;
    const auto visit = [&](const Ids& ids, bool kernel, SpaceId space, std::uint64_t base) {
        if (ids.table == nullptr) return;
        for (std::uint32_t id = ids.first; id < ids.first + ids.table->names().size(); ++id)
            if (state_->functions[id].bytes != 0 && matches(state_->functions[id]))
                found.push_back({.kernel = kernel,
                                 .space = space,
                                 .start = VirtAddr(state_->functions[id].start + base),
                                 .function_id = id});
    };
    for (const Ids& ids : state_->kernel) visit(ids, true, SpaceId(0), 0);
    for (const auto& [space, places] : state_->places) {
        const Object* last = nullptr;
        for (const Place& place : places) {
            if (place.object == nullptr || place.object == last) continue;
            last = place.object;
            const ObjectIds& ids = state_->object_ids.at(place.object);
            visit(ids.named, false, space, place.base);
            visit(ids.unnamed, false, space, place.base);
        }
        if (const auto jit = state_->jits.find(space); jit != state_->jits.end())
            visit(jit->second, false, space, 0);
    }
    return found;
}

Region Names::region_of(SpaceId space, VirtAddr address) const {
    const std::uint64_t at = address.value();
    if (at >= state_->kernel_base) {
        const Region found = state_->stacks.kernel_region(at / kPage);
        return found != Region::kUnknown ? found : state_->layout.at(at);
    }
    const Place* place = state_->place_of(state_->space_with_maps(space), at);
    if (place == nullptr)
        return state_->stacks.is_user_stack(space, at / kPage) ? Region::kUserStack : Region::kUnknown;
    if (place->executable) return Region::kUserText;
    if (place->name == "[heap]") return Region::kUserHeap;
    if (place->name.starts_with("[stack")) return Region::kUserStack;
    if (place->object != nullptr) {
        const std::uint64_t page = (at & ~(kPage - 1)) - place->base;
        for (const ElfSegment& s : place->object->elf.segments)
            if (s.executable && page + kPage > s.address && page < s.address + s.memory_bytes)
                return Region::kUserText;
        return Region::kUserMmap;
    }
    if (is_anonymous(place->name)) {
        if (state_->stacks.is_user_stack(space, at / kPage)) return Region::kUserStack;
        if (const auto heap = state_->heaps.find(space);
            heap != state_->heaps.end() && heap->second.contains(at))
            return Region::kUserHeap;
    }
    return Region::kUserMmap;
}

addrspace::AddressRange Names::kernel_image() const { return state_->layout.image(); }

std::uint32_t Names::function_count() const { return static_cast<std::uint32_t>(state_->functions.size()); }

std::span<const std::string> Names::warnings() const { return state_->warnings; }

const std::string& Names::stack_note() const { return state_->stack_note; }

}  // namespace tlbscope::explain
