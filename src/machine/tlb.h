// One TLB array, exact and fast.
//
// Problem: a replay looks up hundreds of millions of pages per second in arrays of 8 to a few thousand
// entries, under any replacement policy, and every count must be what the hardware would give. Idea: a small
// table of hints, indexed by a hash of the key, says in which slot the key was last seen; the slot's own key
// then decides, so a hint may be stale but never wrong. A hit costs two dependent loads, whatever the array's
// size and associativity. Only a stale hint leads to the search of the key's set (machine/search.h), and a
// failed search to a reload. Hits leave FIFO and random arrays untouched; LRU notes the time. Rejected: a
// SIMD search for every lookup (as fast with AVX-512 and 32 entries, slower with AVX2, and slower with every
// larger array); a linked list for LRU (a chain of dependent loads and stores per hit).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tlbscope::machine {

// What an array compares: a virtual page number below, counted in pages of the entry's own size; above it the
// tag of its space (addrspace/asids.h); on top which of the replay's page sizes the entry has
// (machine/routes.h).
inline constexpr unsigned kTagShift = 52;
inline constexpr unsigned kSizeShift = 62;
inline constexpr std::size_t kMostSizes = 4;  // page sizes of entries that one replay tells apart
inline constexpr std::uint64_t kNoKey = ~std::uint64_t{0};  // an empty slot; no page has this tag
[[nodiscard]] constexpr std::uint64_t key_of(std::uint64_t page, std::uint16_t tag, unsigned size = 0) {
    return page | std::uint64_t{tag} << kTagShift | std::uint64_t{size} << kSizeShift;
}
[[nodiscard]] constexpr std::uint16_t tag_of(std::uint64_t key) {
    return static_cast<std::uint16_t>(key >> kTagShift & 0x3ff);
}
[[nodiscard]] constexpr unsigned size_of(std::uint64_t key) {
    return static_cast<unsigned>(key >> kSizeShift);
}
[[nodiscard]] constexpr std::uint64_t page_of(std::uint64_t key) {
    return key & ((std::uint64_t{1} << kTagShift) - 1);
}

enum class Replacement : std::uint8_t {
    kFifo,      // the index counts up after each reload
    kFifoDown,  // the index counts down after each reload, as on MPC8xx
    kLru,
    kTreePlru,  // one bit per inner node of a binary tree over the ways points away from what was used last
    kNru,  // one bit per entry, as on UltraSPARC: the first that was not used since all bits were cleared
    kRandom,
};

struct TlbGeometry {
    std::uint32_t entries = 32;
    std::uint32_t ways = 32;     // divides entries; equal to it: fully associative
    std::uint32_t reserved = 0;  // the last so many entries of a fully associative array are never replaced
    Replacement replacement = Replacement::kFifo;
    std::uint64_t seed = 1;  // of random replacement

    [[nodiscard]] std::uint32_t sets() const { return entries / ways; }
    // Ways of a set that a reload may take.
    [[nodiscard]] std::uint32_t usable() const { return ways - reserved; }
    friend bool operator==(const TlbGeometry&, const TlbGeometry&) = default;
};

// Rules, for every policy:
// - a page's set is its number modulo the number of sets;
// - LRU, tree-PLRU and NRU fill empty ways first, the lowest first; FIFO and random do not look whether a way
//   is empty (MPC801 UM 11.8.2: the index alone decides);
// - a set's FIFO index starts at 0; with N usable ways it goes 0, 1, 2 ... or, counting down, 0, N-1, N-2
// ...;
// - tree-PLRU: a use turns the nodes on the way's path away from it; a reload follows them down;
// - NRU: a use sets the entry's bit; a reload takes the first entry without one, and when all have one clears
//   all of the set's first (UltraSPARC User's Manual p. 69, the one-bit LRU);
// - flush_all spares the reserved entries and clears the indexes to 0 (MPC801 UM 11.8.2).
class Tlb {
  public:
    struct Counts {
        std::uint64_t found = 0;    // lookups that hit
        std::uint64_t refills = 0;  // reloads
        std::uint64_t evicted = 0;  // valid entries that a reload replaced
        std::uint64_t pinned = 0;   // entries that pin() loaded
        std::uint64_t dropped = 0;  // valid entries that drop_tag, drop_if or flush_all removed
    };

    virtual ~Tlb() = default;
    // Looks the keys up in order and reloads each that misses. Writes the positions within `keys` that missed
    // to `misses`, which has room for all of them, and returns how many.
    virtual std::size_t run(std::span<const std::uint64_t> keys, std::uint32_t* misses) = 0;
    // Removes every entry with this tag.
    virtual void drop_tag(std::uint16_t tag) = 0;
    virtual void flush_all() = 0;
    // Removes the entries for which `doomed` holds of their key and whether they are reserved. Returns how
    // many.
    virtual std::size_t drop_if(const std::function<bool(std::uint64_t key, bool reserved)>& doomed) = 0;
    // Reloads without a lookup, as software does that writes an entry; one with the same key goes first.
    virtual void load(std::uint64_t key) = 0;
    // Puts the key into the first reserved entry that is empty; false when there is none.
    virtual bool pin(std::uint64_t key) = 0;
    [[nodiscard]] virtual bool holds(std::uint64_t key) const = 0;

    [[nodiscard]] virtual const Counts& counts() const = 0;
    // Key that the last reload replaced, for a level that must include this one; kNoKey when the slot was
    // empty.
    [[nodiscard]] virtual std::uint64_t last_evicted() const = 0;
    // Slot by slot, set after set; kNoKey where empty.
    [[nodiscard]] virtual std::span<const std::uint64_t> contents() const = 0;
    [[nodiscard]] std::uint64_t resident() const;
};

// `stream` keeps the random choices of different arrays apart.
[[nodiscard]] std::unique_ptr<Tlb> make_tlb(const TlbGeometry& geometry, std::uint64_t stream);
// What an array with random replacement seeds its generator with.
[[nodiscard]] std::uint64_t seed_of(const TlbGeometry& geometry, std::uint64_t stream);

[[nodiscard]] std::string_view name_of(Replacement replacement);
[[nodiscard]] std::optional<Replacement> replacement_named(std::string_view name);
[[nodiscard]] std::vector<std::string> replacement_names();

}  // namespace tlbscope::machine
