// A hash map for what is asked once per miss: one array, linear probing, no removal. Key has ==, and
// `std::uint64_t hash() const` that need not be good in its low bits.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tlbscope::explain {

template <class Key, class Value>
class FlatMap {
  public:
    // The key's value, made when there is none. Valid until the next call.
    Value& operator[](const Key& key) {
        if (size_ * 2 >= slots_.size()) grow();
        Slot& slot = slots_[place(key)];
        if (!slot.used) {
            slot = {.key = key, .value = Value{}, .used = true};
            ++size_;
        }
        return slot.value;
    }
    [[nodiscard]] std::size_t size() const { return size_; }
    // In no order that means anything.
    template <class Visit>
    void for_each(Visit visit) const {
        for (const Slot& slot : slots_)
            if (slot.used) visit(slot.key, slot.value);
    }

  private:
    struct Slot {
        Key key{};
        Value value{};
        bool used = false;
    };

    [[nodiscard]] std::size_t place(const Key& key) const {
        const std::size_t mask = slots_.size() - 1;
        // Fibonacci hashing: the upper bits of a product with 2^64 / golden ratio.
        std::size_t at = key.hash() * 0x9e3779b97f4a7c15 >> (64 - std::countr_zero(slots_.size()));
        while (slots_[at].used && !(slots_[at].key == key)) at = (at + 1) & mask;
        return at;
    }
    void grow() {
        std::vector<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        for (Slot& slot : old)
            if (slot.used) slots_[place(slot.key)] = std::move(slot);
    }

    std::vector<Slot> slots_ = std::vector<Slot>(64);
    std::size_t size_ = 0;
};

}  // namespace tlbscope::explain
