#include "capture/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gelf.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <limits>
#include <memory>
#include <sstream>

#include "capture/guest/elf_file.h"
#include "capture/process.h"

namespace tlbscope::capture {

namespace {

// An ELF file open for reading, for as long as the object lives.
class OpenElf {
  public:
    explicit OpenElf(const std::filesystem::path& path) {
        elf_version(EV_CURRENT);
        fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd_ >= 0) elf_ = elf_begin(fd_, ELF_C_READ_MMAP, nullptr);
        if (elf_ != nullptr && elf_kind(elf_) != ELF_K_ELF) {
            elf_end(elf_);
            elf_ = nullptr;
        }
    }
    ~OpenElf() {
        if (elf_ != nullptr) elf_end(elf_);
        if (fd_ >= 0) ::close(fd_);
    }
    OpenElf(const OpenElf&) = delete;
    OpenElf& operator=(const OpenElf&) = delete;
    [[nodiscard]] Elf* get() const { return elf_; }

  private:
    int fd_ = -1;
    Elf* elf_ = nullptr;
};

Result<std::filesystem::path> search_path(const std::string& name) {
    if (const auto found = find_program(name)) return *found;
    if (name.find('/') == std::string::npos)
        return fail(name, "there is no such program in PATH", "check the name or give its path");
    if (std::filesystem::exists(name)) return fail(name, "it is not an executable file", "chmod +x it");
    return fail(name, "there is no such program", "check the name");
}

std::string target_of(const GElf_Ehdr& header) {
    const bool big = header.e_ident[EI_DATA] == ELFDATA2MSB;
    const bool wide = header.e_ident[EI_CLASS] == ELFCLASS64;
    switch (header.e_machine) {
        case EM_X86_64:
            return "x86_64";
        case EM_386:
            return "i386";
        case EM_PPC:
            return "ppc";
        case EM_PPC64:
            return big ? "ppc64" : "ppc64le";
        case EM_AARCH64:
            return big ? "aarch64_be" : "aarch64";
        case EM_ARM:
            return big ? "armeb" : "arm";
        case EM_RISCV:
            return wide ? "riscv64" : "riscv32";
        case EM_MIPS:
            return std::string("mips") + (wide ? "64" : "") + (big ? "" : "el");
        case EM_S390:
            return "s390x";
        case EM_SPARCV9:
            return "sparc64";
        case EM_SPARC:
            return "sparc";
        case EM_68K:
            return "m68k";
        case EM_SH:
            return big ? "sh4eb" : "sh4";
        case EM_ALPHA:
            return "alpha";
        case EM_PARISC:
            return "hppa";
        default:
            return "";
    }
}

}  // namespace

Result<Program> find_program(const std::vector<std::string>& command) {
    Program program{.arguments = command};
    auto path = search_path(command.front());
    if (!path) return std::unexpected(path.error());
    program.path = *path;
    // As the kernel does: a script names its interpreter and at most one argument; four levels at most.
    for (int depth = 0;; ++depth) {
        std::array<char, 256> start{};
        const int fd = ::open(program.path.c_str(), O_RDONLY | O_CLOEXEC);
        if (fd < 0) return system_error(program.path.string(), "cannot open the program", errno);
        const ssize_t n = ::read(fd, start.data(), start.size() - 1);
        ::close(fd);
        if (n < 2 || start[0] != '#' || start[1] != '!' || depth == 4) break;
        std::istringstream line(std::string(start.data() + 2, static_cast<std::size_t>(n) - 2));
        std::string text;
        std::getline(line, text);
        std::istringstream words(text);
        std::string interpreter;
        std::string argument;
        words >> interpreter;
        std::getline(words >> std::ws, argument);
        std::vector<std::string> arguments{interpreter};
        if (!argument.empty()) arguments.push_back(argument);
        arguments.push_back(program.path.string());
        arguments.insert(arguments.end(), program.arguments.begin() + 1, program.arguments.end());
        program.arguments = std::move(arguments);
        program.path = interpreter;
    }
    const OpenElf elf(program.path);
    GElf_Ehdr header;
    if (elf.get() == nullptr || gelf_getehdr(elf.get(), &header) == nullptr)
        return fail(program.path.string(), "it is neither an ELF program nor a script", "name a program");
    program.target = target_of(header);
    if (program.target.empty())
        return fail(program.path.string(),
                    fmt::format("no QEMU is known for ELF machine {}", header.e_machine),
                    "record on another architecture, or import a trace");
    if (header.e_type != ET_EXEC && header.e_type != ET_DYN)
        return fail(program.path.string(), "the ELF file is not a program", "link it first");
    program.position_independent = header.e_type == ET_DYN;
    program.code_start = std::numeric_limits<std::uint64_t>::max();
    std::size_t count = 0;
    elf_getphdrnum(elf.get(), &count);
    for (std::size_t i = 0; i < count; ++i) {
        GElf_Phdr segment;
        if (gelf_getphdr(elf.get(), static_cast<int>(i), &segment) == nullptr) continue;
        if (segment.p_type == PT_LOAD && (segment.p_flags & PF_X) != 0)
            program.code_start = std::min(program.code_start, std::uint64_t{segment.p_vaddr});
    }
    return program;
}

Result<std::optional<std::uint64_t>> find_symbol(const std::filesystem::path& path, const std::string& name) {
    const OpenElf elf(path);
    if (elf.get() == nullptr) return fail(path.string(), "the file is not an ELF file", "name a program");
    for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf.get(), section)) != nullptr;) {
        GElf_Shdr header;
        if (gelf_getshdr(section, &header) == nullptr || header.sh_entsize == 0 ||
            (header.sh_type != SHT_SYMTAB && header.sh_type != SHT_DYNSYM))
            continue;
        Elf_Data* data = elf_getdata(section, nullptr);
        for (std::size_t i = 0; data != nullptr && i < header.sh_size / header.sh_entsize; ++i) {
            GElf_Sym symbol;
            if (gelf_getsym(data, static_cast<int>(i), &symbol) == nullptr || symbol.st_shndx == SHN_UNDEF)
                continue;
            const char* text = elf_strptr(elf.get(), header.sh_link, symbol.st_name);
            if (text != nullptr && name == text) return std::optional<std::uint64_t>(symbol.st_value);
        }
    }
    return std::optional<std::uint64_t>();
}

std::string build_id(const std::filesystem::path& path) {
    const auto elf = read_elf(path);
    return elf ? elf->build_id : std::string();
}

}  // namespace tlbscope::capture
