#include "pagetable/listing.h"

#include <unordered_set>

namespace tlbscope::pagetable {

namespace {

class Lister {
  public:
    Lister(const Format& format, const Memory& memory, const ListingOptions& options)
        : format_(format), memory_(memory), options_(options) {}

    Listing run(PhysAddr root) {
        visited_.insert(key(root.value(), 0));
        table(0, root.value(), 0);
        return std::move(listing_);
    }

  private:
    static std::uint64_t key(std::uint64_t table, unsigned level) { return table << 3 | level; }

    bool load(unsigned level, std::uint64_t at, std::uint64_t& raw) const {
        std::uint64_t bytes = 0;
        if (!memory_.load(PhysAddr(at), &bytes, format_.levels[level].entry_bytes)) return false;
        raw = load_entry(&bytes, format_.levels[level].entry_bytes, format_.big_endian);
        return true;
    }
    [[nodiscard]] VirtAddr address(std::uint64_t low) const {
        const bool upper = format_.sign_extended && (low >> (format_.address_bits - 1) & 1) != 0;
        return VirtAddr(low | options_.address_base |
                        (upper ? ~std::uint64_t{0} << format_.address_bits : 0));
    }
    void bad(unsigned level, std::uint64_t low, std::uint64_t at, std::uint64_t raw, const char* why) {
        if (listing_.bad.size() >= options_.most) {
            listing_.cut = true;
            return;
        }
        listing_.bad.push_back({address(low), static_cast<std::uint8_t>(level), PhysAddr(at), raw, why});
    }
    [[nodiscard]] bool same_entries(unsigned level, std::uint64_t table, std::size_t first, std::size_t count,
                                    std::uint64_t raw) const {
        for (std::size_t n = 0; n < count; ++n) {
            std::uint64_t other = 0;
            if (!load(level, table + (first + n) * format_.levels[level].entry_bytes, other) || other != raw)
                return false;
        }
        return true;
    }

    void table(unsigned level, std::uint64_t base, std::uint64_t low) {
        ++listing_.tables;
        const Level& shape = format_.levels[level];
        path_[depth_++] = base;
        for (std::size_t index = 0; index < shape.entries();) {
            const std::uint64_t at = base + index * shape.entry_bytes;
            const std::uint64_t entry_low = low | static_cast<std::uint64_t>(index) << shape.shift;
            std::uint64_t raw = 0;
            if (!load(level, at, raw)) {
                bad(level, entry_low, at, 0, "the table is not in the memory");
                break;
            }
            index += entry(level, base, index, at, entry_low, raw);
        }
        --depth_;
    }

    // Lists what one entry leads to; how many entries that is.
    std::size_t entry(unsigned level, std::uint64_t base, std::size_t index, std::uint64_t at,
                      std::uint64_t low, std::uint64_t raw) {
        const Entry meaning = format_.decode(format_, level, raw);
        switch (meaning.kind) {
            case EntryKind::kNone:
                if (raw != 0) ++listing_.not_present;
                return 1;
            case EntryKind::kMalformed:
                bad(level, low, at, raw, meaning.why);
                return 1;
            case EntryKind::kTable:
                return pointer(level, base, index, at, low, raw, meaning);
            case EntryKind::kPage:
                break;
        }
        const PageSize* size = format_.size_of(meaning.size);
        const std::size_t copies = size == nullptr ? 1 : format_.copies(*size);
        if (copies > 1 && (index % copies != 0 || !same_entries(level, base, index, copies, raw))) {
            bad(level, low, at, raw, "the entries of a page that takes several are not all the same");
            return 1;
        }
        page(low, meaning);
        return copies;
    }

    std::size_t pointer(unsigned level, std::uint64_t base, std::size_t index, std::uint64_t at,
                        std::uint64_t low, std::uint64_t raw, const Entry& meaning) {
        const Level& shape = format_.levels[level];
        const Level& next = format_.levels[meaning.next];
        std::size_t cell = 1;
        if (next.span_shift() > shape.shift) {
            cell = std::size_t{1} << (next.span_shift() - shape.shift);
            if (index % cell != 0 || !same_entries(level, base, index, cell, raw)) {
                bad(level, low, at, raw, "the entries of a page that takes several are not all the same");
                return 1;
            }
        }
        const std::uint64_t table_base = meaning.address.value();
        for (std::size_t n = 0; n < depth_; ++n)
            if (path_[n] == table_base) {
                bad(level, low, at, raw, "it points back to a table on the way to it");
                return cell;
            }
        if (!visited_.insert(key(table_base, meaning.next)).second) {
            ++listing_.repeated;
            return cell;
        }
        table(meaning.next, table_base, low);
        return cell;
    }

    void page(std::uint64_t low, const Entry& meaning) {
        ++listing_.pages;
        const char* odd = nullptr;
        if ((meaning.flags & (kRead | kWrite)) == kWrite) odd = "writable but not readable";
        if (options_.contains && !options_.contains(meaning.address, meaning.size.bytes()))
            odd = "frame outside the memory";
        const VirtAddr start = address(low);
        if (!listing_.runs.empty()) {
            Run& last = listing_.runs.back();
            if (last.start + last.bytes == start &&
                last.physical.value() + last.bytes == meaning.address.value() && last.size == meaning.size &&
                last.flags == meaning.flags && last.odd == odd) {
                last.bytes += meaning.size.bytes();
                return;
            }
        }
        if (listing_.runs.size() >= options_.most) {
            listing_.cut = true;
            return;
        }
        listing_.runs.push_back(
            {start, meaning.size.bytes(), meaning.address, meaning.size, meaning.flags, odd});
    }

    const Format& format_;
    const Memory& memory_;
    const ListingOptions& options_;
    Listing listing_;
    std::array<std::uint64_t, kMostSteps> path_{};
    std::size_t depth_ = 0;
    std::unordered_set<std::uint64_t> visited_;
};

}  // namespace

Listing list_all(const Format& format, const Memory& memory, PhysAddr root, const ListingOptions& options) {
    return Lister(format, memory, options).run(root);
}

}  // namespace tlbscope::pagetable
