// Numbers as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace tlbscope {

// 1234567 -> "1,234,567".
[[nodiscard]] std::string grouped(std::uint64_t n);
// Bytes with a binary unit and three significant digits: 1536 -> "1.5 KiB".
[[nodiscard]] std::string human_bytes(std::uint64_t bytes);
// A page size or table size that is a power of two times a unit: 4096 -> "4K", 8388608 -> "8M".
[[nodiscard]] std::string size_name(std::uint64_t bytes);
// "4K", "8M", "4096" (case-insensitive, optional B or iB) -> bytes; 0 when the text is not a size.
[[nodiscard]] std::uint64_t parse_size(const std::string& text);

}  // namespace tlbscope
