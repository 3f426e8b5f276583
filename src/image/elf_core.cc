// ELF cores by their program headers alone: a core of a whole machine has a PT_LOAD segment for each stretch
// of memory, and p_paddr says where it was. /proc/kcore marks stretches without a physical address (vmalloc)
// with all ones.
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "image/formats.h"

namespace tlbscope::image {

namespace {

struct Segment {
    std::uint64_t physical = 0;
    std::uint64_t offset = 0;
    std::uint64_t file_bytes = 0;
    std::uint64_t memory_bytes = 0;
};

class ElfCore : public Image {
  public:
    ElfCore(File file, std::vector<Segment> segments, std::string description)
        : file_(std::move(file)),
          segments_(std::move(segments)),
          description_(std::move(description)),
          pieces_(4096) {}
    std::string description() const override { return description_; }
    bool contains(PhysAddr at, std::uint64_t bytes) const override {
        for (const Segment& segment : segments_)
            if (at.value() >= segment.physical && at.value() - segment.physical < segment.memory_bytes &&
                bytes <= segment.memory_bytes - (at.value() - segment.physical))
                return true;
        return false;
    }
    bool load(PhysAddr at, void* into, unsigned bytes) const override {
        for (const Segment& segment : segments_) {
            const std::uint64_t within = at.value() - segment.physical;
            if (at.value() < segment.physical || within >= segment.memory_bytes ||
                bytes > segment.memory_bytes - within)
                continue;
            if (within >= segment.file_bytes || bytes > segment.file_bytes - within) {
                std::memset(into, 0, bytes);  // memory that the core leaves out because it was all zero
                return true;
            }
            const std::uint64_t number = (segment.offset + within) / pieces_.piece_bytes();
            const auto start = static_cast<std::size_t>((segment.offset + within) % pieces_.piece_bytes());
            if (start + bytes <= pieces_.piece_bytes()) {
                const auto piece = pieces_.get(number, [&](std::span<std::uint8_t> piece_into) {
                    return file_.read(number * pieces_.piece_bytes(), piece_into);
                });
                if (!piece.empty()) {
                    std::memcpy(into, piece.data() + start, bytes);
                    return true;
                }
            }
            return file_.read(segment.offset + within, {static_cast<std::uint8_t*>(into), bytes});
        }
        return false;
    }

  private:
    File file_;
    std::vector<Segment> segments_;
    std::string description_;
    mutable PieceCache pieces_;
};

}  // namespace

bool is_elf(std::span<const std::uint8_t> first) {
    return first.size() >= SELFMAG && std::memcmp(first.data(), ELFMAG, SELFMAG) == 0;
}

Result<std::unique_ptr<Image>> open_elf_core(File file) {
    const std::string name = file.name();
    const auto damaged = [&](const std::string& what) {
        return fail(name, what, "give a core of a whole machine, such as QEMU's dump-guest-memory writes");
    };
    std::array<std::uint8_t, sizeof(Elf64_Ehdr)> header{};
    if (!file.read(0, header)) return damaged("the ELF header is cut short");
    const bool wide = header[EI_CLASS] == ELFCLASS64;
    const bool big = header[EI_DATA] == ELFDATA2MSB;
    const auto at = [&](std::size_t offset, unsigned bytes) {
        return number(std::span(header).subspan(offset, bytes), bytes, big);
    };
    if (at(16, 2) != ET_CORE) return damaged("it is an ELF file but no core");
    const std::uint64_t table = wide ? at(32, 8) : at(28, 4);
    const std::uint64_t entry = wide ? at(54, 2) : at(42, 2);
    std::uint64_t count = wide ? at(56, 2) : at(44, 2);
    if (entry < (wide ? sizeof(Elf64_Phdr) : sizeof(Elf32_Phdr)) || entry > 4096)
        return damaged("its program headers have an impossible size");
    if (count == PN_XNUM) {  // the real number is in the first section header's sh_info
        const std::uint64_t sections = wide ? at(40, 8) : at(32, 4);
        std::array<std::uint8_t, sizeof(Elf64_Shdr)> section{};
        if (!file.read(sections, section)) return damaged("its section header is cut short");
        count = number(std::span(section).subspan(wide ? 44 : 28, 4), 4, big);
    }
    std::vector<Segment> segments;
    std::vector<std::uint8_t> bytes(static_cast<std::size_t>(entry));
    for (std::uint64_t n = 0; n < std::min<std::uint64_t>(count, 1 << 20); ++n) {
        if (!file.read(table + n * entry, bytes)) return damaged("its program headers are cut short");
        const auto field = [&](std::size_t offset32, std::size_t offset64) {
            const unsigned size = wide ? 8 : 4;
            return number(std::span(bytes).subspan(wide ? offset64 : offset32, size), size, big);
        };
        if (number(std::span(bytes).first(4), 4, big) != PT_LOAD) continue;
        const Segment segment{.physical = field(12, 24),
                              .offset = field(4, 8),
                              .file_bytes = field(16, 32),
                              .memory_bytes = std::max(field(20, 40), field(16, 32))};
        const std::uint64_t none = wide ? ~std::uint64_t{0} : 0xffffffff;
        if (segment.physical != none && segment.memory_bytes != 0) segments.push_back(segment);
    }
    if (segments.empty()) return damaged("no segment of this core says which physical memory it holds");
    const std::string description =
        fmt::format("ELF core, {}-bit {}-endian, {} segment{} of memory", wide ? 64 : 32,
                    big ? "big" : "little", segments.size(), segments.size() == 1 ? "" : "s");
    return std::make_unique<ElfCore>(std::move(file), std::move(segments), description);
}

}  // namespace tlbscope::image
