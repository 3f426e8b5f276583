#include "explain/elf_symbols.h"

#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>

#include "core/files.h"
#include "explain/unwind_table.h"

namespace tlbscope::explain {

namespace {

class OpenElf {
  public:
    explicit OpenElf(const std::filesystem::path& path) {
        elf_version(EV_CURRENT);
        fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd_ >= 0) keep(elf_begin(fd_, ELF_C_READ_MMAP, nullptr));
    }
    // An image in memory.
    struct Image {
        std::string bytes;
    };
    explicit OpenElf(Image image) : image_(std::move(image)) {
        elf_version(EV_CURRENT);
        keep(elf_memory(image_.bytes.data(), image_.bytes.size()));
    }
    ~OpenElf() {
        if (elf_ != nullptr) elf_end(elf_);
        if (fd_ >= 0) ::close(fd_);
    }
    OpenElf(const OpenElf&) = delete;
    OpenElf& operator=(const OpenElf&) = delete;
    [[nodiscard]] Elf* get() const { return elf_; }
    [[nodiscard]] bool readable() const { return fd_ >= 0; }

  private:
    void keep(Elf* elf) {
        if (elf != nullptr && elf_kind(elf) != ELF_K_ELF)
            elf_end(elf);
        else
            elf_ = elf;
    }
    Image image_;
    int fd_ = -1;
    Elf* elf_ = nullptr;
};

struct Section {
    std::string name;
    GElf_Shdr header{};
    Elf_Scn* handle = nullptr;
    [[nodiscard]] bool executable() const { return (header.sh_flags & SHF_EXECINSTR) != 0; }
    // Its bytes; none when the file was stripped of them.
    [[nodiscard]] std::span<const std::uint8_t> bytes() const {
        if (header.sh_type == SHT_NOBITS) return {};
        const Elf_Data* data = elf_rawdata(handle, nullptr);
        if (data == nullptr || data->d_buf == nullptr) return {};
        return {static_cast<const std::uint8_t*>(data->d_buf), data->d_size};
    }
};

std::vector<Section> sections_of(Elf* elf) {
    std::vector<Section> sections(1);  // section 0 is none
    std::size_t names = 0;
    elf_getshdrstrndx(elf, &names);
    for (Elf_Scn* handle = nullptr; (handle = elf_nextscn(elf, handle)) != nullptr;) {
        Section section;
        section.handle = handle;
        if (gelf_getshdr(handle, &section.header) == nullptr) section.header = {};
        if (const char* name = elf_strptr(elf, names, section.header.sh_name)) section.name = name;
        sections.push_back(std::move(section));
    }
    return sections;
}

// ELFv1 of 64-bit PowerPC: a function's symbol is that of its descriptor in .opd, whose first word is the
// address of its code (64-bit PowerPC ELF ABI supplement 1.9, 3.2).
std::optional<std::uint64_t> code_of_descriptor(const Section& opd, std::uint64_t address) {
    const std::span<const std::uint8_t> bytes = opd.bytes();
    const std::uint64_t at = address - opd.header.sh_addr;
    if (at + 8 > bytes.size()) return std::nullopt;
    std::uint64_t code = 0;
    for (int i = 0; i < 8; ++i) code = code << 8 | bytes[at + i];
    return code;
}

void read_symbols(Elf* elf, const std::vector<Section>& sections, const Section& table, bool descriptors,
                  std::vector<Symbol>& symbols) {
    Elf_Data* data = elf_getdata(table.handle, nullptr);
    if (data == nullptr || table.header.sh_entsize == 0) return;
    const std::size_t count = table.header.sh_size / table.header.sh_entsize;
    for (std::size_t i = 0; i < count; ++i) {
        GElf_Sym symbol;
        if (gelf_getsym(data, static_cast<int>(i), &symbol) == nullptr) break;
        const int type = GELF_ST_TYPE(symbol.st_info);
        if (type != STT_FUNC && type != STT_NOTYPE && type != STT_GNU_IFUNC) continue;
        if (symbol.st_shndx == SHN_UNDEF || symbol.st_shndx >= sections.size()) continue;
        const Section* section = &sections[symbol.st_shndx];
        std::uint64_t start = symbol.st_value;
        if (descriptors && section->name == ".opd") {
            const auto code = code_of_descriptor(*section, start);
            if (!code) continue;
            start = *code;
            const auto home = std::find_if(sections.begin(), sections.end(), [&](const Section& s) {
                return s.executable() && start >= s.header.sh_addr &&
                       start - s.header.sh_addr < s.header.sh_size;
            });
            if (home == sections.end()) continue;
            section = &*home;
        }
        const char* name = elf_strptr(elf, table.header.sh_link, symbol.st_name);
        if (!section->executable() || name == nullptr || is_tool_label(name)) continue;
        const int binding = GELF_ST_BIND(symbol.st_info);
        symbols.push_back({.start = start,
                           .size = symbol.st_size,
                           .limit = section->header.sh_addr + section->header.sh_size,
                           .name = name,
                           .binding = binding == STB_WEAK    ? Binding::kWeak
                                      : binding == STB_LOCAL ? Binding::kLocal
                                                             : Binding::kGlobal,
                           .function = type != STT_NOTYPE});
    }
}

// Address of a slot of the global offset table -> the name of what its relocation looks up.
// A slot whose function is chosen at start (an indirect function) has the name of the function that chooses.
std::map<std::uint64_t, std::string> slots_of(Elf* elf, const std::vector<Section>& sections,
                                              const std::vector<Symbol>& known) {
    std::map<std::uint64_t, std::string> slots;
    std::map<std::uint64_t, std::string> choosers;
    for (const Symbol& symbol : known)
        if (symbol.binding != Binding::kLocal) {
            std::string& name = choosers[symbol.start];
            if (name.empty() || symbol.name.size() < name.size()) name = symbol.name;
        }
    for (const Section& section : sections) {
        if (section.header.sh_type != SHT_RELA || (section.header.sh_flags & SHF_ALLOC) == 0 ||
            section.header.sh_entsize == 0 || section.header.sh_link >= sections.size())
            continue;
        const Section& table = sections[section.header.sh_link];
        Elf_Data* data = elf_getdata(section.handle, nullptr);
        Elf_Data* symbols = table.handle != nullptr ? elf_getdata(table.handle, nullptr) : nullptr;
        if (data == nullptr || symbols == nullptr) continue;
        for (std::size_t i = 0; i < section.header.sh_size / section.header.sh_entsize; ++i) {
            GElf_Rela relocation;
            GElf_Sym symbol;
            if (gelf_getrela(data, static_cast<int>(i), &relocation) == nullptr) break;
            if (GELF_R_SYM(relocation.r_info) == 0) {
                const auto chooser = choosers.find(static_cast<std::uint64_t>(relocation.r_addend));
                if (chooser != choosers.end()) slots.emplace(relocation.r_offset, chooser->second);
                continue;
            }
            if (gelf_getsym(symbols, static_cast<int>(GELF_R_SYM(relocation.r_info)), &symbol) == nullptr)
                continue;
            if (const char* name = elf_strptr(elf, table.header.sh_link, symbol.st_name))
                slots.emplace(relocation.r_offset, name);
        }
    }
    return slots;
}

std::uint32_t word_at(std::span<const std::uint8_t> bytes, std::size_t at) {
    std::uint32_t word = 0;
    std::memcpy(&word, &bytes[at], 4);
    return word;
}

// The slot that a stub of the procedure linkage table jumps through; nothing when the bytes are none.
std::optional<std::uint64_t> slot_of_stub(std::uint16_t machine, std::span<const std::uint8_t> stub,
                                          std::uint64_t address) {
    if (machine == EM_X86_64) {
        // jmp *offset(%rip)
        for (std::size_t i = 0; i + 6 <= stub.size(); ++i)
            if (stub[i] == 0xff && stub[i + 1] == 0x25)
                return address + i + 6 + static_cast<std::int32_t>(word_at(stub, i + 2));
    } else if (machine == EM_AARCH64) {
        // adrp x16, page; ldr x17, [x16, #offset]
        for (std::size_t i = 0; i + 8 <= stub.size(); i += 4) {
            const std::uint32_t adrp = word_at(stub, i);
            const std::uint32_t load = word_at(stub, i + 4);
            if ((adrp & 0x9f00001f) != 0x90000010 || (load & 0xffc003ff) != 0xf9400211) continue;
            const std::uint32_t pages = (adrp >> 5 & 0x7ffff) << 2 | (adrp >> 29 & 3);
            const auto page = static_cast<std::int64_t>(std::uint64_t{pages} << 43) >> 31;
            return ((address + i) & ~std::uint64_t{0xfff}) + page + ((load >> 10 & 0xfff) << 3);
        }
    }
    return std::nullopt;
}

// Entries of .plt, .plt.sec and .plt.got, named after what they call.
void read_stubs(Elf* elf, std::uint16_t machine, const std::vector<Section>& sections,
                std::vector<Symbol>& symbols) {
    std::map<std::uint64_t, std::string> slots;
    for (const Section& section : sections) {
        if (!section.executable() || !section.name.starts_with(".plt")) continue;
        if (slots.empty()) slots = slots_of(elf, sections, symbols);
        const std::span<const std::uint8_t> bytes = section.bytes();
        // Without entry size (.plt.got of some linkers): one jump of 6 bytes, padded to 8.
        const std::size_t entry = section.header.sh_entsize >= 8 ? section.header.sh_entsize : 8;
        for (std::size_t at = 0; at + entry <= bytes.size(); at += entry) {
            const std::uint64_t address = section.header.sh_addr + at;
            const auto slot = slot_of_stub(machine, bytes.subspan(at, entry), address);
            const auto name = slot ? slots.find(*slot) : slots.end();
            // The first entry of .plt, and with .plt.sec all of .plt, lead to the dynamic linker's resolver.
            symbols.push_back({.start = address,
                               .size = entry,
                               .limit = address + entry,
                               .name = name != slots.end() ? name->second + "@plt" : "resolver@plt",
                               .binding = Binding::kLocal,
                               .function = true});
        }
    }
}

std::string hex(const void* bytes, std::size_t size) {
    std::string text;
    for (std::size_t i = 0; i < size; ++i)
        text += fmt::format("{:02x}", static_cast<const std::uint8_t*>(bytes)[i]);
    return text;
}

// CRC-32 as .gnu_debuglink has it (the IEEE polynomial, reflected).
std::uint32_t checksum(std::span<const std::uint8_t> bytes) {
    static const auto kTable = [] {
        std::array<std::uint32_t, 256> table{};
        for (std::uint32_t i = 0; i < 256; ++i) {
            std::uint32_t value = i;
            for (int bit = 0; bit < 8; ++bit) value = value >> 1 ^ ((value & 1) != 0 ? 0xedb88320U : 0U);
            table[i] = value;
        }
        return table;
    }();
    std::uint32_t value = ~0U;
    for (const std::uint8_t byte : bytes) value = kTable[(value ^ byte) & 0xff] ^ value >> 8;
    return ~value;
}

std::string build_id_of(Elf* elf) {
    const void* id = nullptr;
    const ssize_t size = dwelf_elf_gnu_build_id(elf, &id);
    return size > 0 ? hex(id, static_cast<std::size_t>(size)) : std::string{};
}

Result<ElfSymbols> read_open(const OpenElf& elf, const std::string& name) {
    GElf_Ehdr header;
    if (elf.get() == nullptr || gelf_getehdr(elf.get(), &header) == nullptr)
        return fail(name, "it is not an ELF file", "name a program, a library or its debug file");
    ElfSymbols file;
    file.build_id = build_id_of(elf.get());
    std::size_t count = 0;
    if (elf_getphdrnum(elf.get(), &count) != 0) count = 0;
    for (std::size_t i = 0; i < count; ++i) {
        GElf_Phdr s;
        if (gelf_getphdr(elf.get(), static_cast<int>(i), &s) == nullptr || s.p_type != PT_LOAD) continue;
        file.segments.push_back({.address = s.p_vaddr,
                                 .offset = s.p_offset,
                                 .bytes = s.p_filesz,
                                 .memory_bytes = s.p_memsz,
                                 .executable = (s.p_flags & PF_X) != 0});
    }
    const std::vector<Section> sections = sections_of(elf.get());
    const bool descriptors = header.e_machine == EM_PPC64 && (header.e_flags & 3) != 2;
    for (const Section& section : sections) {
        if (section.header.sh_type == SHT_SYMTAB) file.full = true;
        if (section.header.sh_type == SHT_SYMTAB || section.header.sh_type == SHT_DYNSYM)
            read_symbols(elf.get(), sections, section, descriptors, file.symbols);
    }
    read_stubs(elf.get(), header.e_machine, sections, file.symbols);
    for (const Section& section : sections)
        if (section.name == ".eh_frame" && header.e_ident[EI_DATA] == ELFDATA2LSB)
            for (const UnwoundFunction& f : unwound_functions(section.bytes(), section.header.sh_addr,
                                                              header.e_ident[EI_CLASS] == ELFCLASS64))
                file.unnamed.push_back({.start = f.start,
                                        .size = f.bytes,
                                        .limit = f.start + f.bytes,
                                        .name = fmt::format("+{:#x}", f.start),
                                        .binding = Binding::kLocal,
                                        .function = true});
    GElf_Word link_checksum = 0;
    if (const char* link = dwelf_elf_gnu_debuglink(elf.get(), &link_checksum)) {
        file.debug_link = link;
        file.debug_checksum = link_checksum;
    }
    return file;
}

}  // namespace

std::optional<std::uint64_t> ElfSymbols::address_of(std::uint64_t offset) const {
    for (const ElfSegment& s : segments)
        if (offset >= s.offset && offset - s.offset < s.bytes) return offset - s.offset + s.address;
    // Memory is mapped in whole pages, so what is past a segment's end in its last page is mapped too.
    for (const ElfSegment& s : segments)
        if (offset >= s.offset && offset - s.offset < ((s.bytes + 0xfff) & ~std::uint64_t{0xfff}))
            return offset - s.offset + s.address;
    return std::nullopt;
}

bool ElfSymbols::executable(std::uint64_t address) const {
    return std::any_of(segments.begin(), segments.end(), [&](const ElfSegment& s) {
        return s.executable && address >= s.address && address - s.address < s.memory_bytes;
    });
}

Result<ElfSymbols> read_elf_symbols(const std::filesystem::path& path) {
    const OpenElf elf(path);
    if (!elf.readable()) return system_error(path.string(), "cannot open", errno);
    return read_open(elf, path.string());
}

Result<ElfSymbols> read_elf_image(std::string image, const std::string& name) {
    return read_open(OpenElf(OpenElf::Image{std::move(image)}), name);
}

std::optional<std::filesystem::path> find_debug_file(const std::filesystem::path& file,
                                                     const std::string& build_id,
                                                     const std::string& debug_link,
                                                     std::uint32_t debug_checksum,
                                                     const std::vector<std::filesystem::path>& folders) {
    std::error_code ignored;
    const auto there = [&](const std::filesystem::path& path) {
        return std::filesystem::is_regular_file(path, ignored);
    };
    // The name alone proves nothing: the build-id must agree.
    const auto same_build = [&](const std::filesystem::path& path) {
        return there(path) && build_id_of(OpenElf(path).get()) == build_id;
    };
    if (build_id.size() > 2) {
        for (const std::filesystem::path& folder : folders) {
            auto by_id = folder / ".build-id" / build_id.substr(0, 2) / (build_id.substr(2) + ".debug");
            if (same_build(by_id)) return by_id;
        }
        const char* cache = std::getenv("DEBUGINFOD_CACHE_PATH");
        const char* xdg = std::getenv("XDG_CACHE_HOME");
        const char* home = std::getenv("HOME");
        const std::filesystem::path debuginfod =
            cache != nullptr ? std::filesystem::path(cache)
            : xdg != nullptr
                ? std::filesystem::path(xdg) / "debuginfod_client"
                : std::filesystem::path(home != nullptr ? home : "") / ".cache/debuginfod_client";
        if (same_build(debuginfod / build_id / "debuginfo")) return debuginfod / build_id / "debuginfo";
    }
    if (debug_link.empty()) return std::nullopt;
    const std::filesystem::path folder = file.parent_path();
    std::vector<std::filesystem::path> candidates{folder / debug_link, folder / ".debug" / debug_link};
    for (const std::filesystem::path& root : folders) {
        candidates.push_back(root / folder.relative_path() / debug_link);
        candidates.push_back(root / debug_link);
    }
    for (const std::filesystem::path& path : candidates) {
        if (!there(path) || std::filesystem::equivalent(path, file, ignored)) continue;
        if (!build_id.empty() && same_build(path)) return path;
        if (const auto mapped = build_id.empty() ? MappedFile::open(path) : fail("", "", "");
            mapped && checksum(mapped->bytes()) == debug_checksum)
            return path;
    }
    return std::nullopt;
}

}  // namespace tlbscope::explain
