#include "layout/image.h"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <set>
#include <unordered_map>

#include "layout/elf_file.h"
#include "layout/link_map.h"

namespace tlbscope::layout {

namespace {

// Text that a kernel's linker script gives a place of its own within the output section .text
// (include/asm-generic/vmlinux.lds.h): from one boundary symbol to the other.
struct Fence {
    const char* first;
    const char* last;
};
constexpr std::array kFences{
    Fence{"__sched_text_start", "__sched_text_end"},
    Fence{"__lock_text_start", "__lock_text_end"},
    Fence{"__cpuidle_text_start", "__cpuidle_text_end"},
    Fence{"__kprobes_text_start", "__kprobes_text_end"},
    Fence{"__entry_text_start", "__entry_text_end"},
    Fence{"__noinstr_text_start", "__noinstr_text_end"},
    Fence{"__irqentry_text_start", "__irqentry_text_end"},
    Fence{"__softirqentry_text_start", "__softirqentry_text_end"},
    Fence{"__static_call_text_start", "__static_call_text_end"},
    Fence{"_sinittext", "_einittext"},
};

struct Range {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
};

std::vector<Range> fences_of(const std::unordered_map<std::string, std::uint64_t>& places) {
    std::vector<Range> ranges;
    for (const Fence& fence : kFences) {
        const auto first = places.find(fence.first);
        const auto last = places.find(fence.last);
        if (first != places.end() && last != places.end() && first->second < last->second)
            ranges.push_back({first->second, last->second});
    }
    return ranges;
}

bool within(const std::vector<Range>& ranges, std::uint64_t address) {
    return std::any_of(ranges.begin(), ranges.end(),
                       [&](const Range& r) { return address >= r.start && address < r.end; });
}

// The C runtime's start files hold these, without sections of their own.
bool is_runtime(const ElfSymbol& symbol) {
    constexpr std::array kNames{"_start",          "_dl_relocate_static_pie", "deregister_tm_clones",
                                "frame_dummy",     "register_tm_clones",      "__do_global_dtors_aux",
                                "__libc_csu_init", "__libc_csu_fini"};
    return std::find(kNames.begin(), kNames.end(), symbol.name) != kNames.end();
}

// The section that gcc's and clang's -ffunction-sections gives a function; the compiler's choice of a prefix
// (.text.hot., .text.exit.) cannot be known from the name.
std::string section_of_function(const std::string& name) {
    if (name == "main") return ".text.startup.main";
    const std::size_t cold = name.find(".cold");
    if (cold != std::string::npos) return ".text.unlikely." + name.substr(0, cold);
    if (name.starts_with("_GLOBAL__sub_I_")) return ".text.startup." + name;
    return ".text." + name;
}

std::string section_of_object(const std::string& output, const std::string& name) {
    return output + "." + name;
}

// The better of two names for one place: global before local, then the shorter.
bool better(const ElfSymbol& a, const ElfSymbol& b) {
    if ((a.size != 0) != (b.size != 0)) return a.size != 0;
    if (a.local != b.local) return !a.local;
    if (a.weak != b.weak) return !a.weak;
    if (a.name.size() != b.name.size()) return a.name.size() < b.name.size();
    return a.name < b.name;
}

bool wanted(const ElfSection& section, What what) {
    if (!section.allocated || section.size == 0) return false;
    if (what == What::kText) return section.code;
    return !section.code && (section.name.starts_with(".data") || section.name.starts_with(".bss") ||
                             section.name.starts_with(".rodata"));
}

// Kernels move what TEXT_TEXT takes in; everything else of theirs, and every other linker-made section,
// stays.
Stays placement_of(const std::string& output, const std::string& section, What what) {
    if (what == What::kText) {
        if (output == ".init" || output == ".fini" || output.starts_with(".plt") || output == ".iplt")
            return Stays::kMadeByLinker;
        if (output != ".text") return Stays::kOwnPlace;
        if (section == ".text") return Stays::kNotSplit;
        return section.starts_with(".text.") ? Stays::kMoves : Stays::kOwnPlace;
    }
    if (section == output) return Stays::kNotSplit;
    return section.starts_with(output + ".") ? Stays::kMoves : Stays::kOwnPlace;
}

class Loader {
  public:
    Loader(const ElfFile& file, const ImageOptions& options, Image& image)
        : file_(file), options_(options), image_(image) {
        for (const ElfSymbol& symbol : file.symbols) {
            places_.try_emplace(symbol.name, symbol.value);
            if (symbol.section == 0 || !wanted(file.sections[symbol.section], image.what)) continue;
            if (image.what == What::kText ? symbol.object : symbol.function) continue;
            by_address_[symbol.value].push_back(&symbol);
        }
        for (auto& [address, symbols] : by_address_)
            std::stable_sort(symbols.begin(), symbols.end(),
                             [](const ElfSymbol* a, const ElfSymbol* b) { return better(*a, *b); });
        image.kernel = places_.contains("start_kernel") && places_.contains("linux_banner");
    }

    void outputs() {
        for (const ElfSection& section : file_.sections) {
            if (!wanted(section, image_.what)) continue;
            image_.outputs.push_back({.name = section.name,
                                      .start = section.address,
                                      .end = section.address + section.size,
                                      .align = static_cast<std::uint32_t>(section.align)});
        }
        std::sort(image_.outputs.begin(), image_.outputs.end(),
                  [](const Output& a, const Output& b) { return a.start < b.start; });
    }

    void functions() {
        for (const auto& [address, symbols] : by_address_) {
            const ElfSymbol& best = *symbols.front();
            if (best.size == 0) continue;
            image_.functions.push_back({.name = best.name,
                                        .start = address,
                                        .size = best.size,
                                        .local = best.local,
                                        .file = best.file});
        }
    }

    // GNU ld's and gold's maps do not say alignments, nor gold's the order of its input, but which object
    // each section is from: by a name from the folder the linker ran in, which is ours or the map's.
    void complete_from_objects(const LinkMap& map) {
        struct Known {
            std::uint32_t align = 1;
            std::size_t number = 0;  // among the object's sections
        };
        std::map<std::pair<std::string, std::string>, Known> known_sections;  // by object and section
        std::unordered_map<std::string, std::size_t> ranks;
        for (const std::string& object : map.objects) ranks.try_emplace(object, ranks.size() + 1);
        std::set<std::string> files;
        for (const InputSection& section : map.sections)
            if (section.align == 0) files.insert(section.object.substr(0, section.object.find('(')));
        for (const std::string& file : files) {
            std::error_code missing;
            const std::filesystem::path beside = options_.map.parent_path() / file;
            const std::string found = std::filesystem::exists(file, missing) ? file : beside.string();
            // One that is gone, or is no object, leaves its alignments to be inferred.
            static_cast<void>(for_each_object(found, [&](const ElfFile& object) {
                for (std::size_t i = 0; i < object.sections.size(); ++i) {
                    const ElfSection& section = object.sections[i];
                    // An archive's member is "FOUND(member)".
                    Known& known = known_sections[{object.name.starts_with(found)
                                                       ? file + object.name.substr(found.size())
                                                       : object.name,
                                                   section.name}];
                    known.align = std::max(known.align, static_cast<std::uint32_t>(std::min<std::uint64_t>(
                                                            section.align, 1U << 16)));
                    known.number = i;
                }
            }));
        }
        for (Piece& piece : image_.pieces) {
            const auto known = known_sections.find({piece.object, piece.section});
            if (known == known_sections.end()) continue;
            if (piece.align == 0 && piece.start % known->second.align == 0) piece.align = known->second.align;
            if (const auto rank = ranks.find(piece.object); rank != ranks.end())
                piece.input = std::uint64_t{rank->second} << 32 | known->second.number;
        }
    }

    // Sections as the linker listed them.
    Result<void> from_map(const LinkMap& map, const std::string& name) {
        std::size_t outside = 0;
        for (const InputSection& section : map.sections) {
            const auto output = output_at(section.start);
            if (!output) continue;
            if (section.start + section.size > image_.outputs[*output].end) {
                ++outside;
                continue;
            }
            if (!image_.pieces.empty() && section.start < image_.pieces.back().end()) continue;
            add(section.section, section.object, section.start, section.size, section.align, *output,
                placement_of(image_.outputs[*output].name, section.section, image_.what));
        }
        if (image_.pieces.empty() || outside > image_.pieces.size() / 10)
            return fail(name, fmt::format("this link map is not of {}", image_.path),
                        "give the map that the linker wrote with this very file");
        complete_from_objects(map);
        image_.objects = map.objects;
        return check_symbols_fit(name);
    }

    // Sections as the object files have them, found by the symbols they define.
    Result<void> from_objects() {
        std::map<std::uint64_t, Piece> found;
        std::unordered_multimap<std::string, const ElfSymbol*> by_name;
        for (const auto& [address, symbols] : by_address_)
            for (const ElfSymbol* symbol : symbols) by_name.emplace(symbol->name, symbol);
        for (const auto& path : options_.objects) {
            image_.objects.push_back(path.string());
            auto done = for_each_object(path, [&](const ElfFile& object) {
                for (const ElfSymbol& symbol : object.symbols) {
                    if (symbol.section == 0) continue;
                    const ElfSection& section = object.sections[symbol.section];
                    if (!section.allocated || section.size == 0 ||
                        section.code != (image_.what == What::kText))
                        continue;
                    const ElfSymbol* home = nullptr;
                    std::size_t candidates = 0;
                    const auto [first, last] = by_name.equal_range(symbol.name);
                    for (auto candidate = first; candidate != last; ++candidate) {
                        const ElfSymbol& s = *candidate->second;
                        if (s.local != symbol.local || s.size != symbol.size) continue;
                        if (symbol.local && s.file != symbol.file) continue;
                        home = &s;
                        ++candidates;
                    }
                    if (candidates != 1) continue;
                    const std::uint64_t start = home->value - symbol.value;
                    const auto output = output_at(start);
                    if (!output || found.contains(start)) continue;
                    found[start] = {
                        .section = section.name,
                        .object = object.name,
                        .symbols = {},
                        .start = start,
                        .size = section.size,
                        .align = static_cast<std::uint32_t>(section.align),
                        .output = *output,
                        .stays = placement_of(image_.outputs[*output].name, section.name, image_.what),
                        .local = false};
                }
            });
            if (!done) return done;
        }
        if (found.empty())
            return fail(options_.objects.front().string(),
                        fmt::format("no symbol of these object files is in {}", image_.path),
                        "give the objects and archives that it was linked from");
        for (auto& [start, piece] : found) {
            if (!image_.pieces.empty() && start < image_.pieces.back().end()) continue;
            image_.pieces.push_back(std::move(piece));
        }
        return {};
    }

    // Each function (or data object) that no piece covers yet, as if it had a section of its own.
    void from_symbols(Stays default_stays) {
        std::vector<Piece> known = std::move(image_.pieces);
        image_.pieces.clear();
        const std::vector<Range> fences = image_.kernel ? fences_of(places_) : std::vector<Range>{};
        auto next_known = known.begin();
        std::uint64_t covered = 0;
        const auto keep_known = [&](std::uint64_t until) {
            for (; next_known != known.end() && next_known->start <= until; ++next_known) {
                covered = std::max(covered, next_known->end());
                image_.pieces.push_back(std::move(*next_known));
            }
        };
        for (const auto& [address, symbols] : by_address_) {
            keep_known(address);
            const ElfSymbol& best = *symbols.front();
            if (best.size == 0 || address < covered) continue;
            const auto output = output_at(address);
            if (!output) continue;
            const Output& out = image_.outputs[*output];
            std::uint64_t end = std::min(address + best.size, out.end);
            if (next_known != known.end()) end = std::min(end, next_known->start);
            const std::string section = image_.what == What::kText ? section_of_function(best.name)
                                                                   : section_of_object(out.name, best.name);
            Stays stays = placement_of(out.name, section, image_.what);
            if (stays == Stays::kMoves) stays = default_stays;
            if (stays == Stays::kMoves && is_runtime(best)) stays = Stays::kNotSplit;
            if (stays == Stays::kMoves && within(fences, address)) stays = Stays::kOwnPlace;
            if (stays == Stays::kMoves && !best.function && image_.what == What::kText)
                stays = Stays::kNotSplit;
            add(section, best.file, address, end - address, 0, *output, stays);
            covered = end;
        }
        keep_known(~std::uint64_t{0});
    }

    // What no piece covers: the linker's own sections, assembly without symbols. Padding is left out where it
    // is less than any alignment.
    void fill_gaps() {
        constexpr std::uint64_t kMostPadding = 64;
        std::vector<Piece> all;
        auto next = image_.pieces.begin();
        for (std::uint32_t output = 0; output < image_.outputs.size(); ++output) {
            const Output& out = image_.outputs[output];
            std::uint64_t at = out.start;
            const auto gap = [&](std::uint64_t end) {
                const bool whole = at == out.start && end == out.end;
                if (end > at && (whole || end - at >= kMostPadding))
                    all.push_back({.section = out.name,
                                   .object = {},
                                   .symbols = {},
                                   .start = at,
                                   .size = end - at,
                                   .align = 1,
                                   .output = output,
                                   .stays = whole && out.name != ".text" && image_.what == What::kText
                                                ? placement_of(out.name, out.name, image_.what)
                                                : Stays::kUnnamed,
                                   .local = false});
            };
            for (; next != image_.pieces.end() && next->start < out.end; ++next) {
                gap(next->start);
                at = next->end();
                all.push_back(std::move(*next));
            }
            gap(out.end);
        }
        image_.pieces = std::move(all);
    }

    void name_pieces() {
        for (Piece& piece : image_.pieces) {
            piece.local = true;
            std::vector<const ElfSymbol*> inside;
            for (auto at = by_address_.lower_bound(piece.start);
                 at != by_address_.end() && at->first < piece.end(); ++at)
                inside.insert(inside.end(), at->second.begin(), at->second.end());
            std::stable_sort(inside.begin(), inside.end(), [&](const ElfSymbol* a, const ElfSymbol* b) {
                if (a->local != b->local) return !a->local;
                return (a->value == piece.start) > (b->value == piece.start);
            });
            for (const ElfSymbol* symbol : inside) piece.symbols.push_back(symbol->name);
            if (!inside.empty()) piece.local = inside.front()->local;
            if (piece.symbols.empty() && piece.stays == Stays::kMoves) piece.stays = Stays::kUnnamed;
        }
    }

  private:
    std::optional<std::uint32_t> output_at(std::uint64_t address) const {
        for (std::uint32_t i = 0; i < image_.outputs.size(); ++i)
            if (address >= image_.outputs[i].start && address < image_.outputs[i].end) return i;
        return std::nullopt;
    }

    void add(const std::string& section, const std::string& object, std::uint64_t start, std::uint64_t size,
             std::uint32_t align, std::uint32_t output, Stays stays) {
        image_.pieces.push_back({.section = section,
                                 .object = object,
                                 .symbols = {},
                                 .start = start,
                                 .size = size,
                                 .align = align,
                                 .output = output,
                                 .stays = stays,
                                 .local = false});
    }

    // A map of another link has its sections elsewhere than the symbols are: an order made from it would move
    // what lies elsewhere (ppc32 kernel linked in another order: 41 % of its functions are cut by a section's
    // end). Assembly and linkers' stubs may leave a few outside in the right one.
    Result<void> check_symbols_fit(const std::string& name) const {
        std::size_t inside = 0;
        std::size_t all = 0;
        for (const Function& function : image_.functions) {
            const auto piece = image_.piece_at(function.start);
            ++all;
            if (piece && function.start + function.size <= image_.pieces[*piece].end()) ++inside;
        }
        if (inside * 10 < all * 9)
            return fail(name,
                        fmt::format("this is the map of another link than {}: {} of {} functions do not lie "
                                    "within one of its sections",
                                    image_.path, all - inside, all),
                        "give the map that the linker wrote with this very file");
        return {};
    }

    const ElfFile& file_;
    const ImageOptions& options_;
    Image& image_;
    std::unordered_map<std::string, std::uint64_t> places_;
    std::map<std::uint64_t, std::vector<const ElfSymbol*>> by_address_;
};

std::string machine_name(std::uint16_t machine) {
    switch (machine) {
        case EM_X86_64:
            return "x86-64";
        case EM_386:
            return "i386";
        case EM_PPC:
            return "PowerPC";
        case EM_PPC64:
            return "PowerPC 64";
        case EM_AARCH64:
            return "AArch64";
        case EM_ARM:
            return "ARM";
        case EM_RISCV:
            return "RISC-V";
        default:
            return fmt::format("machine {}", machine);
    }
}

}  // namespace

std::string_view why(Stays stays) {
    constexpr std::array<std::string_view, kStays> kTexts{
        "moves",
        "no section of its own (assembly, or built without -ffunction-sections)",
        "the linker script gives its section a place",
        "made by the linker",
        "no symbol names it",
    };
    return kTexts[static_cast<std::size_t>(stays)];
}

std::optional<std::uint32_t> Image::piece_at(std::uint64_t address) const {
    const auto after = std::upper_bound(pieces.begin(), pieces.end(), address,
                                        [](std::uint64_t a, const Piece& p) { return a < p.start; });
    if (after == pieces.begin() || address >= std::prev(after)->end()) return std::nullopt;
    return static_cast<std::uint32_t>(std::prev(after) - pieces.begin());
}

const Function* Image::function_at(std::uint64_t address) const {
    const auto after = std::upper_bound(functions.begin(), functions.end(), address,
                                        [](std::uint64_t a, const Function& f) { return a < f.start; });
    if (after == functions.begin()) return nullptr;
    const Function& function = *std::prev(after);
    return address < function.start + function.size ? &function : nullptr;
}

std::optional<std::uint64_t> Image::address_of(std::uint64_t offset) const {
    for (const Segment& segment : segments)
        if (offset >= segment.offset && offset - segment.offset < segment.bytes)
            return segment.address + (offset - segment.offset);
    return std::nullopt;
}

// A gap before a piece bounds its alignment: a smaller power of two would have left less, a larger one does
// not divide the address. Within its bounds a piece gets the alignment that fits most pieces of its kind
// (cold parts are packed, functions are not), the largest of several that do.
void infer_alignments(std::vector<Piece>& pieces) {
    constexpr unsigned kLargest = 6;  // as a power of two
    struct Bounds {
        unsigned least = 0;
        unsigned most = kLargest;
    };
    const auto kind_of = [](const Piece& piece) {
        return piece.section.starts_with(".text.unlikely") ? 1U : 0U;
    };
    std::vector<Bounds> bounds(pieces.size());
    std::array<std::array<std::size_t, kLargest + 1>, 2> fitting{};
    for (std::size_t i = 0; i < pieces.size(); ++i) {
        const Piece& piece = pieces[i];
        if (piece.align != 0) continue;
        Bounds& b = bounds[i];
        if (piece.start != 0)
            b.most = std::min(kLargest, static_cast<unsigned>(std::countr_zero(piece.start)));
        const bool follows = i > 0 && pieces[i - 1].output == piece.output;
        const std::uint64_t before = follows ? pieces[i - 1].end() : piece.start;
        const auto leads_here = [&](unsigned power) {
            return ((before + (std::uint64_t{1} << power) - 1) >> power << power) == piece.start;
        };
        while (b.least < b.most && !leads_here(b.least)) ++b.least;
        // A gap that no alignment explains says nothing.
        if (!leads_here(b.least)) b.least = 0;
        for (unsigned power = b.least; power <= b.most; ++power) ++fitting[kind_of(piece)][power];
    }
    std::array<unsigned, 2> usual{};
    for (unsigned kind = 0; kind < 2; ++kind)
        for (unsigned power = 0; power <= kLargest; ++power)
            if (fitting[kind][power] >= fitting[kind][usual[kind]]) usual[kind] = power;
    for (std::size_t i = 0; i < pieces.size(); ++i)
        if (pieces[i].align == 0)
            pieces[i].align = 1U << std::clamp(usual[kind_of(pieces[i])], bounds[i].least, bounds[i].most);
}

Result<Image> load_image(const std::filesystem::path& path, const ImageOptions& options) {
    auto file = read_elf_file(path);
    if (!file) return std::unexpected(file.error());
    Image image;
    image.path = path.string();
    image.build_id = file->build_id;
    image.elf_machine = file->machine;
    image.machine = machine_name(file->machine);
    image.position_independent = file->type == ET_DYN;
    image.what = options.what;
    for (const ElfSegmentInfo& s : file->segments)
        image.segments.push_back(
            {.address = s.address, .offset = s.offset, .bytes = s.bytes, .memory_bytes = s.memory_bytes});
    if (!file->has_symbol_table)
        return fail(image.path, "it is stripped: no symbol table, so an order cannot name its functions",
                    "link it without -s and do not strip it (strip a copy instead); an order made from the "
                    "unstripped "
                    "file serves the stripped one");
    Loader loader(*file, options, image);
    loader.outputs();
    if (image.outputs.empty())
        return fail(image.path, image.what == What::kText ? "it has no code" : "it has no data sections",
                    "give the linked program, library or vmlinux itself");
    loader.functions();
    if (options.whole_functions) {
        image.source = ImageSource::kSymbols;
        loader.from_symbols(Stays::kMoves);
    } else if (!options.map.empty()) {
        auto map = read_link_map(options.map);
        if (!map) return std::unexpected(map.error());
        image.source = ImageSource::kLinkMap;
        if (auto done = loader.from_map(*map, options.map.string()); !done)
            return std::unexpected(done.error());
    } else if (!options.objects.empty()) {
        image.source = ImageSource::kObjects;
        if (auto done = loader.from_objects(); !done) return std::unexpected(done.error());
        loader.from_symbols(Stays::kNotSplit);
    } else {
        image.source = ImageSource::kSymbols;
        loader.from_symbols(Stays::kMoves);
    }
    loader.fill_gaps();
    loader.name_pieces();
    infer_alignments(image.pieces);
    return image;
}

Result<Image> image_of_symbols(std::string_view kallsyms, const std::string& name) {
    Image image;
    image.path = name;
    image.kernel = true;
    struct Line {
        std::uint64_t address;
        std::string name;
        bool local;
    };
    std::vector<Line> lines;
    std::unordered_map<std::string, std::uint64_t> places;
    while (!kallsyms.empty()) {
        const std::size_t end = kallsyms.find('\n');
        const std::string line(kallsyms.substr(0, end));
        kallsyms.remove_prefix(end == std::string_view::npos ? kallsyms.size() : end + 1);
        const std::size_t space = line.find(' ');
        if (space == std::string::npos || line.size() < space + 4 || line.find('[') != std::string::npos)
            continue;
        const std::uint64_t address = std::strtoull(line.c_str(), nullptr, 16);
        std::string symbol = line.substr(space + 3);
        places.try_emplace(symbol, address);
        const char type = line[space + 1];
        if (type == 't' || type == 'T' || type == 'W' || type == 'w')
            lines.push_back({address, std::move(symbol), type == 't'});
    }
    const auto text = places.find("_stext");
    const auto end_of_text = places.find("_etext");
    if (text == places.end() || end_of_text == places.end() || text->second >= end_of_text->second)
        return fail(name, "these kernel symbols do not say where its code lies (_stext, _etext)",
                    "give the kernel's unstripped vmlinux with --image");
    image.outputs.push_back({.name = ".text", .start = text->second, .end = end_of_text->second, .align = 1});
    std::erase_if(
        lines, [&](const Line& l) { return l.address < text->second || l.address >= end_of_text->second; });
    std::stable_sort(lines.begin(), lines.end(),
                     [](const Line& a, const Line& b) { return a.address < b.address; });
    const std::vector<Range> fences = fences_of(places);
    for (std::size_t i = 0; i < lines.size();) {
        std::size_t next = i;
        Piece piece{.section = ".text." + lines[i].name,
                    .object = {},
                    .symbols = {},
                    .start = lines[i].address,
                    .size = 0,
                    .align = 0,
                    .output = 0,
                    .stays = within(fences, lines[i].address) ? Stays::kOwnPlace : Stays::kMoves,
                    .local = lines[i].local};
        for (; next < lines.size() && lines[next].address == lines[i].address; ++next)
            piece.symbols.push_back(lines[next].name);
        piece.size = (next < lines.size() ? lines[next].address : end_of_text->second) - piece.start;
        image.functions.push_back({.name = piece.name(),
                                   .start = piece.start,
                                   .size = piece.size,
                                   .local = piece.local,
                                   .file = {}});
        image.pieces.push_back(std::move(piece));
        i = next;
    }
    infer_alignments(image.pieces);
    image.notes.push_back(
        fmt::format("{}: the sections of this kernel are guessed from its symbols; give its vmlinux with "
                    "--image and, better, "
                    "its vmlinux.map with --map",
                    name));
    return image;
}

}  // namespace tlbscope::layout
