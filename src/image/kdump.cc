// The kdump-compressed format of diskdump and makedumpfile: a header block, a sub-header, two bitmaps with a
// bit for each page frame (the machine has it; the file holds it), a descriptor for each held page in the
// order of frames, and the pages, packed one by one. The numbers are in the dumped machine's byte order.
//
// The flattened form is the same file as a list of "write these bytes at that offset", so that it could be
// piped; QEMU's dump-guest-memory -z writes it. It is put together again as an index, not as bytes.
//
// Sources: the layout as QEMU's include/sysemu/dump.h and makedumpfile's IMPLEMENTATION describe it; checked
// against dumps that QEMU 7.2 wrote (tests/text/walk-qemu.test).
#include <fmt/format.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <vector>

#include "core/numbers.h"
#include "image/formats.h"

namespace tlbscope::image {

namespace {

constexpr std::string_view kSignature = "KDUMP   ";
constexpr std::string_view kFlatSignature = "makedumpfile";
constexpr std::uint64_t kFlatHeader = 4096;
constexpr std::uint32_t kZlib = 1;
constexpr std::uint32_t kLzo = 2;
constexpr std::uint32_t kSnappy = 4;
constexpr std::uint32_t kZstd = 0x20;

// The file as it would be without flattening.
class Layout {
  public:
    explicit Layout(File file) : file_(std::move(file)) {}
    const File& file() const { return file_; }

    // Reads the list of a flattened file; false when it is damaged.
    bool index() {
        flat_ = true;
        std::uint64_t at = kFlatHeader;
        for (;;) {
            std::array<std::uint8_t, 16> record{};
            if (!file_.read(at, record)) return false;
            const auto offset = static_cast<std::int64_t>(number(std::span(record).first(8), 8, true));
            const auto bytes = static_cast<std::int64_t>(number(std::span(record).subspan(8), 8, true));
            at += record.size();
            if (offset == -1 && bytes == -1) return true;
            if (offset < 0 || bytes <= 0 || static_cast<std::uint64_t>(bytes) > file_.size() - at)
                return false;
            insert(static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(bytes), at);
            at += static_cast<std::uint64_t>(bytes);
        }
    }
    bool read(std::uint64_t at, std::span<std::uint8_t> into) const {
        if (!flat_) return file_.read(at, into);
        while (!into.empty()) {
            auto piece = pieces_.upper_bound(at);
            if (piece == pieces_.begin()) return false;
            --piece;
            const std::uint64_t within = at - piece->first;
            if (within >= piece->second.bytes) return false;
            const auto n =
                static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), piece->second.bytes - within));
            if (!file_.read(piece->second.at + within, into.first(n))) return false;
            at += n;
            into = into.subspan(n);
        }
        return true;
    }

  private:
    struct Piece {
        std::uint64_t bytes = 0;
        std::uint64_t at = 0;
    };
    // Later bytes replace earlier ones.
    void insert(std::uint64_t offset, std::uint64_t bytes, std::uint64_t at) {
        const std::uint64_t end = offset + bytes;
        auto piece = pieces_.upper_bound(offset);
        if (piece != pieces_.begin()) {
            --piece;
            const std::uint64_t piece_end = piece->first + piece->second.bytes;
            if (piece_end > offset) {
                if (piece_end > end)
                    pieces_[end] = {piece_end - end, piece->second.at + (end - piece->first)};
                piece->second.bytes = offset - piece->first;
            }
        }
        for (piece = pieces_.lower_bound(offset); piece != pieces_.end() && piece->first < end;) {
            const std::uint64_t piece_end = piece->first + piece->second.bytes;
            if (piece_end > end) {
                pieces_[end] = {piece_end - end, piece->second.at + (end - piece->first)};
                pieces_.erase(piece);
                break;
            }
            piece = pieces_.erase(piece);
        }
        pieces_[offset] = {bytes, at};
    }

    File file_;
    bool flat_ = false;
    std::map<std::uint64_t, Piece> pieces_;
};

struct Descriptor {
    std::uint64_t offset = 0;
    std::size_t size = 0;
    std::uint32_t flags = 0;
};
constexpr std::uint64_t kDescriptorBytes = 24;

std::optional<Descriptor> descriptor_at(const Layout& layout, std::uint64_t at, bool big) {
    std::array<std::uint8_t, kDescriptorBytes> bytes{};
    if (!layout.read(at, bytes)) return std::nullopt;
    return Descriptor{.offset = number(std::span(bytes).first(8), 8, big),
                      .size = static_cast<std::size_t>(number(std::span(bytes).subspan(8, 4), 4, big)),
                      .flags = static_cast<std::uint32_t>(number(std::span(bytes).subspan(12, 4), 4, big))};
}

// The compression among `flags` that is not read here; empty when there is none.
std::string_view unread_compression(std::uint64_t flags) {
    if ((flags & kLzo) != 0) return "LZO";
    if ((flags & kSnappy) != 0) return "snappy";
    return {};
}

class Kdump : public Image {
  public:
    Kdump(Layout layout, std::size_t block, bool big, std::uint64_t descriptors,
          std::vector<std::uint8_t> machine, std::vector<std::uint8_t> held, std::string description)
        : layout_(std::move(layout)),
          block_(block),
          big_(big),
          descriptors_(descriptors),
          machine_(std::move(machine)),
          held_(std::move(held)),
          description_(std::move(description)),
          pages_(block) {
        // How many pages are held before every 512th frame, so that a descriptor is found without counting
        // all bits.
        std::uint64_t count = 0;
        for (std::size_t at = 0; at < held_.size(); ++at) {
            if (at % 64 == 0) before_.push_back(count);
            count += static_cast<unsigned>(std::popcount(held_[at]));
        }
    }
    std::string description() const override { return description_; }
    bool contains(PhysAddr at, std::uint64_t bytes) const override {
        if (bytes == 0) return true;
        const std::uint64_t first = at.value() / block_;
        const std::uint64_t last = (at.value() + (bytes - 1)) / block_;
        if (last < first || last / 8 >= machine_.size()) return false;
        for (std::uint64_t frame = first; frame <= last; ++frame)
            if (!bit(machine_, frame)) return false;
        return true;
    }
    bool load(PhysAddr at, void* into, unsigned bytes) const override {
        const std::uint64_t frame = at.value() / block_;
        const auto within = static_cast<std::size_t>(at.value() % block_);
        if (within + bytes > block_ || !bit(held_, frame)) return false;
        const auto page =
            pages_.get(frame, [&](std::span<std::uint8_t> page_into) { return unpack(frame, page_into); });
        if (page.empty()) return false;
        std::memcpy(into, page.data() + within, bytes);
        return true;
    }

  private:
    static bool bit(const std::vector<std::uint8_t>& bits, std::uint64_t n) {
        return n / 8 < bits.size() && (bits[static_cast<std::size_t>(n / 8)] >> (n % 8) & 1) != 0;
    }
    bool unpack(std::uint64_t frame, std::span<std::uint8_t> into) const {
        const auto byte = static_cast<std::size_t>(frame / 8);
        std::uint64_t index = before_[byte / 64];
        for (std::size_t at = byte / 64 * 64; at < byte; ++at)
            index += static_cast<unsigned>(std::popcount(held_[at]));
        index += static_cast<unsigned>(
            std::popcount(static_cast<std::uint8_t>(held_[byte] & ((1U << (frame % 8)) - 1))));
        const auto page = descriptor_at(layout_, descriptors_ + index * kDescriptorBytes, big_);
        if (!page || page->size > block_) return false;
        std::vector<std::uint8_t> packed(page->size);
        if (!layout_.read(page->offset, packed)) return false;
        if ((page->flags & kZlib) != 0) {
            uLongf length = into.size();
            return ::uncompress(into.data(), &length, packed.data(), packed.size()) == Z_OK &&
                   length == into.size();
        }
        if ((page->flags & kZstd) != 0)
            return ::ZSTD_decompress(into.data(), into.size(), packed.data(), packed.size()) == into.size();
        if (!unread_compression(page->flags).empty() || page->size != block_) return false;
        std::copy(packed.begin(), packed.end(), into.begin());
        return true;
    }

    Layout layout_;
    std::size_t block_;
    bool big_;
    std::uint64_t descriptors_;
    std::vector<std::uint8_t> machine_;
    std::vector<std::uint8_t> held_;
    std::vector<std::uint64_t> before_;
    std::string description_;
    mutable PieceCache pages_;
};

}  // namespace

bool is_kdump(std::span<const std::uint8_t> first) {
    const std::string_view text(reinterpret_cast<const char*>(first.data()), first.size());
    return text.starts_with(kSignature) || text.starts_with(kFlatSignature);
}

Result<std::unique_ptr<Image>> open_kdump(File file) {
    const std::string name = file.name();
    const auto damaged = [&](const std::string& what) {
        return fail(name, what, "make the dump again, with makedumpfile or QEMU's dump-guest-memory -z");
    };
    std::array<std::uint8_t, 12> first{};
    if (!file.read(0, first)) return damaged("the kdump header is cut short");
    const bool flat = std::memcmp(first.data(), kFlatSignature.data(), kFlatSignature.size()) == 0;
    Layout layout(std::move(file));
    if (flat && !layout.index()) return damaged("the flattened kdump is cut short or damaged");
    std::array<std::uint8_t, 464> header{};
    if (!layout.read(0, header) || std::memcmp(header.data(), kSignature.data(), kSignature.size()) != 0)
        return damaged("the kdump header is cut short or damaged");

    // Byte order and width follow from where the block size makes sense: the header has a time stamp of 22
    // bytes (64-bit) or 10 (32-bit) before the status.
    bool big = false;
    std::size_t status = 0;
    std::uint64_t block = 0;
    for (const bool try_big : {false, true})
        for (const std::size_t try_status : {424, 412}) {
            const std::uint64_t size = number(std::span(header).subspan(try_status + 4, 4), 4, try_big);
            if (block == 0 && size >= 1024 && size <= 65536 && std::has_single_bit(size)) {
                block = size;
                big = try_big;
                status = try_status;
            }
        }
    if (block == 0) return damaged("the kdump header has no block size that makes sense");
    const auto field = [&](std::size_t index) {
        return number(std::span(header).subspan(status + 4 * index, 4), 4, big);
    };
    const std::uint64_t sub_blocks = field(2);
    const std::uint64_t bitmap_blocks = field(3);
    if (bitmap_blocks == 0 || bitmap_blocks % 2 != 0 || bitmap_blocks * block > layout.file().size() ||
        sub_blocks > 1 << 20)
        return damaged("the kdump header has impossible sizes");
    const auto half = static_cast<std::size_t>(bitmap_blocks / 2 * block);
    const std::uint64_t bitmaps = (1 + sub_blocks) * block;
    std::vector<std::uint8_t> machine(half);
    std::vector<std::uint8_t> held(half);
    if (!layout.read(bitmaps, machine) || !layout.read(bitmaps + half, held))
        return damaged("the kdump's bitmaps are cut short");
    std::uint64_t pages = 0;
    for (const std::uint8_t byte : held) pages += static_cast<unsigned>(std::popcount(byte));
    // The header says how pages were to be packed, and each page's descriptor how it was.
    const std::uint64_t descriptors = (1 + sub_blocks + bitmap_blocks) * block;
    std::string_view unread = unread_compression(field(0));
    constexpr std::uint64_t kLookedAt = 1024;
    for (std::uint64_t page = 0; unread.empty() && page < std::min(pages, kLookedAt); ++page)
        if (const auto descriptor = descriptor_at(layout, descriptors + page * kDescriptorBytes, big))
            unread = unread_compression(descriptor->flags);
    if (!unread.empty())
        return fail(name, fmt::format("its pages are compressed with {}, which is not read here", unread),
                    fmt::format("compress them with zlib: makedumpfile -c {} NEW", name));
    std::string description = fmt::format("kdump{}, {}-endian, {} pages of {}", flat ? ", flattened" : "",
                                          big ? "big" : "little", grouped(pages), size_name(block));
    return std::make_unique<Kdump>(std::move(layout), static_cast<std::size_t>(block), big, descriptors,
                                   std::move(machine), std::move(held), std::move(description));
}

}  // namespace tlbscope::image
