#include "machine/search.h"

#include <cstdlib>
#include <string_view>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tlbscope::machine {

namespace portable {

std::size_t find(const std::uint64_t* keys, std::size_t count, std::uint64_t key) {
    for (std::size_t i = 0; i < count; ++i)
        if (keys[i] == key) return i;
    return count;
}

std::size_t find_least(const std::uint64_t* values, std::size_t count) {
    std::size_t least = 0;
    for (std::size_t i = 1; i < count; ++i) least = values[i] < values[least] ? i : least;
    return least;
}

Collapsed collapse(const std::uint64_t* addresses, std::size_t count, const KeyRule& rule, std::uint64_t last,
                   std::uint32_t first_ordinal, std::uint64_t* keys, std::uint32_t* ordinals) {
    Collapsed result;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint64_t address = addresses[i];
        const bool kernel = address >= rule.kernel_base;
        const std::uint64_t key = address >> rule.page_shift | (kernel ? 0 : rule.user_tag);
        // Written always and kept only when it differs: whether the page changes is close to a coin toss for
        // data.
        keys[result.count] = key;
        ordinals[result.count] = first_ordinal + static_cast<std::uint32_t>(i);
        result.count += key != last ? 1 : 0;
        result.kernel_side += kernel ? 1 : 0;
        last = key;
    }
    result.last = last;
    return result;
}

std::size_t near_page_end(const std::uint64_t* addresses, std::size_t count, std::uint64_t page_mask,
                          std::uint64_t limit, std::uint32_t* ordinals) {
    std::size_t found = 0;
    for (std::size_t i = 0; i < count; ++i) {
        ordinals[found] = static_cast<std::uint32_t>(i);
        found += (addresses[i] & page_mask) > limit ? 1 : 0;
    }
    return found;
}

constexpr Kernels kKernels{"portable", find, find_least, collapse, near_page_end};

}  // namespace portable

#if defined(__x86_64__)

namespace avx2 {

__attribute__((target("avx2"))) std::size_t find(const std::uint64_t* keys, std::size_t count,
                                                 std::uint64_t key) {
    const __m256i wanted = _mm256_set1_epi64x(static_cast<long long>(key));
    std::size_t i = 0;
    for (; i + 16 <= count; i += 16) {
        const auto* at = reinterpret_cast<const __m256i*>(keys + i);
        const __m256i a = _mm256_cmpeq_epi64(_mm256_loadu_si256(at), wanted);
        const __m256i b = _mm256_cmpeq_epi64(_mm256_loadu_si256(at + 1), wanted);
        const __m256i c = _mm256_cmpeq_epi64(_mm256_loadu_si256(at + 2), wanted);
        const __m256i d = _mm256_cmpeq_epi64(_mm256_loadu_si256(at + 3), wanted);
        const __m256i any = _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d));
        if (_mm256_testz_si256(any, any) != 0) continue;
        const auto bits = static_cast<unsigned>(_mm256_movemask_pd(_mm256_castsi256_pd(a)) |
                                                _mm256_movemask_pd(_mm256_castsi256_pd(b)) << 4 |
                                                _mm256_movemask_pd(_mm256_castsi256_pd(c)) << 8 |
                                                _mm256_movemask_pd(_mm256_castsi256_pd(d)) << 12);
        return i + static_cast<std::size_t>(__builtin_ctz(bits));
    }
    for (; i + 4 <= count; i += 4) {
        const __m256i equal =
            _mm256_cmpeq_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(keys + i)), wanted);
        if (const int bits = _mm256_movemask_pd(_mm256_castsi256_pd(equal)); bits != 0)
            return i + static_cast<std::size_t>(__builtin_ctz(static_cast<unsigned>(bits)));
    }
    for (; i < count; ++i)
        if (keys[i] == key) return i;
    return count;
}

__attribute__((target("avx2"))) std::size_t near_page_end(const std::uint64_t* addresses, std::size_t count,
                                                          std::uint64_t page_mask, std::uint64_t limit,
                                                          std::uint32_t* ordinals) {
    const __m256i mask = _mm256_set1_epi64x(static_cast<long long>(page_mask));
    const __m256i above = _mm256_set1_epi64x(static_cast<long long>(limit));
    std::size_t found = 0;
    std::size_t i = 0;
    for (; i + 4 <= count; i += 4) {
        const __m256i at = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(addresses + i));
        // Offsets are small, so a signed comparison is right.
        auto bits = static_cast<unsigned>(
            _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(_mm256_and_si256(at, mask), above))));
        for (; bits != 0; bits &= bits - 1)
            ordinals[found++] =
                static_cast<std::uint32_t>(i) + static_cast<std::uint32_t>(__builtin_ctz(bits));
    }
    for (; i < count; ++i)
        if ((addresses[i] & page_mask) > limit) ordinals[found++] = static_cast<std::uint32_t>(i);
    return found;
}

constexpr Kernels kKernels{"avx2", find, portable::find_least, portable::collapse, near_page_end};

}  // namespace avx2

#define TLBSCOPE_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,bmi,bmi2,popcnt")))

namespace avx512 {

// A mask as a number. Written out because GCC 12, short of registers, keeps the result of its own conversion
// in memory: it stores the mask's one byte there and loads four.
__attribute__((always_inline)) TLBSCOPE_AVX512 inline unsigned bits_of(__mmask8 mask) {
    unsigned bits = 0;
    __asm__("kmovb %1, %0" : "=r"(bits) : "k"(mask));
    return bits;
}

TLBSCOPE_AVX512 std::size_t find(const std::uint64_t* keys, std::size_t count, std::uint64_t key) {
    const __m512i wanted = _mm512_set1_epi64(static_cast<long long>(key));
    std::size_t i = 0;
    for (; i + 32 <= count; i += 32) {
        const std::uint64_t* at = keys + i;
        const unsigned a = bits_of(_mm512_cmpeq_epi64_mask(_mm512_loadu_si512(at), wanted));
        const unsigned b = bits_of(_mm512_cmpeq_epi64_mask(_mm512_loadu_si512(at + 8), wanted));
        const unsigned c = bits_of(_mm512_cmpeq_epi64_mask(_mm512_loadu_si512(at + 16), wanted));
        const unsigned d = bits_of(_mm512_cmpeq_epi64_mask(_mm512_loadu_si512(at + 24), wanted));
        if (const unsigned bits = a | b << 8 | c << 16 | d << 24; bits != 0)
            return i + static_cast<std::size_t>(__builtin_ctz(bits));
    }
    for (; i < count; i += 8) {
        const std::size_t left = count - i;
        const auto lanes = static_cast<__mmask8>(left >= 8 ? 0xff : (1u << left) - 1);
        const unsigned bits =
            bits_of(_mm512_mask_cmpeq_epi64_mask(lanes, _mm512_maskz_loadu_epi64(lanes, keys + i), wanted));
        if (bits != 0) return i + static_cast<std::size_t>(__builtin_ctz(bits));
    }
    return count;
}

TLBSCOPE_AVX512 std::size_t find_least(const std::uint64_t* values, std::size_t count) {
    const __m512i most = _mm512_set1_epi64(-1);
    __m512i least = most;
    for (std::size_t i = 0; i < count; i += 8) {
        const std::size_t left = count - i;
        const auto lanes = static_cast<__mmask8>(left >= 8 ? 0xff : (1u << left) - 1);
        least = _mm512_min_epu64(least, _mm512_mask_loadu_epi64(most, lanes, values + i));
    }
    return find(values, count, _mm512_reduce_min_epu64(least));
}

TLBSCOPE_AVX512 Collapsed collapse(const std::uint64_t* addresses, std::size_t count, const KeyRule& rule,
                                   std::uint64_t last, std::uint32_t first_ordinal, std::uint64_t* keys,
                                   std::uint32_t* ordinals) {
    const __m512i base = _mm512_set1_epi64(static_cast<long long>(rule.kernel_base));
    const __m512i tag = _mm512_set1_epi64(static_cast<long long>(rule.user_tag));
    const __m128i shift = _mm_cvtsi32_si128(static_cast<int>(rule.page_shift));
    __m512i before = _mm512_set1_epi64(static_cast<long long>(last));
    __m256i ordinal = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(first_ordinal)),
                                       _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    Collapsed result;
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
        const __m512i address = _mm512_loadu_si512(addresses + i);
        const __mmask8 kernel = _mm512_cmpge_epu64_mask(address, base);
        const __m512i page = _mm512_srl_epi64(address, shift);
        const __m512i key = _mm512_mask_or_epi64(page, static_cast<__mmask8>(~kernel), page, tag);
        const __mmask8 changed = _mm512_cmpneq_epi64_mask(key, _mm512_alignr_epi64(key, before, 7));
        // Compressing within registers and storing whole vectors: compressing stores are microcoded on Zen 4.
        _mm512_storeu_si512(keys + result.count, _mm512_maskz_compress_epi64(changed, key));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(ordinals + result.count),
                            _mm256_maskz_compress_epi32(changed, ordinal));
        result.count += static_cast<std::size_t>(__builtin_popcount(bits_of(changed)));
        result.kernel_side += static_cast<std::uint64_t>(__builtin_popcount(bits_of(kernel)));
        ordinal = _mm256_add_epi32(ordinal, _mm256_set1_epi32(8));
        before = key;
    }
    result.last =
        i == 0 ? last
               : static_cast<std::uint64_t>(_mm_extract_epi64(_mm512_extracti64x2_epi64(before, 3), 1));
    const Collapsed rest = portable::collapse(addresses + i, count - i, rule, result.last,
                                              first_ordinal + static_cast<std::uint32_t>(i),
                                              keys + result.count, ordinals + result.count);
    return {.count = result.count + rest.count,
            .kernel_side = result.kernel_side + rest.kernel_side,
            .last = rest.last};
}

TLBSCOPE_AVX512 std::size_t near_page_end(const std::uint64_t* addresses, std::size_t count,
                                          std::uint64_t page_mask, std::uint64_t limit,
                                          std::uint32_t* ordinals) {
    const __m512i mask = _mm512_set1_epi64(static_cast<long long>(page_mask));
    const __m512i above = _mm512_set1_epi64(static_cast<long long>(limit));
    std::size_t found = 0;
    for (std::size_t i = 0; i < count; i += 8) {
        const std::size_t left = count - i;
        const auto lanes = static_cast<__mmask8>(left >= 8 ? 0xff : (1u << left) - 1);
        const __m512i at = _mm512_maskz_loadu_epi64(lanes, addresses + i);
        auto bits = bits_of(_mm512_mask_cmpgt_epu64_mask(lanes, _mm512_and_epi64(at, mask), above));
        for (; bits != 0; bits &= bits - 1)
            ordinals[found++] =
                static_cast<std::uint32_t>(i) + static_cast<std::uint32_t>(__builtin_ctz(bits));
    }
    return found;
}

constexpr Kernels kKernels{"avx512", find, find_least, collapse, near_page_end};

}  // namespace avx512

#endif

namespace {

std::vector<const Kernels*> detect() {
    std::vector<const Kernels*> found{&portable::kKernels};
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2")) found.push_back(&avx2::kKernels);
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("bmi2"))
        found.push_back(&avx512::kKernels);
#endif
    return found;
}

}  // namespace

std::span<const Kernels* const> available_kernels() {
    static const std::vector<const Kernels*> kFound = detect();
    return kFound;
}

const Kernels& kernels() {
    static const Kernels& chosen = []() -> const Kernels& {
        const auto found = available_kernels();
        if (const char* asked = std::getenv("TLBSCOPE_SIMD"); asked != nullptr)
            for (const Kernels* candidate : found)
                if (std::string_view(candidate->name) == asked) return *candidate;
        return *found.back();
    }();
    return chosen;
}

}  // namespace tlbscope::machine
