#include "explain/stepper.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <memory>

#include "addrspace/asids.h"
#include "addrspace/spaces.h"
#include "machine/search.h"
#include "replay/engine.h"
#include "replay/pipeline.h"

namespace tlbscope::explain {

namespace {

// How an array lost a translation.
struct Lost {
    std::uint64_t used = 0;
    bool invalidated = false;
    Touch by;
    std::uint32_t to_space = 0;
};

// One array with what is known about its entries.
class Array {
  public:
    Array(const machine::TlbGeometry& geometry, std::uint64_t stream)
        : geometry_(geometry),
          tlb_(machine::make_tlb(geometry, stream)),
          causes_(geometry, true, false),
          keys_(geometry.entries, machine::kNoKey),
          entries_(geometry.entries) {}

    // `step` is filled in when it is wanted.
    bool look_up(std::uint64_t key, const Touch& touch, SpaceId space, Step* step) {
        const std::uint32_t set = static_cast<std::uint32_t>(machine::page_of(key) % geometry_.sets());
        if (step != nullptr) {
            step->set = set;
            step->before = held(set);
        }
        std::uint32_t slot = last_slot_;
        bool missed = false;
        if (key != last_key_) {
            std::uint32_t index = 0;
            missed = tlb_->run(std::span(&key, 1), &index) == 1;
            causes_.judge(std::span(&key, 1), std::span(&index, missed ? 1 : 0), space, judged_);
            const std::uint32_t first = set * geometry_.ways;
            const auto contents = tlb_->contents();
            slot = first + static_cast<std::uint32_t>(
                               machine::kernels().find(contents.data() + first, geometry_.ways, key));
            if (missed) load(slot, key, touch, step);
            last_key_ = key;
            last_slot_ = slot;
        }
        entries_[slot].used = touch.number;
        if (step != nullptr) {
            step->way = slot % geometry_.ways;
            step->after = held(set);
            if (missed) step->cause = judged_.front();
        }
        return missed;
    }

    // `next` is the number of the touch to come.
    void drop(const addrspace::Asids::Switch& to, SpaceId owner, std::uint32_t to_space, std::uint64_t next) {
        if (to.flush)
            causes_.flush_all(owner, tlb_->contents());
        else
            causes_.drop_tag(to.tag, owner, tlb_->contents());
        if (to.flush)
            tlb_->flush_all();
        else
            tlb_->drop_tag(to.tag);
        const auto contents = tlb_->contents();
        for (std::size_t slot = 0; slot < keys_.size(); ++slot) {
            if (keys_[slot] == contents[slot]) continue;
            Lost& lost = lost_[entries_[slot].translation];
            lost = {.used = entries_[slot].used, .invalidated = true, .by = {}, .to_space = to_space};
            lost.by.number = next;
            keys_[slot] = machine::kNoKey;
        }
        last_key_ = machine::kNoKey;
    }

    // How the touch's translation was lost; asked right after its miss.
    [[nodiscard]] const std::optional<Lost>& loss() const { return loss_; }

  private:
    void load(std::uint32_t slot, std::uint64_t key, const Touch& touch, const Step* step) {
        const Translation translation{.page = touch.page, .space = touch.space};
        loss_.reset();
        if (step != nullptr)
            if (const Lost& lost = lost_[translation]; lost.by.number != 0) loss_ = lost;
        if (keys_[slot] != machine::kNoKey)
            lost_[entries_[slot].translation] = {
                .used = entries_[slot].used, .invalidated = false, .by = touch, .to_space = 0};
        keys_[slot] = key;
        entries_[slot] = {.translation = translation, .loaded = touch.number, .used = touch.number};
    }

    [[nodiscard]] std::vector<std::optional<Held>> held(std::uint32_t set) const {
        std::vector<std::optional<Held>> ways(geometry_.ways);
        for (std::uint32_t way = 0; way < geometry_.ways; ++way) {
            const std::uint32_t slot = set * geometry_.ways + way;
            if (keys_[slot] != machine::kNoKey) ways[way] = entries_[slot];
        }
        return ways;
    }

    machine::TlbGeometry geometry_;
    std::unique_ptr<machine::Tlb> tlb_;
    ArrayCauses causes_;
    std::vector<Cause> judged_;
    std::vector<std::uint64_t> keys_;  // what the array held after the last touch
    std::vector<Held> entries_;        // by slot, where there is a key
    std::uint64_t last_key_ = machine::kNoKey;
    std::uint32_t last_slot_ = 0;
    FlatMap<Translation, Lost> lost_;
    std::optional<Lost> loss_;
};

class Walker {
  public:
    Walker(const recording::Recording& recording, const machine::Machine& machine, const Naming& naming,
           const StepOptions& options)
        : dictionary_(recording.dictionary()),
          kernel_base_(recording.metadata().kernel_base),
          machine_(machine),
          naming_(naming),
          options_(options) {
        for (const recording::Space& space : recording.metadata().spaces) spaces_.add(space.id, space.pid);
    }

    // False when no more is wanted.
    Result<bool> walk(const recording::Batch& batch) {
        Cpu& cpu = this->cpu(batch.cpu);
        std::size_t access = 0;
        auto odd = batch.odd.begin();
        auto event = batch.events.begin();
        for (std::size_t ordinal = 0; ordinal <= batch.blocks.size(); ++ordinal) {
            for (; event != batch.events.end() && event->position <= ordinal; ++event)
                if (event->type == recording::EventType::kSwitchSpace)
                    switch_space(cpu, SpaceId(static_cast<std::uint32_t>(event->a)));
            if (ordinal == batch.blocks.size()) break;
            const recording::Block& block = dictionary_[batch.blocks[ordinal]];
            std::size_t begun = block.instructions;
            std::span<const recording::Slot> slots = dictionary_.shape(block);
            if (odd != batch.odd.end() && odd->ordinal == ordinal) {
                begun = odd->instructions;
                slots = batch.odd_slots.subspan(odd->first_slot, odd->slot_count);
                ++odd;
            }
            if (access + slots.size() > batch.addresses.size())
                return fail("", "a batch holds fewer addresses than its blocks make accesses",
                            "the recording is damaged or was written by another version");
            execute(cpu, block, begun, slots, batch.addresses.subspan(access, slots.size()));
            access += slots.size();
            if (done_) return false;
        }
        return true;
    }

    Steps take() {
        steps_.touches = number_;
        return std::move(steps_);
    }

  private:
    struct Cpu {
        CpuId id;
        std::array<std::unique_ptr<Array>, 2> arrays;  // by kind
        std::optional<addrspace::Asids> asids;
        std::map<std::uint16_t, SpaceId> owners;  // of tags
        SpaceId space, recorded;
        std::uint16_t tag = 0;
    };

    Cpu& cpu(CpuId id) {
        Cpu& cpu = cpus_[id.value()];
        if (cpu.asids) return cpu;
        cpu.id = id;
        cpu.asids.emplace(std::min(machine_.asids.count, addrspace::kMostAsids));
        for (const Kind kind : replay::kKinds)
            cpu.arrays[static_cast<std::size_t>(kind)] = std::make_unique<Array>(
                machine_.tlb(kind).geometry, replay::random_stream(id, static_cast<std::size_t>(kind)));
        switch_space(cpu, SpaceId(0));
        return cpu;
    }

    void switch_space(Cpu& cpu, SpaceId recorded) {
        cpu.recorded = recorded;
        cpu.space = spaces_.same_as(recorded);
        const addrspace::Asids::Switch to = cpu.asids->switch_to(cpu.space);
        cpu.tag = to.tag;
        const auto owner = cpu.owners.find(to.tag);
        if (to.flush || to.drop)
            for (const auto& array : cpu.arrays)
                array->drop(to, owner == cpu.owners.end() ? cpu.space : owner->second, cpu.space.value(),
                            number_ + 1);
        cpu.owners[to.tag] = cpu.space;
    }

    void execute(Cpu& cpu, const recording::Block& block, std::size_t begun,
                 std::span<const recording::Slot> slots, std::span<const std::uint64_t> addresses) {
        Touch touch{.cpu = cpu.id,
                    .mode = block.address.value() >= kernel_base_ ? Mode::kKernel : Mode::kUser,
                    .recorded = cpu.recorded,
                    .execution = ++executions_};
        const auto lengths = dictionary_.lengths(block);
        std::uint64_t at = block.address.value();
        std::size_t slot = 0;
        for (std::size_t i = 0; i < begun || slot < slots.size(); ++i) {
            touch.instruction = at;
            if (i < begun) {
                touch.kind = Kind::kInstruction;
                touch.store = false;
                reference(cpu, touch, at, lengths[i]);
            }
            for (; slot < slots.size() && slots[slot].instruction <= i; ++slot) {
                touch.kind = Kind::kData;
                touch.store = slots[slot].store;
                reference(cpu, touch, addresses[slot],
                          std::uint64_t{1} << std::min<std::uint8_t>(slots[slot].size_log2, 63));
            }
            if (i < lengths.size()) at += lengths[i];
        }
    }

    void reference(Cpu& cpu, Touch& touch, std::uint64_t address, std::uint64_t bytes) {
        const PageShift shift = machine_.pages.base;
        touch.address = address;
        touch.bytes = bytes;
        const std::uint64_t further =
            ((address & (shift.bytes() - 1)) + bytes - (bytes == 0 ? 0 : 1)) >> shift.value();
        for (std::uint64_t i = 0; i <= further && !done_; ++i) {
            // Addresses wrap at the top, as the processor's do.
            const std::uint64_t start = ((address >> shift.value()) + i) << shift.value();
            const bool kernel = (i == 0 ? address : start) >= kernel_base_;
            touch.number = ++number_;
            touch.page = start >> shift.value();
            touch.side = kernel ? Side::kKernel : Side::kUser;
            touch.space = kernel ? kKernelSpace : cpu.space.value();
            const std::uint64_t key = machine::key_of(touch.page, kernel ? addrspace::kGlobalTag : cpu.tag);
            Array& array = *cpu.arrays[static_cast<std::size_t>(touch.kind)];
            if (!wanted(touch)) {
                array.look_up(key, touch, cpu.space, nullptr);
                continue;
            }
            Step step{.touch = touch};
            const bool missed = array.look_up(key, touch, cpu.space, &step);
            if (missed || !options_.misses_only) keep(std::move(step), missed ? array.loss() : std::nullopt);
        }
    }

    [[nodiscard]] bool wanted(const Touch& touch) const {
        switch (options_.target.what) {
            case Target::What::kTouch:
                return touch.number == options_.target.value;
            case Target::What::kAddress:
                return options_.target.value - touch.address < std::max<std::uint64_t>(touch.bytes, 1) &&
                       options_.target.value >> machine_.pages.base.value() == touch.page;
            case Target::What::kPage:
                break;
        }
        return options_.target.value >> machine_.pages.base.value() == touch.page;
    }

    void keep(Step step, const std::optional<Lost>& lost) {
        if (options_.limit != 0 && steps_.steps.size() == options_.limit) {
            steps_.more = done_ = true;
            return;
        }
        step.function = function_of(step.touch);
        if (lost)
            step.loss = {.used = lost->used,
                         .invalidated = lost->invalidated,
                         .by = lost->by,
                         .function = lost->invalidated ? Function{} : function_of(lost->by),
                         .to_space = lost->to_space};
        steps_.steps.push_back(std::move(step));
        done_ = options_.target.what == Target::What::kTouch;
    }

    [[nodiscard]] Function function_of(const Touch& touch) const {
        const Name name = naming_.function_at(touch.recorded, VirtAddr(touch.instruction));
        return {.name = std::string(name.function), .object = object_of(name)};
    }

    const recording::Dictionary& dictionary_;
    std::uint64_t kernel_base_;
    const machine::Machine& machine_;
    const Naming& naming_;
    const StepOptions& options_;
    addrspace::Spaces spaces_;
    std::map<std::uint32_t, Cpu> cpus_;
    std::uint64_t number_ = 0;
    std::uint64_t executions_ = 0;
    bool done_ = false;
    Steps steps_;
};

}  // namespace

Result<Target> parse_target(const std::string& text) {
    Target target;
    std::string digits = text;
    int base = 10;
    if (digits.starts_with("page:")) {
        target.what = Target::What::kPage;
        digits.erase(0, 5);
    } else if (digits.starts_with("0x")) {
        target.what = Target::What::kAddress;
    }
    if (target.what != Target::What::kTouch) {
        if (digits.starts_with("0x")) digits.erase(0, 2);
        base = 16;
    }
    const char* const end = digits.data() + digits.size();
    const auto [stop, problem] = std::from_chars(digits.data(), end, target.value, base);
    if (problem != std::errc{} || stop != end || (target.what == Target::What::kTouch && target.value == 0))
        return std::unexpected(Error{
            .where = "",
            .what = fmt::format("--at {}: neither a touch, nor an address, nor a page", text),
            .hint = "for example --at 12 (a touch, from 1), --at 0x401000 (an address), --at page:0x401000",
            .error_class = ErrorClass::kUsage});
    return target;
}

Result<Steps> step_through(const recording::Recording& recording, const machine::Machine& machine,
                           const Naming& naming, const StepOptions& options) {
    if (recording.metadata().granularity == recording::Granularity::kPage)
        return fail(recording.path().string(),
                    "it was recorded at granularity page: single touches are not in it",
                    "record with --granularity full");
    std::uint64_t all = 0;
    for (const recording::ChunkInfo& chunk : recording.chunks()) all += chunk.instructions + chunk.accesses;
    std::uint64_t done = 0;
    Walker walker(recording, machine, naming, options);
    bool enough = false;
    const auto walked = replay::for_each_batch(
        recording, std::min(options.threads - 1, 1u),
        [&](const recording::Batch& batch) -> Result<void> {
            const auto more = walker.walk(batch);
            if (!more) return std::unexpected(more.error());
            if (*more) return {};
            enough = true;
            return fail("", "no more is wanted", "");
        },
        [&](std::size_t chunk) {
            done += recording.chunks()[chunk].instructions + recording.chunks()[chunk].accesses;
            if (options.progress) options.progress(done, all);
        });
    if (!walked && !enough) {
        Error error = walked.error();
        if (error.where.empty()) error.where = recording.path().string();
        return std::unexpected(error);
    }
    return walker.take();
}

}  // namespace tlbscope::explain
