// The touches of one kind, fetches or accesses, as layout sees them: visits to pieces of the image, and pages
// of everything else.
//
// Problem: a search asks thousands of times how many misses an order has, and a recording has tens of
// millions of executions. Idea: whatever the order, a piece keeps its bytes together, so the recording is
// boiled down once to what an order can change. A visit is a run of references to one piece at rising
// addresses, its first and last byte; the pages it touches follow from where the piece lies. Other code is a
// page, and repeats of one page are left out. Most references are in loops: runs of equal visits, and runs of
// equal runs, become a loop element, of which a replay need only do passes until one has no miss
// (layout/evaluate.h says when that is exact).
//
// Exact means: for every placement of the pieces, the sequence of pages that results is the one that a replay
// of the recording with those addresses looks up, but for repeats of the page just looked up. A forward step
// within a piece joins its visit when it is shorter than a page, so that no page lies between.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "addrspace/asids.h"
#include "addrspace/spaces.h"
#include "core/error.h"
#include "explain/flat_map.h"
#include "layout/image.h"
#include "layout/places.h"
#include "machine/machine.h"
#include "recording/batch.h"
#include "recording/recording.h"

namespace tlbscope::layout {

inline constexpr std::uint32_t kNoPiece = ~std::uint32_t{0};

struct Visit {
    std::uint32_t piece = kNoPiece;  // kNoPiece: a page of other code or data
    bool user = false;               // the address carries its space's tag
    std::uint16_t bias = 0;          // of Trace::biases
    std::uint64_t first = 0;         // byte of the piece; of a page its number
    std::uint64_t end = 0;           // behind the last byte
    friend bool operator==(const Visit&, const Visit&) = default;
    [[nodiscard]] std::uint64_t hash() const {
        return (first * 0x9e3779b97f4a7c15 ^ end) * 0xbf58476d1ce4e5b9 +
               (std::uint64_t{bias} << 33 | std::uint64_t{piece} << 1 | (user ? 1 : 0));
    }
};

// What happens to the array between visits: the CPU goes to another space, or the guest removes entries.
struct Change {
    enum class What : std::uint8_t { kSwitch, kRemovePage, kRemoveAll };
    What what = What::kSwitch;
    addrspace::Asids::Switch to;  // kSwitch
    std::uint64_t address = 0;    // kRemovePage
    bool user = false;            // the side of that address
};

// An element is a visit's number, or with kLoop a loop's, or with kChange a change's.
inline constexpr std::uint32_t kLoop = std::uint32_t{1} << 31;
inline constexpr std::uint32_t kChange = std::uint32_t{1} << 30;
inline constexpr std::uint32_t kNumber = kChange - 1;

struct Loop {
    std::uint32_t first = 0;  // into Trace::bodies
    std::uint32_t length = 0;
    std::uint32_t passes = 0;
};

// One CPU's.
struct CpuTrace {
    CpuId cpu;
    std::vector<std::uint32_t> elements;
};

// Calls between pieces: control came to the start of a function of `to`, and the piece visited before was
// `from`. Pieces in between that cannot move (procedure linkage tables, thunks) and other code are passed
// over.
struct Call {
    std::uint32_t from = kNoPiece;
    std::uint32_t to = kNoPiece;
    std::uint32_t from_offset = 0;  // of the last byte fetched there, rounded down to 16
    std::uint64_t count = 0;
};

struct PieceUse {
    std::uint64_t entries = 0;        // calls of its functions
    std::uint64_t references = 0;     // instructions fetched, or accesses made
    std::uint64_t first_seen = 0;     // number of the visit, from 1; 0: never
    std::uint64_t touched_bytes = 0;  // distinct bytes
};

struct Trace {
    Kind kind = Kind::kInstruction;
    PageShift shift;        // of everything that is not the image
    PageShift image_shift;  // of the image
    std::vector<Visit> visits;
    std::vector<Loop> loops;
    std::vector<std::uint32_t> bodies;
    std::vector<Change> changes;
    std::vector<CpuTrace> cpus;
    std::vector<std::uint64_t> biases;  // address in memory - address in the image, as spaces had them
    std::vector<PieceUse> uses;         // by piece
    std::vector<Call> calls;            // by from and to
    std::uint64_t references = 0;
    std::uint64_t image_references = 0;  // of them, by the image
    std::uint64_t unplaced = 0;          // references to the image outside every piece
    std::uint64_t elements_before = 0;   // before loops were found

    [[nodiscard]] std::size_t size() const;  // elements, bodies included
};

struct TraceOptions {
    unsigned threads = 1;
    PageShift image_shift{0};                                    // 0: the machine's base page
    std::function<bool(std::uint64_t, std::uint64_t)> progress;  // executions done and in all; false: stop
};

// One pass over the recording. Memory: 4 bytes for each visit that a loop does not swallow, and some for each
// distinct visit.
[[nodiscard]] Result<Trace> trace_of(const recording::Recording& recording, const Image& image,
                                     const Places& places, const machine::Machine& machine,
                                     const TraceOptions& options);

// Finds loops in elements, several levels deep; used by trace_of and tests.
void find_loops(Trace& trace);

}  // namespace tlbscope::layout
