#include "support/reference_causes.h"

namespace tlbscope::reference {

namespace {

machine::TlbGeometry lru(machine::TlbGeometry geometry) {
    geometry.replacement = machine::Replacement::kLru;
    return geometry;
}

machine::TlbGeometry one_set(machine::TlbGeometry geometry) {
    geometry.ways = geometry.entries;
    return geometry;
}

}  // namespace

Causes::Causes(const machine::TlbGeometry& geometry)
    : any_place_(one_set(lru(geometry)), 0), same_geometry_(lru(geometry), 0) {}

Causes::Known* Causes::find(const Translation& page) {
    for (Known& known : known_)
        if (known.page == page) return &known;
    return nullptr;
}

std::optional<replay::Cause> Causes::touch(const Translation& page, const Translation& wanted, bool hit) {
    const bool hit_at_any_place = any_place_.look_up(wanted);
    const bool hit_at_same_place = same_geometry_.look_up(wanted);
    Known* known = find(page);
    std::optional<replay::Cause> cause;
    if (!hit) {
        if (known == nullptr)
            cause = replay::Cause::kCompulsory;
        else if (known->removed)
            cause = replay::Cause::kInvalidated;
        else if (!hit_at_any_place)
            cause = replay::Cause::kCapacity;
        else if (!hit_at_same_place)
            cause = replay::Cause::kConflict;
        else
            cause = replay::Cause::kReplacement;
    }
    if (known == nullptr) known = &known_.emplace_back(Known{.page = page, .entry = {}});
    known->entry = wanted;
    known->removed = false;
    return cause;
}

void Causes::load(const Translation& page, const Translation& wanted) {
    if (Known* known = find(page); known != nullptr) known->entry = wanted;
}

void Causes::drop_space(std::uint32_t identifier, const Tlb& array) {
    for (Known& known : known_) {
        if (!known.entry || known.entry->kernel || known.entry->space != identifier) continue;
        if (array.holds(*known.entry)) known.removed = true;
        known.entry.reset();
    }
    any_place_.drop_space(identifier);
    same_geometry_.drop_space(identifier);
}

void Causes::drop_if(const std::function<bool(const Translation&, bool)>& doomed, const Tlb& array) {
    for (Known& known : known_)
        if (known.entry && array.holds(*known.entry) && doomed(*known.entry, array.reserved(*known.entry)))
            known.removed = true;
    any_place_.drop_if(doomed);
    same_geometry_.drop_if(doomed);
}

void Causes::flush_all(const Tlb& array) {
    for (Known& known : known_) {
        if (known.entry && array.holds(*known.entry)) known.removed = true;
        known.entry.reset();
    }
    any_place_.flush_all();
    same_geometry_.flush_all();
}

}  // namespace tlbscope::reference
