// Whose misses these are: each miss of a machine is counted in one cell, by what was asked for.
//
// Problem: a run has millions of misses, names cost searches and strings, and explaining must stay close to
// the plain replay's time. Idea: a cell's key holds only numbers (function number, page, space ...) and only
// the parts that were asked for, so that a miss costs a look-up in one small hash table; names are asked for
// once per block and once per page, and become words when the rows are made (explain/breakdown.h).
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "explain/causes.h"
#include "explain/flat_map.h"
#include "explain/names.h"
#include "explain/question.h"
#include "machine/machine.h"
#include "recording/dictionary.h"
#include "replay/counts.h"
#include "replay/observer.h"

namespace tlbscope::explain {

// Where names come from; spaces are the recording's. Texts must live, unchanged, as long as they are asked
// for.
struct Naming {
    std::function<Name(SpaceId, VirtAddr)> function_at;
    std::function<Region(SpaceId, VirtAddr)> region_of;
};

// A function of an object. Number 0 is the unknown function of an unknown object.
struct Function {
    std::string name;
    std::string object;
};
inline constexpr const char* kUnknown = "[unknown]";
// The object a name gives, or kUnknown: code outside every map has none.
[[nodiscard]] std::string object_of(const Name& name);

// What a cell's misses share; parts that were not asked for are 0.
struct Cell {
    std::uint64_t page = 0;         // number
    std::uint64_t instruction = 0;  // its address
    std::uint32_t function = 0;     // index into functions()
    std::uint32_t space = 0;        // kKernelSpace for kernel-side pages
    Mode mode = Mode::kUser;
    Kind kind = Kind::kInstruction;
    Side side = Side::kUser;
    Region region = Region::kUnknown;
    Cause cause = Cause::kCompulsory;

    [[nodiscard]] std::uint64_t hash() const {
        const auto small = static_cast<std::uint64_t>(mode) | static_cast<std::uint64_t>(kind) << 1 |
                           static_cast<std::uint64_t>(side) << 2 | static_cast<std::uint64_t>(cause) << 3 |
                           static_cast<std::uint64_t>(region) << 6;
        return (page * 0x9e3779b97f4a7c15 ^ instruction) * 0xbf58476d1ce4e5b9 ^
               (std::uint64_t{function} << 32 ^ std::uint64_t{space} << 12 ^ small);
    }
    friend bool operator==(const Cell&, const Cell&) = default;
};

class Attribution final : public replay::Observer {
  public:
    Attribution(const machine::Machine& machine, const recording::Dictionary& dictionary,
                std::uint64_t kernel_base, Naming naming, const Question& question);

    void looked_up(const replay::Lookups& lookups) override;
    void switching(const replay::SpaceSwitch& to) override { causes_.switching(to); }
    void removing(const replay::Removal& removal) override { causes_.removing(removal); }

    [[nodiscard]] const FlatMap<Cell, std::uint64_t>& cells() const { return cells_; }
    [[nodiscard]] const std::vector<Function>& functions() const { return functions_; }
    // Size of the pages that cells name.
    [[nodiscard]] PageShift shift() const { return shift_; }
    [[nodiscard]] const replay::Counts& misses() const { return misses_; }
    [[nodiscard]] const std::array<CauseCounts, 2>& causes() const { return causes_.counts(); }

  private:
    // The function of a block's instructions, as far as one answer holds for all.
    struct BlockFunction {
        std::uint32_t space = 0;
        std::uint32_t function = 0;
        bool known = false;
        bool uniform = false;
    };

    [[nodiscard]] std::uint64_t instruction_address(const replay::Miss& miss) const;
    std::uint32_t function_of(const replay::Miss& miss, SpaceId recorded);
    std::uint32_t function_at(SpaceId recorded, std::uint64_t address);
    Region region_of(const replay::Miss& miss, SpaceId recorded);

    const recording::Dictionary* dictionary_;
    std::uint64_t kernel_base_;
    Naming naming_;
    bool wants_function_, wants_page_, wants_space_, wants_mode_, wants_kind_, wants_side_, wants_region_,
        wants_cause_, wants_instruction_;

    PageShift shift_;
    MachineCauses causes_;
    std::vector<Cause> batch_causes_;
    std::vector<replay::Miss> batch_misses_;
    replay::Counts misses_;
    FlatMap<Cell, std::uint64_t> cells_;
    std::vector<BlockFunction> block_functions_;  // by dictionary entry
    std::vector<Function> functions_{{.name = kUnknown, .object = kUnknown}};
    // By name and object.
    std::map<std::pair<std::string, std::string>, std::uint32_t> function_numbers_;
    struct Texts {
        const char* function = nullptr;
        const char* object = nullptr;
        std::size_t function_size = 0;
        std::size_t object_size = 0;
        [[nodiscard]] std::uint64_t hash() const {
            return reinterpret_cast<std::uintptr_t>(function) ^
                   std::rotl(reinterpret_cast<std::uintptr_t>(object) + function_size + object_size, 32);
        }
        friend bool operator==(const Texts&, const Texts&) = default;
    };
    FlatMap<Texts, std::uint32_t> text_numbers_;  // a function's number + 1
    FlatMap<Translation, std::uint8_t> regions_;  // by 4 KiB page; 0: not asked yet
};

}  // namespace tlbscope::explain
