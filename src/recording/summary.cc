#include "recording/summary.h"

#include <algorithm>
#include <bit>
#include <sstream>
#include <unordered_map>

namespace tlbscope::recording {

namespace {

// The pages of one kind and side. Neighbours share a word, and most references go to the word of the one
// before.
class PageSet {
  public:
    void add(std::uint64_t page) {
        const std::uint64_t group = page >> 6;
        if (group != last_group_ || last_ == nullptr) {
            last_ = &words_[group];
            last_group_ = group;
        }
        *last_ |= std::uint64_t{1} << (page & 63);
    }
    [[nodiscard]] std::uint64_t size() const {
        std::uint64_t count = 0;
        for (const auto& [group, word] : words_) count += static_cast<std::uint64_t>(std::popcount(word));
        return count;
    }

  private:
    std::unordered_map<std::uint64_t, std::uint64_t> words_;  // pointers to elements stay valid
    std::uint64_t last_group_ = 0;
    std::uint64_t* last_ = nullptr;
};

// Executions of a few instructions of the kernel, by the names they have in its symbols. An execution of a
// block counts for the instructions in it that began.
class Watch {
  public:
    static constexpr std::array<std::string_view, 3> kNames{"finish_tlb_load_44x", "DataTLBError44x",
                                                            "InstructionTLBError44x"};
    Watch(const Dictionary& dictionary, const std::string& kallsyms) : dictionary_(dictionary) {
        std::istringstream lines(kallsyms);
        for (std::string line; std::getline(lines, line);) {
            const auto name = line.find(' ') + 3;  // "ADDRESS TYPE NAME"
            if (name >= line.size()) continue;
            const auto at = std::find(kNames.begin(), kNames.end(), std::string_view(line).substr(name));
            if (at == kNames.end()) continue;
            addresses_[static_cast<std::size_t>(at - kNames.begin())] =
                std::strtoull(line.c_str(), nullptr, 16);
            any_ = true;
        }
        if (!any_) return;
        holds_.resize(dictionary.size());
        for (std::size_t id = 0; id < holds_.size(); ++id) {
            const Block& block = dictionary[static_cast<std::uint32_t>(id)];
            for (const std::uint64_t address : addresses_)
                if (address - block.address.value() < block.bytes) holds_[id] = true;
        }
    }
    [[nodiscard]] bool any() const { return any_; }
    void executed(std::uint32_t id, std::uint64_t instructions) {
        if (!any_ || !holds_[id]) return;
        const Block& block = dictionary_[id];
        for (std::uint64_t i = 0; i < instructions; ++i)
            for (std::size_t k = 0; k < kNames.size(); ++k)
                counts_[k] += dictionary_.instruction_address(block, i).value() == addresses_[k];
    }
    [[nodiscard]] std::optional<Summary::OwnMisses> counts() const {
        if (!any_) return std::nullopt;
        return Summary::OwnMisses{counts_[0], counts_[1], counts_[2]};
    }

  private:
    const Dictionary& dictionary_;
    bool any_ = false;
    std::array<std::uint64_t, kNames.size()> addresses_{};
    std::array<std::uint64_t, kNames.size()> counts_{};
    std::vector<bool> holds_;  // by dictionary entry: one of the instructions is in it
};

class Summariser {
  public:
    Summariser(const Recording& recording, const std::string& kallsyms)
        : recording_(recording), metadata_(recording.metadata()), watch_(recording.dictionary(), kallsyms) {}

    Result<Summary> run() {
        const bool full = metadata_.granularity == Granularity::kFull;
        if (recording_.chunks().empty()) return finish();
        BatchReader reader(recording_, 0);
        for (std::size_t chunk = 0; chunk < recording_.chunks().size(); ++chunk) {
            summary_.executions += recording_.chunks()[chunk].executions;
            if (!full) {
                auto touches = recording_.touches(chunk);
                if (!touches) return std::unexpected(touches.error());
                add(*touches);
                continue;
            }
            reader.restart(chunk);
            for (;;) {
                auto batch = reader.next();
                if (!batch) return std::unexpected(batch.error());
                if (!*batch) break;
                add(**batch);
            }
        }
        return finish();
    }

  private:
    void mix(std::uint64_t value) {
        // One multiply per value: this is a comparison of equals, not a defence.
        summary_.digest = (std::rotl(summary_.digest, 5) ^ value) * 0x9e3779b97f4a7c15U;
    }

    void bound(std::size_t side, std::uint64_t low, std::uint64_t high) {
        summary_.lowest[side] = std::min(summary_.lowest[side], low);
        summary_.highest[side] = std::max(summary_.highest[side], high);
    }

    void add(const Batch& batch) {
        const Dictionary& dictionary = recording_.dictionary();
        const std::uint64_t* address = batch.addresses.data();
        auto odd = batch.odd.begin();
        if (last_.size() <= batch.cpu.value()) last_.resize(batch.cpu.value() + std::size_t{1}, 0);
        std::uint64_t& last = last_[batch.cpu.value()];
        mix(batch.cpu.value());
        for (std::size_t i = 0; i < batch.blocks.size(); ++i) {
            const Block& block = dictionary[batch.blocks[i]];
            std::uint64_t instructions = block.instructions;
            std::span<const Slot> slots = dictionary.shape(block);
            if (odd != batch.odd.end() && odd->ordinal == i) {
                instructions = odd->instructions;
                slots = batch.odd_slots.subspan(odd->first_slot, odd->slot_count);
                ++odd;
            }
            watch_.executed(batch.blocks[i], instructions);
            const auto mode = static_cast<std::size_t>(metadata_.side(block.address.value()));
            mix(block.address.value() + instructions);
            summary_.references[mode * 2 + mode] += instructions;
            if (block.starts_with_repeat && last == block.address.value()) ++summary_.repeats;
            last = block.last_instruction().value();
            const std::uint64_t end = block.address.value() + block.bytes - 1;
            for (std::uint64_t page = block.address.value() >> 12; page <= end >> 12; ++page)
                pages_[mode].add(page);
            bound(mode, block.address.value(), end);
            for (const Slot& slot : slots) {
                const std::uint64_t first = *address++;
                const std::uint64_t behind = first + (std::uint64_t{1} << slot.size_log2) - 1;
                const auto side = static_cast<std::size_t>(metadata_.side(first));
                mix(first ^ (slot.store ? std::uint64_t{1} << 63 : 0));
                ++summary_.references[4 + mode * 2 + side];
                ++(slot.store ? summary_.stores : summary_.loads);
                pages_[2 + side].add(first >> 12);
                if (behind >> 12 != first >> 12) pages_[2 + side].add(behind >> 12);
                bound(side, first, behind);
            }
        }
        for (const Event& event : batch.events) {
            ++summary_.events[static_cast<std::size_t>(event.type) % summary_.events.size()];
            if (event.type == EventType::kInvalidate)
                ++summary_.invalidations[event.a % summary_.invalidations.size()];
            if (event.type == EventType::kBarrier) ++summary_.barriers[event.a % summary_.barriers.size()];
            if (event.type == EventType::kTicket) continue;
            mix(static_cast<std::uint64_t>(event.type) + event.position);
            mix(event.a);
            mix(event.b);
        }
    }

    void add(const PageTouches& touches) {
        for (std::size_t i = 0; i < 8; ++i) summary_.references[i] += touches.references[i];
        for (const PageTouch& touch : touches.touches) {
            const auto side = static_cast<std::size_t>(metadata_.side(touch.page << 12));
            pages_[static_cast<std::size_t>(touch.kind) * 2 + side].add(touch.page);
            bound(side, touch.page << 12, (touch.page << 12) + 4095);
            mix(touch.page << 2 | static_cast<std::uint64_t>(touch.kind) << 1 |
                static_cast<std::uint64_t>(touch.mode));
        }
    }

    Summary finish() {
        for (std::size_t i = 0; i < pages_.size(); ++i) summary_.pages[i] = pages_[i].size();
        if (metadata_.granularity == Granularity::kFull) {
            summary_.own_misses = watch_.counts();
        } else {
            summary_.invalidations = metadata_.invalidations;
            summary_.barriers = metadata_.barriers;
        }
        return summary_;
    }

    const Recording& recording_;
    const Metadata& metadata_;
    Watch watch_;
    Summary summary_;
    std::array<PageSet, 4> pages_;
    std::vector<std::uint64_t> last_;  // by CPU: address of the last instruction
};

}  // namespace

Result<Summary> summarise(const Recording& recording) {
    // Only a 44x has such symbols; other kernels' long lists need no look.
    const bool wanted = recording.metadata().system && recording.metadata().target == "ppc";
    auto symbols = wanted ? recording.kernel_symbols() : std::string();
    if (!symbols) return std::unexpected(symbols.error());
    return Summariser(recording, *symbols).run();
}

}  // namespace tlbscope::recording
