#include "machine/tlb.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "machine/random.h"
#include "machine/search.h"

namespace tlbscope::machine {

namespace {

constexpr std::array<std::pair<Replacement, std::string_view>, 6> kReplacements{{
    {Replacement::kFifo, "fifo"},
    {Replacement::kFifoDown, "fifo-down"},
    {Replacement::kLru, "lru"},
    {Replacement::kTreePlru, "tree-plru"},
    {Replacement::kNru, "nru"},
    {Replacement::kRandom, "random"},
}};

template <Replacement kPolicy>
class TlbArray final : public Tlb {
  public:
    TlbArray(const TlbGeometry& geometry, std::uint64_t stream)
        : sets_(geometry.sets()),
          ways_(geometry.ways),
          usable_(geometry.usable()),
          keys_(geometry.entries, kNoKey),
          // Eight hints per entry keep pages that are in use out of each other's way.
          hints_(std::clamp<std::size_t>(std::bit_ceil(std::size_t{geometry.entries} * 8), 1024, 1 << 16)),
          hint_shift_(64 - static_cast<unsigned>(std::countr_zero(hints_.size()))),
          random_(seed_of(geometry, stream)) {
        if constexpr (kPolicy == Replacement::kLru || kPolicy == Replacement::kNru)
            used_.resize(geometry.entries);
        if constexpr (kPolicy == Replacement::kTreePlru) trees_.resize(sets_);
        if constexpr (kIsFifo) next_.resize(sets_);
    }

    std::size_t run(std::span<const std::uint64_t> keys, std::uint32_t* misses) override {
        std::size_t missed = 0;
        const std::uint64_t* const table = keys_.data();
        std::uint32_t* const hints = hints_.data();
        for (std::size_t i = 0; i < keys.size(); ++i) {
            const std::uint64_t key = keys[i];
            // Fibonacci hashing: the upper bits of a product with 2^64 / golden ratio.
            std::uint32_t& hint = hints[key * 0x9e3779b97f4a7c15 >> hint_shift_];
            std::uint32_t slot = hint;
            if (table[slot] != key) [[unlikely]] {
                slot = search(key);
                if (slot == kNowhere) {
                    slot = reload(key);
                    misses[missed++] = static_cast<std::uint32_t>(i);
                }
                hint = slot;
            }
            use(slot);
        }
        counts_.found += keys.size() - missed;
        return missed;
    }

    void drop_tag(std::uint16_t tag) override {
        for (std::size_t slot = 0; slot < keys_.size(); ++slot)
            if (keys_[slot] != kNoKey && tag_of(keys_[slot]) == tag) drop(slot);
    }

    void flush_all() override {
        for (std::size_t slot = 0; slot < keys_.size(); ++slot)
            if (keys_[slot] != kNoKey && slot % ways_ < usable_) drop(slot);
        if constexpr (kIsFifo) std::fill(next_.begin(), next_.end(), 0u);
    }

    std::size_t drop_if(const std::function<bool(std::uint64_t, bool)>& doomed) override {
        std::size_t dropped = 0;
        for (std::size_t slot = 0; slot < keys_.size(); ++slot)
            if (keys_[slot] != kNoKey && doomed(keys_[slot], slot % ways_ >= usable_)) {
                drop(slot);
                ++dropped;
            }
        return dropped;
    }

    void load(std::uint64_t key) override {
        if (const std::uint32_t slot = search(key); slot != kNowhere) drop(slot);
        use(reload(key));
    }

    bool pin(std::uint64_t key) override {
        for (std::uint32_t slot = usable_; sets_ == 1 && slot < ways_; ++slot)
            if (keys_[slot] == kNoKey) {
                keys_[slot] = key;
                ++counts_.pinned;
                return true;
            }
        return false;
    }

    [[nodiscard]] bool holds(std::uint64_t key) const override { return search(key) != kNowhere; }
    [[nodiscard]] std::uint64_t last_evicted() const override { return evicted_; }

    [[nodiscard]] const Counts& counts() const override { return counts_; }
    [[nodiscard]] std::span<const std::uint64_t> contents() const override { return keys_; }

  private:
    static constexpr bool kIsFifo = kPolicy == Replacement::kFifo || kPolicy == Replacement::kFifoDown;
    static constexpr std::uint32_t kNowhere = ~std::uint32_t{0};

    [[nodiscard]] std::uint32_t first_slot(std::uint64_t key) const {
        return sets_ == 1 ? 0 : static_cast<std::uint32_t>(page_of(key) % sets_) * ways_;
    }

    [[nodiscard]] std::uint32_t search(std::uint64_t key) const {
        const std::uint32_t first = first_slot(key);
        const std::size_t way = kernels_.find(keys_.data() + first, ways_, key);
        return way == ways_ ? kNowhere : first + static_cast<std::uint32_t>(way);
    }

    // Of a set of `ways_` leaves, a power of two: node 1 is the root, node n has the children 2n and 2n + 1,
    // and bit n of the tree is where its next victim is.
    void use(std::uint32_t slot) {
        if constexpr (kPolicy == Replacement::kLru) {
            used_[slot] = ++now_;
        } else if constexpr (kPolicy == Replacement::kNru) {
            used_[slot] = 1;
        } else if constexpr (kPolicy == Replacement::kTreePlru) {
            std::uint64_t& tree = trees_[slot / ways_];
            for (std::uint32_t node = slot % ways_ + ways_; node > 1; node >>= 1) {
                const std::uint64_t bit = std::uint64_t{1} << (node >> 1);
                tree = (node & 1) != 0 ? tree & ~bit : tree | bit;
            }
        }
    }

    std::uint32_t tree_victim(std::uint32_t set) const {
        std::uint32_t node = 1;
        while (node < ways_) node = node * 2 + static_cast<std::uint32_t>(trees_[set] >> node & 1);
        return node - ways_;
    }

    std::uint32_t nru_victim(std::uint32_t first) {
        for (std::uint32_t way = 0; way < usable_; ++way)
            if (used_[first + way] == 0) return way;
        std::fill_n(used_.begin() + first, usable_, std::uint64_t{0});
        return 0;
    }

    std::uint32_t reload(std::uint64_t key) {
        const std::uint32_t first = first_slot(key);
        std::uint32_t way = 0;
        if constexpr (kIsFifo) {
            std::uint32_t& next = next_[first / ways_];
            way = next;
            if constexpr (kPolicy == Replacement::kFifoDown)
                next = next == 0 ? usable_ - 1 : next - 1;
            else
                next = next + 1 == usable_ ? 0 : next + 1;
        } else if constexpr (kPolicy == Replacement::kLru) {
            // An empty way was never used.
            way = static_cast<std::uint32_t>(kernels_.find_least(used_.data() + first, usable_));
        } else if constexpr (kPolicy == Replacement::kTreePlru || kPolicy == Replacement::kNru) {
            way = static_cast<std::uint32_t>(kernels_.find(keys_.data() + first, usable_, kNoKey));
            if (way == usable_)
                way = kPolicy == Replacement::kNru ? nru_victim(first) : tree_victim(first / ways_);
        } else {
            way = random_.below(usable_);
        }
        std::uint64_t& slot = keys_[first + way];
        evicted_ = slot;
        counts_.evicted += slot != kNoKey ? 1 : 0;
        slot = key;
        ++counts_.refills;
        return first + way;
    }

    void drop(std::size_t slot) {
        keys_[slot] = kNoKey;
        if constexpr (kPolicy == Replacement::kLru || kPolicy == Replacement::kNru) used_[slot] = 0;
        ++counts_.dropped;
    }

    std::uint32_t sets_;
    std::uint32_t ways_;
    std::uint32_t usable_;
    std::vector<std::uint64_t> keys_;
    std::vector<std::uint32_t> hints_;
    unsigned hint_shift_;
    std::vector<std::uint64_t> used_;  // LRU: when each entry was last used; NRU: its bit; 0 for an empty one
    std::uint64_t now_ = 0;
    std::vector<std::uint64_t> trees_;  // tree-PLRU: each set's nodes
    std::uint64_t evicted_ = kNoKey;
    std::vector<std::uint32_t> next_;  // FIFO: each set's index
    Random random_;
    Counts counts_;
    const Kernels& kernels_ = kernels();
};

}  // namespace

std::uint64_t Tlb::resident() const {
    const auto slots = contents();
    return static_cast<std::uint64_t>(
        std::count_if(slots.begin(), slots.end(), [](std::uint64_t key) { return key != kNoKey; }));
}

std::unique_ptr<Tlb> make_tlb(const TlbGeometry& geometry, std::uint64_t stream) {
    switch (geometry.replacement) {
        case Replacement::kFifo:
            return std::make_unique<TlbArray<Replacement::kFifo>>(geometry, stream);
        case Replacement::kFifoDown:
            return std::make_unique<TlbArray<Replacement::kFifoDown>>(geometry, stream);
        case Replacement::kLru:
            return std::make_unique<TlbArray<Replacement::kLru>>(geometry, stream);
        case Replacement::kTreePlru:
            return std::make_unique<TlbArray<Replacement::kTreePlru>>(geometry, stream);
        case Replacement::kNru:
            return std::make_unique<TlbArray<Replacement::kNru>>(geometry, stream);
        case Replacement::kRandom:
            break;
    }
    return std::make_unique<TlbArray<Replacement::kRandom>>(geometry, stream);
}

std::uint64_t seed_of(const TlbGeometry& geometry, std::uint64_t stream) {
    return Random(geometry.seed ^ stream * 0xd1342543de82ef95).next();
}

std::string_view name_of(Replacement replacement) {
    for (const auto& [value, name] : kReplacements)
        if (value == replacement) return name;
    return {};
}

std::optional<Replacement> replacement_named(std::string_view name) {
    for (const auto& [value, known] : kReplacements)
        if (known == name) return value;
    return std::nullopt;
}

std::vector<std::string> replacement_names() {
    std::vector<std::string> names;
    names.reserve(kReplacements.size());
    for (const auto& [value, name] : kReplacements) names.emplace_back(name);
    return names;
}

}  // namespace tlbscope::machine
