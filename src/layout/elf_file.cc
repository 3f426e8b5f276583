#include "layout/elf_file.h"

#include <elfutils/libdwelf.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>
#include <unistd.h>

#include <cstring>
#include <string_view>

#include "core/files.h"

namespace tlbscope::layout {

namespace {

class OpenElf {
  public:
    explicit OpenElf(const std::filesystem::path& path) {
        elf_version(EV_CURRENT);
        fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd_ >= 0) elf_ = elf_begin(fd_, ELF_C_READ_MMAP, nullptr);
    }
    ~OpenElf() {
        if (elf_ != nullptr) elf_end(elf_);
        if (fd_ >= 0) ::close(fd_);
    }
    OpenElf(const OpenElf&) = delete;
    OpenElf& operator=(const OpenElf&) = delete;
    [[nodiscard]] Elf* get() const { return elf_; }
    [[nodiscard]] int fd() const { return fd_; }

  private:
    int fd_ = -1;
    Elf* elf_ = nullptr;
};

void read_symbols(Elf* elf, Elf_Scn* table, const GElf_Shdr& header, ElfFile& file) {
    Elf_Data* data = elf_getdata(table, nullptr);
    if (data == nullptr || header.sh_entsize == 0) return;
    const std::size_t count = header.sh_size / header.sh_entsize;
    std::string source;
    for (std::size_t i = 0; i < count; ++i) {
        GElf_Sym symbol;
        if (gelf_getsym(data, static_cast<int>(i), &symbol) == nullptr) break;
        const char* name = elf_strptr(elf, header.sh_link, symbol.st_name);
        const int type = GELF_ST_TYPE(symbol.st_info);
        const int binding = GELF_ST_BIND(symbol.st_info);
        if (type == STT_FILE) source = name != nullptr ? name : "";
        if (name == nullptr || *name == '\0' || symbol.st_shndx == SHN_UNDEF) continue;
        if (type != STT_FUNC && type != STT_OBJECT && type != STT_NOTYPE && type != STT_GNU_IFUNC) continue;
        // The assembler's own labels, and ARM's and RISC-V's mapping symbols.
        if (name[0] == '$' || std::strncmp(name, ".L", 2) == 0) continue;
        file.symbols.push_back({.name = name,
                                .value = symbol.st_value,
                                .size = symbol.st_size,
                                .section = symbol.st_shndx < file.sections.size() ? symbol.st_shndx : 0U,
                                .function = type == STT_FUNC || type == STT_GNU_IFUNC,
                                .object = type == STT_OBJECT,
                                .local = binding == STB_LOCAL,
                                .weak = binding == STB_WEAK,
                                .file = binding == STB_LOCAL ? source : std::string{}});
    }
}

ElfFile contents_of(Elf* elf, std::string name) {
    ElfFile file;
    file.name = std::move(name);
    GElf_Ehdr header;
    if (gelf_getehdr(elf, &header) != nullptr) {
        file.machine = header.e_machine;
        file.type = header.e_type;
    }
    std::size_t names = 0;
    elf_getshdrstrndx(elf, &names);
    file.sections.emplace_back();
    Elf_Scn* symbols = nullptr;
    GElf_Shdr symbols_header{};
    for (Elf_Scn* handle = nullptr; (handle = elf_nextscn(elf, handle)) != nullptr;) {
        GElf_Shdr section;
        if (gelf_getshdr(handle, &section) == nullptr) section = {};
        const char* text = elf_strptr(elf, names, section.sh_name);
        file.sections.push_back({.name = text != nullptr ? text : "",
                                 .address = section.sh_addr,
                                 .size = section.sh_size,
                                 .align = std::max<std::uint64_t>(section.sh_addralign, 1),
                                 .allocated = (section.sh_flags & SHF_ALLOC) != 0,
                                 .code = (section.sh_flags & SHF_EXECINSTR) != 0,
                                 .writable = (section.sh_flags & SHF_WRITE) != 0});
        if (section.sh_type == SHT_SYMTAB) {
            symbols = handle;
            symbols_header = section;
            file.has_symbol_table = true;
        }
    }
    if (symbols != nullptr) read_symbols(elf, symbols, symbols_header, file);
    std::size_t segments = 0;
    elf_getphdrnum(elf, &segments);
    for (std::size_t i = 0; i < segments; ++i) {
        GElf_Phdr segment;
        if (gelf_getphdr(elf, static_cast<int>(i), &segment) == nullptr || segment.p_type != PT_LOAD)
            continue;
        file.segments.push_back({.address = segment.p_vaddr,
                                 .offset = segment.p_offset,
                                 .bytes = segment.p_filesz,
                                 .memory_bytes = segment.p_memsz});
    }
    const void* id = nullptr;
    if (const ssize_t bytes = dwelf_elf_gnu_build_id(elf, &id); bytes > 0)
        for (ssize_t i = 0; i < bytes; ++i)
            file.build_id += fmt::format("{:02x}", static_cast<const unsigned char*>(id)[i]);
    return file;
}

std::unexpected<Error> not_elf(const std::filesystem::path& path, const OpenElf& file) {
    if (file.fd() < 0) return system_error(path.string(), "cannot open", errno);
    return fail(path.string(), "it is no ELF file", "give the linked program, library or vmlinux itself");
}

// `ar` prints a thin archive's member names relative to the archive; GNU's format: entries of 60 bytes, names
// longer than 15 characters as "/OFFSET" into the member "//". Only the headers are in the file.
Result<void> for_each_thin(const std::filesystem::path& path, std::string_view text,
                           const std::function<void(const ElfFile&)>& visit) {
    std::string_view names;
    for (std::size_t at = 8; at + 60 <= text.size();) {
        const std::string_view header = text.substr(at, 60);
        const std::uint64_t size = std::strtoull(std::string(header.substr(48, 10)).c_str(), nullptr, 10);
        at += 60;
        if (header.starts_with("// ") || header.starts_with("/ ") || header.starts_with("/SYM64/ ")) {
            if (header.starts_with("// ")) names = text.substr(at, size);
            at += size + (size & 1);
            continue;
        }
        std::string member;
        if (header[0] == '/') {
            const std::size_t offset = std::strtoull(std::string(header.substr(1, 15)).c_str(), nullptr, 10);
            if (offset < names.size()) member = names.substr(offset, names.find("/\n", offset) - offset);
        } else {
            member = header.substr(0, header.find('/'));
        }
        if (member.empty()) return fail(path.string(), "this thin archive is damaged", "build it again");
        const std::filesystem::path object =
            member.starts_with('/') ? std::filesystem::path(member) : path.parent_path() / member;
        auto read = read_elf_file(object);
        if (!read) return std::unexpected(read.error());
        visit(*read);
    }
    return {};
}

}  // namespace

Result<ElfFile> read_elf_file(const std::filesystem::path& path) {
    const OpenElf file(path);
    if (file.get() == nullptr || elf_kind(file.get()) != ELF_K_ELF) return not_elf(path, file);
    return contents_of(file.get(), path.string());
}

Result<void> for_each_object(const std::filesystem::path& path,
                             const std::function<void(const ElfFile&)>& visit) {
    {
        const auto mapped = MappedFile::open(path);
        if (!mapped) return std::unexpected(mapped.error());
        const std::string_view text(reinterpret_cast<const char*>(mapped->bytes().data()),
                                    mapped->bytes().size());
        if (text.starts_with("!<thin>\n")) return for_each_thin(path, text, visit);
    }
    const OpenElf file(path);
    if (file.get() == nullptr) return not_elf(path, file);
    if (elf_kind(file.get()) == ELF_K_ELF) {
        visit(contents_of(file.get(), path.string()));
        return {};
    }
    if (elf_kind(file.get()) != ELF_K_AR) return not_elf(path, file);
    Elf_Cmd command = ELF_C_READ_MMAP;
    for (Elf* member = nullptr; (member = elf_begin(file.fd(), command, file.get())) != nullptr;) {
        const Elf_Arhdr* header = elf_getarhdr(member);
        if (elf_kind(member) == ELF_K_ELF)
            visit(contents_of(member,
                              fmt::format("{}({})", path.string(),
                                          header != nullptr && header->ar_name ? header->ar_name : "?")));
        command = elf_next(member);
        elf_end(member);
    }
    return {};
}

}  // namespace tlbscope::layout
