// The loops that look at many keys or addresses at once, each in three forms (AVX-512, AVX2, portable) that
// give the same answers. The form is chosen at run time, so one binary is as fast as each processor allows
// and the build needs no -march.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tlbscope::machine {

// What `collapse` needs to turn addresses into TLB keys.
struct KeyRule {
    std::uint64_t kernel_base = ~std::uint64_t{0};  // addresses from here up are the kernel's side
    std::uint64_t user_tag = 0;                     // the tag of user-side keys, already in its place
    unsigned page_shift = 12;
};

// A list of keys, each different from the one before it, and the ordinal of the touch that brought it.
// `keys` and `ordinals` have room for every input plus kCollapseSlack, which may be overwritten.
inline constexpr std::size_t kCollapseSlack = 16;

struct Collapsed {
    std::size_t count = 0;          // keys written
    std::uint64_t kernel_side = 0;  // addresses on the kernel's side
    std::uint64_t last = 0;         // key of the last address; the `last` given when there was none
};

struct Kernels {
    const char* name;
    // Index of the first element equal to `key`, or `count`.
    std::size_t (*find)(const std::uint64_t* keys, std::size_t count, std::uint64_t key);
    // Index of the first smallest element; `count` is not 0.
    std::size_t (*find_least)(const std::uint64_t* values, std::size_t count);
    // Writes the keys of the addresses without repeats of the key before (`last` for the first), with
    // ordinals that count from `first_ordinal`.
    Collapsed (*collapse)(const std::uint64_t* addresses, std::size_t count, const KeyRule& rule,
                          std::uint64_t last, std::uint32_t first_ordinal, std::uint64_t* keys,
                          std::uint32_t* ordinals);
    // Writes the ordinals (from 0) of the addresses whose offset within a page is above `limit`: those which
    // may lie on two pages. `ordinals` has room for `count` plus kCollapseSlack. Returns how many.
    std::size_t (*near_page_end)(const std::uint64_t* addresses, std::size_t count, std::uint64_t page_mask,
                                 std::uint64_t limit, std::uint32_t* ordinals);
};

// The fastest this processor runs; TLBSCOPE_SIMD=portable|avx2|avx512 asks for another one.
[[nodiscard]] const Kernels& kernels();
// All that this processor runs, for tests.
[[nodiscard]] std::span<const Kernels* const> available_kernels();

}  // namespace tlbscope::machine
