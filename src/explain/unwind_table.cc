#include "explain/unwind_table.h"

#include <cstring>
#include <map>
#include <optional>
#include <string_view>

namespace tlbscope::explain {

namespace {

// Little-endian reads that never leave the section.
class Cursor {
  public:
    Cursor(std::span<const std::uint8_t> bytes, std::size_t at) : bytes_(bytes), at_(at) {}
    std::uint64_t fixed(std::size_t size) {
        if (at_ > bytes_.size() || size > bytes_.size() - at_) {
            failed_ = true;
            return 0;
        }
        std::uint64_t value = 0;
        std::memcpy(&value, &bytes_[at_], size);
        at_ += size;
        return value;
    }
    // LEB128, signed or not: the bits beyond 64 do not matter here.
    std::uint64_t leb() {
        std::uint64_t value = 0;
        for (unsigned shift = 0; !failed_; shift += 7) {
            const std::uint64_t byte = fixed(1);
            if (shift < 64) value |= (byte & 0x7f) << shift;
            if ((byte & 0x80) == 0) break;
        }
        return value;
    }
    std::string_view text() {
        const std::size_t start = at_;
        while (fixed(1) != 0 && !failed_) {
        }
        return failed_ ? std::string_view{}
                       : std::string_view(reinterpret_cast<const char*>(&bytes_[start]), at_ - 1 - start);
    }
    [[nodiscard]] std::size_t at() const { return at_; }
    void skip(std::size_t bytes) { at_ += bytes; }
    [[nodiscard]] bool failed() const { return failed_; }

  private:
    std::span<const std::uint8_t> bytes_;
    std::size_t at_;
    bool failed_ = false;
};

constexpr std::uint8_t kRelative = 0x10;  // DW_EH_PE_pcrel
constexpr std::uint8_t kFormat = 0x0f;
constexpr std::uint8_t kOmitted = 0xff;

// Bytes of a pointer in this encoding, and whether it is signed; nothing when it has no fixed size.
std::optional<std::size_t> size_of(std::uint8_t encoding, bool wide) {
    switch (encoding & kFormat) {
        case 0x00:
            return wide ? 8 : 4;
        case 0x02:
        case 0x0a:
            return 2;
        case 0x03:
        case 0x0b:
            return 4;
        case 0x04:
        case 0x0c:
            return 8;
        default:
            return std::nullopt;
    }
}

std::uint64_t sign_extended(std::uint64_t value, std::size_t bytes) {
    const auto unused = static_cast<unsigned>(64 - 8 * bytes);
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(value << unused) >> unused);
}

// How a common information entry says that its functions' addresses are encoded: 'R' of the augmentation.
std::optional<std::uint8_t> encoding_of(std::span<const std::uint8_t> section, std::size_t at, bool wide) {
    Cursor in(section, at);
    in.fixed(4);
    in.fixed(4);
    const std::uint64_t version = in.fixed(1);
    const std::string_view augmentation = in.text();
    if (in.failed() || (version != 1 && version != 3)) return std::nullopt;
    if (augmentation.empty()) return std::uint8_t{0};
    if (augmentation[0] != 'z') return std::nullopt;
    in.leb();  // code alignment
    in.leb();  // data alignment
    version == 1 ? in.fixed(1) : in.leb();
    in.leb();  // bytes of what follows
    for (const char c : augmentation.substr(1)) {
        if (c == 'R') {
            const auto encoding = static_cast<std::uint8_t>(in.fixed(1));
            return in.failed() ? std::nullopt : std::optional(encoding);
        }
        if (c == 'L') {
            in.fixed(1);
        } else if (c == 'P') {
            const auto encoding = static_cast<std::uint8_t>(in.fixed(1));
            const auto size = size_of(encoding, wide);
            if (!size) return std::nullopt;
            in.skip(*size);
        } else if (c != 'S' && c != 'B') {
            return std::nullopt;
        }
    }
    return std::uint8_t{0};
}

}  // namespace

std::vector<UnwoundFunction> unwound_functions(std::span<const std::uint8_t> section, std::uint64_t address,
                                               bool wide) {
    std::vector<UnwoundFunction> functions;
    std::map<std::size_t, std::optional<std::uint8_t>> encodings;  // by place of the common entry
    for (std::size_t at = 0; at + 8 <= section.size();) {
        Cursor in(section, at);
        const std::uint64_t length = in.fixed(4);
        // A zero ends the table; 0xffffffff starts a 64-bit length, which no toolchain writes here.
        if (length == 0 || length == 0xffffffff || length > section.size() - at - 4) break;
        const std::size_t next = at + 4 + length;
        const std::size_t back = in.at();
        const std::uint64_t common = in.fixed(4);
        if (common != 0 && common <= back) {
            const std::size_t place = back - common;
            const auto [known, is_new] = encodings.try_emplace(place);
            if (is_new) known->second = encoding_of(section, place, wide);
            const std::uint8_t encoding = known->second.value_or(kOmitted);
            const auto size = size_of(encoding, wide);
            if (encoding != kOmitted && size && (encoding & 0xe0) == 0) {
                const std::uint64_t place_of_start = address + in.at();
                std::uint64_t start = in.fixed(*size);
                if ((encoding & 0x08) != 0 || *size < 8) start = sign_extended(start, *size);
                if ((encoding & kRelative) != 0) start += place_of_start;
                const std::uint64_t bytes = in.fixed(*size);
                if (!wide) start &= 0xffffffff;
                if (!in.failed() && bytes != 0 && start != 0) functions.push_back({start, bytes});
            }
        }
        at = next;
    }
    return functions;
}

}  // namespace tlbscope::explain
