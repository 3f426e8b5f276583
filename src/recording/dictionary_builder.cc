#include <algorithm>

#include "recording/encoder.h"

namespace tlbscope::recording {

namespace {
// Beyond this many shapes of one translation its odd executions are spelt out instead: a gather whose lanes
// come and go would otherwise fill the dictionary.
constexpr std::uint8_t kMostVariants = 8;
}  // namespace

std::uint32_t DictionaryBuilder::add_translation(const Translation& translation) {
    Known known;
    known.address = translation.address;
    known.first_length = static_cast<std::uint32_t>(lengths_.size());
    known.first_code = static_cast<std::uint32_t>(code_.size());
    known.code_bytes = static_cast<std::uint32_t>(translation.code.size());
    known.instructions = static_cast<std::uint16_t>(translation.lengths.size());
    known.starts_with_repeat = translation.starts_with_repeat;
    lengths_.insert(lengths_.end(), translation.lengths.begin(), translation.lengths.end());
    code_.insert(code_.end(), translation.code.begin(), translation.code.end());
    translations_.push_back(known);
    return static_cast<std::uint32_t>(translations_.size() - 1);
}

Translation DictionaryBuilder::translation(std::uint32_t number) const {
    const Known& known = translations_[number];
    return {.address = known.address,
            .lengths = std::span(lengths_).subspan(known.first_length, known.instructions),
            .code = std::span(code_).subspan(known.first_code, known.code_bytes),
            .starts_with_repeat = known.starts_with_repeat};
}

Slot DictionaryBuilder::slot(std::uint32_t translation, std::uint32_t key) const {
    const std::uint8_t access = access_table_[key & ((1U << kKeyInfoBits) - 1)];
    const std::uint32_t last = translations_[translation].instructions - 1U;
    return {.instruction = static_cast<std::uint16_t>(std::min(key >> kKeyInfoBits, last)),
            .size_log2 = static_cast<std::uint8_t>(access & 0xf),
            .store = (access & 0x10) != 0};
}

bool DictionaryBuilder::matches(const Entry& entry, std::span<const std::uint32_t> keys) const {
    return entry.key_count == keys.size() &&
           std::equal(keys.begin(), keys.end(), keys_.begin() + entry.first_key);
}

std::uint32_t DictionaryBuilder::find(std::uint32_t translation, std::span<const std::uint32_t> keys) {
    Known& known = translations_[translation];
    if (known.current != kNone && matches(entries_[known.current], keys)) return known.current;
    for (std::uint32_t id = known.variants; id != kNone; id = entries_[id].next_variant)
        if (matches(entries_[id], keys)) return known.current = id;
    return kNone;
}

std::uint32_t DictionaryBuilder::make(std::uint32_t translation, std::span<const std::uint32_t> keys,
                                      std::span<const std::uint64_t> addresses) {
    Known& known = translations_[translation];
    if (known.variant_count >= kMostVariants || keys.size() > 0xffff) return kNone;
    const auto id = static_cast<std::uint32_t>(entries_.size());
    entries_.push_back({.translation = translation,
                        .first_key = static_cast<std::uint32_t>(keys_.size()),
                        .key_count = static_cast<std::uint32_t>(keys.size()),
                        .next_variant = known.variants});
    keys_.insert(keys_.end(), keys.begin(), keys.end());
    bases_.insert(bases_.end(), addresses.begin(), addresses.end());
    known.variants = known.current = id;
    ++known.variant_count;
    return id;
}

// Layout of the payload before compression: count, first number, then per entry
//   flags (1 = same translation as entry `reference`, 2 = starts with a repeated string instruction),
//   either the reference or {address difference, instructions, lengths, code}, then the shape.
std::vector<std::uint8_t> DictionaryBuilder::take_new_entries() {
    using format::put_varint;
    std::vector<std::uint8_t> out;
    if (written_ == entries_.size()) return out;
    put_varint(out, entries_.size() - written_);
    put_varint(out, written_);
    std::uint64_t address = 0;
    std::uint64_t base = 0;
    for (std::size_t id = written_; id < entries_.size(); ++id) {
        const Entry& entry = entries_[id];
        const Translation known = translation(entry.translation);
        const std::uint32_t earlier =
            entry.next_variant;  // lists grow at the front: an entry made before this one
        out.push_back(
            static_cast<std::uint8_t>((earlier != kNone ? 1 : 0) | (known.starts_with_repeat ? 2 : 0)));
        if (earlier != kNone) {
            put_varint(out, id - earlier);
        } else {
            put_varint(out, format::zigzag(known.address.value() - address));
            address = known.address.value();
            put_varint(out, known.lengths.size());
            out.insert(out.end(), known.lengths.begin(), known.lengths.end());
            out.insert(out.end(), known.code.begin(), known.code.end());
        }
        put_varint(out, entry.key_count);
        for (std::uint32_t k = 0; k < entry.key_count; ++k) {
            const Slot made = slot(entry.translation, keys_[entry.first_key + k]);
            put_varint(out, std::uint64_t{made.instruction} << 5 | (made.store ? 16U : 0U) | made.size_log2);
            put_varint(out, format::zigzag(bases_[entry.first_key + k] - base));
            base = bases_[entry.first_key + k];
        }
    }
    written_ = entries_.size();
    return out;
}

}  // namespace tlbscope::recording
