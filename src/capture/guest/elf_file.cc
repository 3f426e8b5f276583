#include "capture/guest/elf_file.h"

#include <elf.h>
#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <unistd.h>

#include <cstring>
#include <memory>

#include <fmt/format.h>

namespace tlbscope::capture {

namespace {

std::vector<std::string> split(const std::string& text) {
    std::vector<std::string> parts;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = std::min(text.find(':', at), text.size());
        if (end > at) parts.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return parts;
}

// A byte range of the file as text up to its zero.
std::string text_at(const char* image, std::size_t size, std::uint64_t at) {
    if (at >= size) return {};
    return {image + at, ::strnlen(image + at, size - at)};
}

// The dynamic section speaks in addresses; only the segments say where in the file they are.
std::optional<std::uint64_t> offset_of(const std::vector<GElf_Phdr>& segments, std::uint64_t address) {
    for (const GElf_Phdr& s : segments)
        if (s.p_type == PT_LOAD && address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz)
            return address - s.p_vaddr + s.p_offset;
    return std::nullopt;
}

void read_dynamic(Elf* elf, const GElf_Phdr& segment, const std::vector<GElf_Phdr>& segments,
                  const char* image, std::size_t size, ElfFile& file) {
    Elf_Data* data =
        elf_getdata_rawchunk(elf, static_cast<std::int64_t>(segment.p_offset), segment.p_filesz, ELF_T_DYN);
    if (data == nullptr) return;
    std::vector<GElf_Dyn> entries;
    std::uint64_t strings = 0;
    GElf_Dyn entry;
    for (int i = 0; gelf_getdyn(data, i, &entry) != nullptr && entry.d_tag != DT_NULL; ++i) {
        if (entry.d_tag == DT_STRTAB) strings = offset_of(segments, entry.d_un.d_ptr).value_or(0);
        entries.push_back(entry);
    }
    if (strings == 0) return;
    for (const GElf_Dyn& e : entries) {
        if (e.d_un.d_val > size) continue;
        const std::string text = text_at(image, size, strings + e.d_un.d_val);
        switch (e.d_tag) {
            case DT_NEEDED:
                file.needed.push_back(text);
                break;
            case DT_SONAME:
                file.name = text;
                break;
            case DT_RPATH:
                file.rpath = split(text);
                break;
            case DT_RUNPATH:
                file.runpath = split(text);
                break;
            default:
                break;
        }
    }
}

}  // namespace

std::string build_id_in_notes(std::span<const std::uint8_t> notes, bool big_endian, std::size_t align) {
    const auto word = [&](std::size_t at) {
        std::uint32_t v = 0;
        for (std::size_t i = 0; i < 4; ++i) v |= std::uint32_t{notes[at + i]} << 8 * (big_endian ? 3 - i : i);
        return std::size_t{v};
    };
    const auto padded = [&](std::size_t n) { return (n + align - 1) / align * align; };
    for (std::size_t at = 0; at + 12 <= notes.size();) {
        const std::size_t name_size = word(at);
        const std::size_t size = word(at + 4);
        const std::size_t type = word(at + 8);
        // As elf(5) has it: the name starts after the three words, the descriptor at the next multiple of the
        // alignment.
        if (name_size > notes.size() || size > notes.size()) return {};
        const std::size_t descriptor = padded(at + 12 + name_size);
        if (descriptor + size > notes.size()) return {};
        if (type == NT_GNU_BUILD_ID && name_size == 4 && std::memcmp(&notes[at + 12], "GNU", 4) == 0) {
            std::string hex;
            for (std::size_t i = 0; i < size; ++i) hex += fmt::format("{:02x}", notes[descriptor + i]);
            return hex;
        }
        at = padded(descriptor + size);
    }
    return {};
}

std::optional<ElfFile> read_elf(const std::filesystem::path& path) {
    static const bool ready = elf_version(EV_CURRENT) != EV_NONE;
    if (!ready) return std::nullopt;
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return std::nullopt;
    const std::unique_ptr<Elf, int (*)(Elf*)> elf(elf_begin(fd, ELF_C_READ_MMAP, nullptr), elf_end);
    std::optional<ElfFile> result;
    GElf_Ehdr header;
    if (elf && elf_kind(elf.get()) == ELF_K_ELF && gelf_getehdr(elf.get(), &header) != nullptr) {
        ElfFile file;
        file.bits = header.e_ident[EI_CLASS] == ELFCLASS64 ? 64 : 32;
        file.big_endian = header.e_ident[EI_DATA] == ELFDATA2MSB;
        file.machine = header.e_machine;
        std::size_t size = 0;
        const char* image = elf_rawfile(elf.get(), &size);
        std::size_t count = 0;
        std::vector<GElf_Phdr> segments;
        if (elf_getphdrnum(elf.get(), &count) != 0) count = 0;
        for (std::size_t i = 0; i < count; ++i)
            if (GElf_Phdr s; gelf_getphdr(elf.get(), static_cast<int>(i), &s) != nullptr)
                segments.push_back(s);
        for (const GElf_Phdr& s : segments) {
            if (s.p_type == PT_LOAD) file.has_code = true;
            if (image == nullptr || s.p_offset > size || s.p_filesz > size - s.p_offset) continue;
            if (s.p_type == PT_INTERP) file.interpreter = text_at(image, size, s.p_offset);
            if (s.p_type == PT_DYNAMIC) read_dynamic(elf.get(), s, segments, image, size, file);
            if (s.p_type == PT_NOTE && file.build_id.empty())
                file.build_id =
                    build_id_in_notes({reinterpret_cast<const std::uint8_t*>(image) + s.p_offset, s.p_filesz},
                                      file.big_endian, s.p_align == 8 ? 8 : 4);
        }
        result = std::move(file);
    }
    ::close(fd);
    return result;
}

}  // namespace tlbscope::capture
