#include "image/image.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/numbers.h"
#include "image/formats.h"

namespace tlbscope::image {

namespace {

class RawImage : public Image {
  public:
    RawImage(File file, std::uint64_t base) : file_(std::move(file)), base_(base), pieces_(4096) {}
    std::string description() const override {
        return fmt::format("raw memory, {} from physical address {:#x}", human_bytes(file_.size()), base_);
    }
    bool contains(PhysAddr at, std::uint64_t bytes) const override {
        const std::uint64_t offset = at.value() - base_;
        return at.value() >= base_ && offset < file_.size() && bytes <= file_.size() - offset;
    }
    bool load(PhysAddr at, void* into, unsigned bytes) const override {
        if (!contains(at, bytes)) return false;
        const std::uint64_t offset = at.value() - base_;
        const std::uint64_t number = offset / pieces_.piece_bytes();
        const std::size_t within = static_cast<std::size_t>(offset % pieces_.piece_bytes());
        const std::uint64_t start = number * pieces_.piece_bytes();
        // An entry may lie across two pieces only when the base is odd; then it is read by itself.
        if (within + bytes > pieces_.piece_bytes() || file_.size() - start < pieces_.piece_bytes())
            return file_.read(offset, {static_cast<std::uint8_t*>(into), bytes});
        const auto piece = pieces_.get(
            number, [&](std::span<std::uint8_t> piece_into) { return file_.read(start, piece_into); });
        if (piece.empty()) return false;
        std::memcpy(into, piece.data() + within, bytes);
        return true;
    }

  private:
    File file_;
    std::uint64_t base_;
    mutable PieceCache pieces_;
};

}  // namespace

Result<std::unique_ptr<Image>> open_image(const std::string& name, std::uint64_t base) {
    auto file = File::open(name);
    if (!file) return std::unexpected(file.error());
    std::array<std::uint8_t, 16> first{};
    for (std::size_t n = 0; n < first.size(); ++n)
        if (!file->read(n, std::span(first).subspan(n, 1))) break;
    if (is_elf(first)) return open_elf_core(std::move(*file));
    if (is_kdump(first)) return open_kdump(std::move(*file));
    if (file->size() == 0)
        return fail(name, "the file is empty", "give a memory image, an ELF core or a kdump");
    return std::make_unique<RawImage>(std::move(*file), base);
}

}  // namespace tlbscope::image
