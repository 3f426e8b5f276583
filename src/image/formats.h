// The readers behind open_image(), one for each format.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "image/file.h"
#include "image/image.h"

namespace tlbscope::image {

[[nodiscard]] bool is_elf(std::span<const std::uint8_t> first);
[[nodiscard]] Result<std::unique_ptr<Image>> open_elf_core(File file);

[[nodiscard]] bool is_kdump(std::span<const std::uint8_t> first);
[[nodiscard]] Result<std::unique_ptr<Image>> open_kdump(File file);

// Keeps pieces of a file or of unpacked pages at hand: a walk reads the same few tables again and again.
class PieceCache {
  public:
    static constexpr std::size_t kPieces = 256;
    explicit PieceCache(std::size_t piece_bytes) : piece_bytes_(piece_bytes), bytes_(kPieces * piece_bytes) {}
    [[nodiscard]] std::size_t piece_bytes() const { return piece_bytes_; }
    // The piece with this number, through `fill(std::span<std::uint8_t>) -> bool` when it is not there; empty
    // when that fails.
    template <class Fill>
    std::span<const std::uint8_t> get(std::uint64_t number, Fill&& fill) {
        const std::size_t slot = static_cast<std::size_t>(number % kPieces);
        const std::span<std::uint8_t> piece = std::span(bytes_).subspan(slot * piece_bytes_, piece_bytes_);
        if (numbers_[slot] != number + 1) {
            numbers_[slot] = 0;
            if (!fill(piece)) return {};
            numbers_[slot] = number + 1;
        }
        return piece;
    }

  private:
    std::size_t piece_bytes_;
    std::vector<std::uint8_t> bytes_;
    std::array<std::uint64_t, kPieces> numbers_{};  // number + 1 of the piece in a slot; 0: none
};

}  // namespace tlbscope::image
