#include "replay/mmu.h"

#include <algorithm>

#include "replay/engine.h"

namespace tlbscope::replay {

namespace {

constexpr std::size_t kRemembered = 1024;

Side side_of(std::uint64_t key) {
    return machine::tag_of(key) == addrspace::kGlobalTag ? Side::kKernel : Side::kUser;
}

// Follows the runs of a segment's modes as ordinals rise.
class Modes {
  public:
    explicit Modes(const std::vector<ModeRun>& runs) : runs_(runs) {}
    Mode at(Kind kind, std::uint32_t ordinal) {
        while (run_ + 1 < runs_.size() &&
               ordinal >=
                   (kind == Kind::kInstruction ? runs_[run_ + 1].first_block : runs_[run_ + 1].first_access))
            ++run_;
        return runs_[run_].mode;
    }

  private:
    const std::vector<ModeRun>& runs_;
    std::size_t run_ = 0;
};

}  // namespace

Mmu::Mmu(const Plan& plan, CpuId cpu, Observer* observer)
    : plan_(&plan),
      observer_(observer),
      cpu_(cpu),
      plain_(plan.simple()),
      same_keys_(plan.same_keys()),
      in_order_(plan.in_order()) {
    const auto& arrays = plan.machine.tlbs;
    for (std::size_t i = 0; i < arrays.size(); ++i)
        tlbs_.push_back(machine::make_tlb(arrays[i].geometry, random_stream(cpu, i)));
    one_by_one_ = plan.one_by_one();
    if (plan.machine.refill.derived) refill_ = std::make_unique<Refill>(plan);
    for (const Kind kind : kKinds)
        first_[static_cast<std::size_t>(kind)] = plan.routes.route(kind, plan.mapping.base())[0]->array;
    totals_.resize(arrays.size());
    used_rules_.resize(plan.mapping.rules().size());
    lanes_.resize(arrays.size());
    if (!same_keys_) remembered_.resize(kRemembered);
}

void Mmu::look_up(const Segment& segment) {
    if (refill_) refill_->enter(segment);
    if (plain_)
        simple(segment);
    else if (!in_order_)
        split(segment);
    else if (one_by_one_)
        one_by_one(segment);
    else
        ordered(segment);
    if (refill_) refill_->leave();
}

void Mmu::simple(const Segment& segment) {
    for (const Kind kind : kKinds) {
        const auto k = static_cast<std::size_t>(kind);
        const TouchList& list =
            kind == Kind::kInstruction ? segment.touches->fetches : segment.touches->accesses;
        std::vector<std::uint32_t>& buffer = missed_[k];
        if (buffer.size() < list.count) buffer.resize(list.count + list.count / 2);
        const std::size_t missed = tlbs_[first_[k]]->run(list.valid(), buffer.data());
        Modes modes(segment.touches->modes);
        for (std::size_t i = 0; i < missed; ++i) {
            const std::uint64_t key = list.keys[buffer[i]];
            ++misses_.at(kind, modes.at(kind, list.ordinals[buffer[i]]), side_of(key));
            pages_missed_ |= machine::page_of(key);
        }
        ArrayTotals& totals = totals_[first_[k]];
        totals.presented += list.count;
        totals.misses[k] += missed;
        totals.walks[k] += missed;
        refill_cycles_[k] = refill_cycles_[k] + plan_->machine.refill.cycles * missed;
        if (observer_ == nullptr) continue;
        const std::span all(buffer.data(), missed);
        tell_list(segment, kind, list, list.valid(), all, all);
    }
}

void Mmu::split(const Segment& segment) {
    for (const Kind kind : kKinds) {
        const auto k = static_cast<std::size_t>(kind);
        const TouchList& list =
            kind == Kind::kInstruction ? segment.touches->fetches : segment.touches->accesses;
        std::span<const std::uint64_t> keys = list.valid();
        if (!same_keys_) {
            keys_[k].resize(list.count);
            for (std::size_t i = 0; i < list.count; ++i)
                (void)stop(kind, list.keys[i], 0, segment.recorded, keys_[k][i]);
            keys = keys_[k];
        }
        missed_[k].resize(list.count);
        missed_[k].resize(tlbs_[first_[k]]->run(keys, missed_[k].data()));
        totals_[first_[k]].presented += list.count;
        totals_[first_[k]].misses[k] += missed_[k].size();
    }
    merge_missed(segment);
    later_levels(segment, 1);
    refill(segment);
    if (observer_ != nullptr) tell(segment);
}

void Mmu::ordered(const Segment& segment) {
    pending_ = *segment.in_order;
    pending_ids_.resize(pending_.size());
    for (std::uint32_t i = 0; i < pending_.size(); ++i) pending_ids_[i] = i;
    walked_.assign(pending_.size(), 0);
    later_levels(segment, 0);
    refill(segment);
    if (observer_ != nullptr) tell(segment);
}

void Mmu::one_by_one(const Segment& segment) {
    const std::uint32_t levels = plan_->routes.levels();
    for (Lane& lane : lanes_) lane.clear();
    walked_.assign(segment.in_order->size(), 0);
    std::uint32_t id = 0;
    for (const Touch& touch : *segment.in_order) {
        std::array<std::optional<machine::Routes::Stop>, machine::kMostLevels> stops;
        std::array<std::uint64_t, machine::kMostLevels> keys{};
        std::uint32_t hit = levels;
        for (std::uint32_t level = 0; level < levels && hit == levels; ++level) {
            stops[level] = stop(touch.kind, touch.key, level, segment.recorded, keys[level]);
            if (!stops[level]) continue;
            const bool holds = tlbs_[stops[level]->array]->holds(keys[level]);
            lanes_[stops[level]->array].add(keys[level], touch, id, !holds);
            count(stops[level]->array, touch.kind, level == 0 ? touch.lookups : 1, !holds);
            if (holds) hit = level;
        }
        if (hit == levels)
            refill(segment, touch, id);
        else if (hit > 0)
            hit_cycles_[static_cast<std::size_t>(touch.kind)] =
                hit_cycles_[static_cast<std::size_t>(touch.kind)] +
                plan_->machine.tlbs[stops[hit]->array].hit;
        // The later levels first: what they lose makes room in the earlier ones.
        for (std::uint32_t level = std::min(hit, levels - 1) + 1; level-- > 0;) {
            if (!stops[level]) continue;
            const std::uint32_t array = stops[level]->array;
            std::uint32_t missed = 0;
            const bool reloaded = tlbs_[array]->run({&keys[level], 1}, &missed) != 0;
            if (!reloaded || !plan_->machine.tlbs[array].inclusive) continue;
            if (const std::uint64_t lost = tlbs_[array]->last_evicted(); lost != machine::kNoKey)
                lose(array, lost);
        }
        ++id;
    }
    if (observer_ != nullptr) tell(segment);
}

// Of a level that includes the ones before it.
void Mmu::lose(std::uint32_t array, std::uint64_t key) {
    const auto& arrays = plan_->machine.tlbs;
    const PageShift size = plan_->routes.sizes()[machine::size_of(key)];
    const VirtAddr start(machine::page_of(key) << size.value());
    for (std::size_t i = 0; i < arrays.size(); ++i)
        if (arrays[i].level < arrays[array].level)
            tlbs_[i]->drop_if([&](std::uint64_t other, bool) {
                return machine::tag_of(other) == machine::tag_of(key) && overlaps(other, start, size);
            });
}

void Mmu::count(std::uint32_t array, Kind kind, std::uint64_t lookups, bool missed) {
    totals_[array].lookups[static_cast<std::size_t>(kind)] += lookups;
    ++totals_[array].presented;
    totals_[array].misses[static_cast<std::size_t>(kind)] += missed ? 1 : 0;
}

void Mmu::Lane::add(std::uint64_t key, const Touch& touch, std::uint32_t id, bool miss) {
    if (miss) missed.push_back(static_cast<std::uint32_t>(keys.size()));
    keys.push_back(key);
    touched.push_back(touch.key);
    ordinals.push_back(touch.ordinal);
    instructions.push_back(touch.instruction);
    kinds.push_back(touch.kind);
    ids.push_back(id);
}

void Mmu::Lane::clear() {
    keys.clear();
    from.clear();
    missed.clear();
    touched.clear();
    ordinals.clear();
    instructions.clear();
    kinds.clear();
    ids.clear();
}

void Mmu::later_levels(const Segment& segment, std::uint32_t level) {
    for (Lane& lane : lanes_) lane.clear();
    for (; level < plan_->routes.levels() && !pending_.empty(); ++level) {
        // A touch that no array of the level takes goes on to the next.
        flags_.assign(pending_.size(), 1);
        for (std::uint32_t i = 0; i < pending_.size(); ++i) {
            const Touch& touch = pending_[i];
            std::uint64_t key = 0;
            const auto at = stop(touch.kind, touch.key, level, segment.recorded, key);
            if (!at) continue;
            flags_[i] = 0;
            Lane& lane = lanes_[at->array];
            lane.from.push_back(i);
            lane.add(key, touch, pending_ids_[i], false);
            totals_[at->array].lookups[static_cast<std::size_t>(touch.kind)] +=
                level == 0 ? touch.lookups : 1;
        }
        for (std::uint32_t array = 0; array < lanes_.size(); ++array) {
            Lane& lane = lanes_[array];
            if (plan_->machine.tlbs[array].level != level + 1 || lane.keys.empty()) continue;
            totals_[array].presented += lane.keys.size();
            lane.missed.resize(lane.keys.size());
            lane.missed.resize(tlbs_[array]->run(lane.keys, lane.missed.data()));
            for (const std::uint32_t at : lane.missed) {
                flags_[lane.from[at]] = 1;
                ++totals_[array].misses[static_cast<std::size_t>(lane.kinds[at])];
            }
            if (level == 0) continue;
            for (std::size_t k : {0, 1}) {
                const auto of_kind = static_cast<std::uint64_t>(
                    std::count(lane.kinds.begin(), lane.kinds.end(), static_cast<Kind>(k)));
                std::uint64_t missed = 0;
                for (const std::uint32_t at : lane.missed)
                    missed += lane.kinds[at] == static_cast<Kind>(k) ? 1 : 0;
                hit_cycles_[k] = hit_cycles_[k] + plan_->machine.tlbs[array].hit * (of_kind - missed);
            }
        }
        std::size_t kept = 0;
        for (std::size_t i = 0; i < pending_.size(); ++i)
            if (flags_[i] != 0) {
                pending_[kept] = pending_[i];
                pending_ids_[kept++] = pending_ids_[i];
            }
        pending_.resize(kept);
        pending_ids_.resize(kept);
    }
}

// Everything in `pending_` missed in all levels.
void Mmu::refill(const Segment& segment) {
    for (std::size_t i = 0; i < pending_.size(); ++i) refill(segment, pending_[i], pending_ids_[i]);
}

void Mmu::refill(const Segment& segment, const Touch& touch, std::uint32_t id) {
    const auto k = static_cast<std::size_t>(touch.kind);
    walked_[id] = 1;
    ++misses_.at(touch.kind, touch.mode, side_of(touch.key));
    pages_missed_ |= machine::page_of(touch.key);
    Cycles cost = plan_->machine.refill.cycles;
    if (refill_) {
        const PageShift page = page_of(touch.key, segment.recorded);
        load_entry(segment, touch, page);
        cost = refill_->cost(touch, page, segment.space);
    }
    refill_cycles_[k] = refill_cycles_[k] + cost;
    // The last level that took it is where the walk is counted.
    std::uint64_t key = 0;
    for (std::uint32_t level = plan_->routes.levels(); level-- > 0;)
        if (const auto at = stop(touch.kind, touch.key, level, segment.recorded, key)) {
            ++totals_[at->array].walks[k];
            break;
        }
    for (PinState& pin : pins_)
        if (pin.life == PinState::Life::kKilled && plan_->machine.tlbs[pin.array].serves(touch.kind) &&
            overlaps(pin.key, address_of(touch.key), plan_->routes.touched()) &&
            machine::tag_of(pin.key) == machine::tag_of(touch.key))
            ++pin.misses_after;
}

// A handler that reads the last level through virtual memory needs an entry of the data TLB for that.
void Mmu::load_entry(const Segment& segment, const Touch& touch, PageShift page) {
    const auto at = refill_->virtual_entry(touch, page);
    if (!at) return;
    const PageShift base = plan_->mapping.base();
    const machine::Routes::Stop stop = *plan_->routes.route(Kind::kData, base)[0];
    const std::uint64_t key = machine::key_of(at->value() >> plan_->routes.sizes()[stop.size].value() &
                                                  ((std::uint64_t{1} << machine::kTagShift) - 1),
                                              machine::tag_of(touch.key), stop.size);
    std::uint32_t missed = 0;
    ArrayTotals& totals = totals_[stop.array];
    ++totals.nested;
    if (tlbs_[stop.array]->run({&key, 1}, &missed) == 0) return;
    ++totals.nested_misses;
    const auto k = static_cast<std::size_t>(touch.kind);
    refill_cycles_[k] = refill_cycles_[k] + refill_->nested_cost(touch, page, segment.space);
}

PageShift Mmu::page_of(std::uint64_t touched_key, SpaceId recorded) {
    return same_keys_ ? plan_->mapping.base() : mapped(touched_key, recorded).page;
}

// What both kinds' lists missed, as touches in program order.
void Mmu::merge_missed(const Segment& segment) {
    std::array<std::vector<Touch>, 2>& of_kind = missed_touches_;
    for (const Kind kind : kKinds) {
        const auto k = static_cast<std::size_t>(kind);
        const TouchList& list =
            kind == Kind::kInstruction ? segment.touches->fetches : segment.touches->accesses;
        of_kind[k].clear();
        Modes modes(segment.touches->modes);
        std::uint32_t block = segment.begin;
        for (const std::uint32_t at : missed_[k]) {
            Touch touch{.key = list.keys[at],
                        .ordinal = list.ordinals[at],
                        .block = list.ordinals[at],
                        .kind = kind,
                        .mode = modes.at(kind, list.ordinals[at])};
            if (segment.batch != nullptr) place(segment, touch, block);
            of_kind[k].push_back(touch);
        }
        missed_ids_[k].resize(of_kind[k].size());
    }
    const auto before = [](const Touch& a, const Touch& b) {
        if (a.block != b.block) return a.block < b.block;
        if (a.instruction != b.instruction) return a.instruction < b.instruction;
        return a.kind < b.kind;
    };
    const std::size_t all = of_kind[0].size() + of_kind[1].size();
    pending_.resize(all);
    pending_ids_.resize(all);
    walked_.assign(all, 0);
    std::array<std::size_t, 2> next{};
    for (std::uint32_t id = 0; id < all; ++id) {
        const bool fetch = next[1] == of_kind[1].size() ||
                           (next[0] < of_kind[0].size() && !before(of_kind[1][next[1]], of_kind[0][next[0]]));
        const std::size_t k = fetch ? 0 : 1;
        pending_[id] = of_kind[k][next[k]];
        pending_ids_[id] = id;
        missed_ids_[k][next[k]++] = id;
    }
}

// Which instruction made a touch. `block` follows accesses as they rise.
void Mmu::place(const Segment& segment, Touch& touch, std::uint32_t& block) const {
    const recording::Dictionary& dictionary = *segment.dictionary;
    const unsigned shift = plan_->routes.touched().value();
    if (touch.kind == Kind::kInstruction) {
        const recording::Block& code = dictionary[segment.batch->blocks[touch.block]];
        const std::uint64_t page = machine::page_of(touch.key);
        const Side side = side_of(touch.key);
        std::uint64_t address = code.address.value();
        std::uint16_t instruction = 0;
        for (const std::uint8_t length : dictionary.lengths(code)) {
            const std::uint64_t last = address + length - (length == 0 ? 0 : 1);
            const auto on_page = [&](std::uint64_t at) {
                return at >> shift == page && (at >= segment.kernel_base) == (side == Side::kKernel);
            };
            if (on_page(address) || (last >> shift != address >> shift && on_page(last >> shift << shift)))
                break;
            address += length;
            ++instruction;
        }
        touch.instruction = instruction;
        return;
    }
    const std::vector<std::uint32_t>& first = segment.touches->first_access;
    // The last block that starts at or before this access is the one that makes it.
    block = static_cast<std::uint32_t>(
        std::upper_bound(first.begin() + block, first.begin() + segment.end, touch.ordinal) - first.begin() -
        1);
    touch.block = block;
    const std::uint32_t offset = touch.ordinal - first[block];
    const auto& odd = segment.batch->odd;
    const auto found = std::lower_bound(odd.begin(), odd.end(), block,
                                        [](const recording::OddExecution& execution, std::uint32_t wanted) {
                                            return execution.ordinal < wanted;
                                        });
    touch.instruction = found != odd.end() && found->ordinal == block
                            ? segment.batch->odd_slots[found->first_slot + offset].instruction
                            : dictionary.shape(dictionary[segment.batch->blocks[block]])[offset].instruction;
}

Lookups Mmu::lookups_of(const Segment& segment) const {
    return {.cpu = cpu_,
            .shift = plan_->routes.touched(),
            .sizes = plan_->routes.sizes(),
            .modes = segment.touches->modes,
            .space = segment.space,
            .recorded = segment.recorded,
            .dictionary = segment.dictionary,
            .batch = segment.batch,
            .first_access = segment.touches->first_access,
            .begin = segment.begin,
            .end = segment.end,
            .executions_before = segment.executions_before,
            .kernel_base = segment.kernel_base};
}

void Mmu::tell_list(const Segment& segment, Kind kind, const TouchList& list,
                    std::span<const std::uint64_t> keys, std::span<const std::uint32_t> missed,
                    std::span<const std::uint32_t> walked) const {
    Lookups lookups = lookups_of(segment);
    lookups.array = first_[static_cast<std::size_t>(kind)];
    lookups.kind = kind;
    lookups.keys = keys;
    lookups.touched = list.valid();
    lookups.missed = missed;
    lookups.walked = walked;
    lookups.ordinals = std::span(list.ordinals).first(list.count);
    observer_->looked_up(lookups);
}

// Of each array what it looked up; a walk belongs to the last array that was asked.
void Mmu::tell(const Segment& segment) {
    const auto asked_later = [&](Kind kind, std::uint64_t touched, std::uint32_t level) {
        std::uint64_t key = 0;
        for (; level < plan_->routes.levels(); ++level)
            if (stop(kind, touched, level, segment.recorded, key)) return true;
        return false;
    };
    if (!in_order_)
        for (const Kind kind : kKinds) {
            const auto k = static_cast<std::size_t>(kind);
            const TouchList& list =
                kind == Kind::kInstruction ? segment.touches->fetches : segment.touches->accesses;
            walked_at_.clear();
            for (std::size_t i = 0; i < missed_[k].size(); ++i)
                if (walked_[missed_ids_[k][i]] != 0 && !asked_later(kind, list.keys[missed_[k][i]], 1))
                    walked_at_.push_back(missed_[k][i]);
            tell_list(segment, kind, list,
                      same_keys_ ? list.valid() : std::span<const std::uint64_t>(keys_[k]), missed_[k],
                      walked_at_);
        }
    for (std::uint32_t array = 0; array < lanes_.size(); ++array) {
        const Lane& lane = lanes_[array];
        if (lane.keys.empty()) continue;
        walked_at_.clear();
        for (const std::uint32_t at : lane.missed)
            if (walked_[lane.ids[at]] != 0 &&
                !asked_later(lane.kinds[at], lane.touched[at], plan_->machine.tlbs[array].level))
                walked_at_.push_back(at);
        Lookups lookups = lookups_of(segment);
        lookups.array = array;
        lookups.kinds = lane.kinds;
        lookups.keys = lane.keys;
        lookups.touched = lane.touched;
        lookups.missed = lane.missed;
        lookups.walked = walked_at_;
        lookups.ordinals = lane.ordinals;
        lookups.instructions = lane.instructions;
        observer_->looked_up(lookups);
    }
}

VirtAddr Mmu::address_of(std::uint64_t touched_key) const {
    return VirtAddr(machine::page_of(touched_key) << plan_->routes.touched().value());
}

std::uint64_t Mmu::rekey(std::uint64_t touched_key, std::uint8_t size) const {
    const unsigned further = plan_->routes.sizes()[size].value() - plan_->routes.touched().value();
    return machine::key_of(machine::page_of(touched_key) >> further, machine::tag_of(touched_key), size);
}

const Mmu::Remembered& Mmu::mapped(std::uint64_t touched_key, SpaceId recorded) {
    Remembered& place = remembered_[touched_key * 0x9e3779b97f4a7c15 >> 54];
    if (place.key == touched_key) return place;
    const VirtAddr address = address_of(touched_key);
    const auto answer = plan_->mapping.at(recorded, address, side_of(touched_key), plan_->region_of, true);
    const auto without = answer.pin == nullptr ? answer
                                               : plan_->mapping.at(recorded, address, side_of(touched_key),
                                                                   plan_->region_of, false);
    for (const addrspace::MappingRule* rule : {answer.rule, without.rule})
        if (rule != nullptr)
            used_rules_[static_cast<std::size_t>(rule - plan_->mapping.rules().data())] = true;
    place = {.key = touched_key, .pin = answer.pin, .pinned = {}, .routes = {}, .page = without.size};
    for (const Kind kind : kKinds) {
        const auto k = static_cast<std::size_t>(kind);
        place.pinned[k] = &plan_->routes.route(kind, answer.size);
        place.routes[k] = &plan_->routes.route(kind, without.size);
    }
    return place;
}

std::optional<machine::Routes::Stop> Mmu::stop(Kind kind, std::uint64_t touched_key, std::uint32_t level,
                                               SpaceId recorded, std::uint64_t& key) {
    const auto k = static_cast<std::size_t>(kind);
    if (same_keys_) {
        key = touched_key;
        return plan_->routes.route(kind, plan_->mapping.base())[level];
    }
    const Remembered& page = mapped(touched_key, recorded);
    const machine::Routes::Route* route = page.routes[k];
    if (page.pin != nullptr) {
        const auto first = (*page.pinned[k])[0];
        if (pinned(*page.pin, first->array, rekey(touched_key, first->size))) route = page.pinned[k];
    }
    const auto at = (*route)[level];
    if (at) key = rekey(touched_key, at->size);
    return at;
}

// Whether the pin holds its page in the array; the first touch puts it there, as software does at boot.
bool Mmu::pinned(const addrspace::MappingRule& rule, std::uint32_t array, std::uint64_t key) {
    for (const PinState& pin : pins_)
        if (pin.array == array && pin.key == key) return pin.life == PinState::Life::kAlive;
    const PageShift size = plan_->routes.sizes()[machine::size_of(key)];
    PinState pin{.rule = &rule,
                 .array = array,
                 .key = key,
                 .start = VirtAddr(machine::page_of(key) << size.value()),
                 .life = PinState::Life::kAlive,
                 .killed_by = {}};
    if (!tlbs_[array]->pin(key)) pin.life = PinState::Life::kRefused;
    pins_.push_back(pin);
    return pins_.back().life == PinState::Life::kAlive;
}

// Pins are put in place at boot: whatever kills one finds it there, touched or not.
void Mmu::place_pins(std::uint64_t touched_key, SpaceId recorded) {
    std::uint64_t key = 0;
    if (!same_keys_)
        for (const Kind kind : kKinds) (void)stop(kind, touched_key, 0, recorded, key);
}

void Mmu::check_pins(const std::string& event, std::uint64_t execution) {
    for (PinState& pin : pins_) {
        if (pin.life != PinState::Life::kAlive || tlbs_[pin.array]->holds(pin.key)) continue;
        pin.life = PinState::Life::kKilled;
        pin.killed_by = event;
        pin.killed_at = execution;
    }
}

bool Mmu::overlaps(std::uint64_t key, VirtAddr start, PageShift size) const {
    const PageShift own = plan_->routes.sizes()[machine::size_of(key)];
    const unsigned larger = std::max(own.value(), size.value());
    const std::uint64_t first = machine::page_of(key) << own.value();
    return first >> larger == start.value() >> larger;
}

std::vector<const machine::Tlb*> Mmu::tlbs() const {
    std::vector<const machine::Tlb*> tlbs;
    for (const auto& tlb : tlbs_) tlbs.push_back(tlb.get());
    return tlbs;
}

void Mmu::switch_space(SpaceSwitch to, std::uint64_t execution) {
    if (observer_ != nullptr) {
        const auto all = tlbs();
        to.tlbs = all;
        observer_->switching(to);
    }
    // Regions of the user's side are the space's own.
    if (!same_keys_) std::fill(remembered_.begin(), remembered_.end(), Remembered{});
    if (!to.to.drop && !to.to.flush) return;
    if (refill_) refill_->flush();
    for (const auto& tlb : tlbs_) {
        if (to.to.flush)
            tlb->flush_all();
        else
            tlb->drop_tag(to.to.tag);
    }
    check_pins("a switch of address space", execution);
}

void Mmu::remove(const std::function<bool(std::uint64_t, bool)>& doomed, std::optional<std::uint32_t> array) {
    if (observer_ != nullptr) {
        const auto all = tlbs();
        observer_->removing({.cpu = cpu_, .tlbs = all, .doomed = doomed, .array = array});
    }
    for (std::uint32_t i = 0; i < tlbs_.size(); ++i)
        if (!array || i == *array) tlbs_[i]->drop_if(doomed);
}

void Mmu::apply(const TlbEvent& event, std::uint64_t touched_key, SpaceId recorded) {
    const machine::InvalidationRules& rules = plan_->machine.invalidation;
    const std::uint16_t tag = machine::tag_of(touched_key);
    if (event.what != TlbEvent::What::kInvalidateAll) place_pins(touched_key, recorded);
    switch (event.what) {
        case TlbEvent::What::kInvalidatePage:
            remove([&](std::uint64_t key, bool reserved) {
                return (rules.page_kills_reserved || !reserved) &&
                       (rules.page_matches_any_asid || machine::tag_of(key) == tag) &&
                       overlaps(key, event.address, plan_->routes.touched());
            });
            break;
        case TlbEvent::What::kInvalidateAll:
            remove([&](std::uint64_t key, bool reserved) {
                return (!rules.all_spares_reserved || !reserved) &&
                       (!rules.all_spares_global || machine::tag_of(key) != addrspace::kGlobalTag);
            });
            // The indexes start anew.
            if (rules.all_clears_index && !rules.all_spares_global)
                for (const auto& tlb : tlbs_) tlb->flush_all();
            break;
        case TlbEvent::What::kLoad:
            load(event, touched_key, recorded);
            break;
    }
    check_pins(event.text(), event.execution);
}

// Software writes an entry for a page as the tables map it, whether or not a pin covers it.
void Mmu::load(const TlbEvent& event, std::uint64_t touched_key, SpaceId recorded) {
    const auto answer =
        plan_->mapping.at(recorded, event.address, side_of(touched_key), plan_->region_of, false);
    const auto at = plan_->routes.route(Kind::kData, answer.size)[0];
    const PageShift size = plan_->routes.sizes()[at->size];
    const std::uint64_t key = rekey(touched_key, at->size);
    if (plan_->machine.invalidation.reload_kills_overlapping)
        remove(
            [&](std::uint64_t other, bool) {
                return machine::size_of(other) != machine::size_of(key) &&
                       machine::tag_of(other) == machine::tag_of(key) && overlaps(other, event.address, size);
            },
            at->array);
    tlbs_[at->array]->load(key);
    ++totals_[at->array].loads;
}

}  // namespace tlbscope::replay
