// Rows against a count of the reference's log by hand, for random runs, machines, questions and filters.
#include "explain/breakdown.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "replay/engine.h"
#include "support/reference_replay.h"
#include "support/traces.h"

namespace tlbscope::explain {
namespace {

using machine::Machine;
using reference::Executions;
using reference::MissRecord;
using reference::Trace;

// Names that any test can work out: functions of 32 bytes, objects and regions of a page. Two functions have
// the same name.
std::string function_name(std::uint64_t address) { return "f" + std::to_string(address >> 5 & 7); }
std::string object_name(std::uint64_t address) { return "/lib/o" + std::to_string((address >> 12) % 3); }
Region region(std::uint64_t address) { return static_cast<Region>((address >> 12) % addrspace::kRegions); }

Naming naming() {
    static std::map<std::string, std::string> kept;
    const auto keep = [](const std::string& text) -> std::string_view {
        return kept.try_emplace(text, text).first->second;
    };
    return {.function_at =
                [keep](SpaceId, VirtAddr address) {
                    return Name{.function = keep(function_name(address.value())),
                                .object = keep(object_name(address.value()))};
                },
            .region_of = [](SpaceId, VirtAddr address) { return region(address.value()); }};
}

std::string hex(std::uint64_t address) {
    char text[32];
    std::snprintf(text, sizeof text, "0x%08llx", static_cast<unsigned long long>(address));
    return text;
}

std::string label(Dimension dimension, const MissRecord& miss, const Trace& trace, PageShift shift) {
    switch (dimension) {
        case Dimension::kMode:
            return miss.mode == Mode::kUser ? "user" : "kernel";
        case Dimension::kKind:
            return miss.kind == Kind::kInstruction ? "instruction" : "data";
        case Dimension::kSide:
            return miss.side == Side::kUser ? "user" : "kernel";
        case Dimension::kRegion:
            return std::string(name_of(region(miss.address)));
        case Dimension::kFunction:
            return function_name(miss.instruction);
        case Dimension::kObject:
            return object_name(miss.instruction);
        case Dimension::kPage:
            return hex(miss.page << shift.value());
        case Dimension::kSpace:
            return miss.side == Side::kKernel ? "kernel" : space_label(trace.metadata, miss.process);
        case Dimension::kCause:
            break;
    }
    return std::string(replay::name_of(miss.cause));
}

using Path = std::vector<std::string>;  // a function's label is followed by its object

Path path_of(const Question& question, const MissRecord& miss, const Trace& trace, PageShift shift) {
    Path path;
    for (const Dimension dimension : question.by) {
        path.push_back(label(dimension, miss, trace, shift));
        if (dimension == Dimension::kFunction)
            path.back() += " of " + label(Dimension::kObject, miss, trace, shift);
    }
    return path;
}

void flatten(const std::vector<Row>& rows, const std::vector<Dimension>& by, Path& above,
             std::map<Path, std::uint64_t>& leaves) {
    for (const Row& row : rows) {
        above.push_back(row.label);
        if (by[above.size() - 1] == Dimension::kFunction) above.back() += " of " + row.object;
        if (row.rows.empty())
            leaves[above] += row.misses;
        else
            flatten(row.rows, by, above, leaves);
        above.pop_back();
    }
}

struct Both {
    Trace trace;
    std::vector<MissRecord> log;
    Result<Breakdown> breakdown;
};

Both ask(std::uint64_t seed, const std::function<Question(machine::Random&)>& make, Question& question,
         Machine& machine) {
    machine::Random random(seed);
    Both both{.trace = reference::random_trace(random), .log = {}, .breakdown = fail("", "", "")};
    machine = reference::random_machine(random);
    question = make(random);
    Attribution attribution(machine, both.trace.dictionary, both.trace.metadata.kernel_base, naming(),
                            question);
    replay::Engine engine(both.trace.dictionary, both.trace.metadata, reference::plans_of({machine}),
                          {&attribution});
    reference::Replay slow(both.trace.dictionary, both.trace.metadata, machine);
    for (const Executions& executions : both.trace.batches) {
        EXPECT_TRUE(engine.consume(executions.batch()));
        slow.consume(executions.batch());
    }
    both.log = slow.log;
    auto ledgers = engine.finish(both.trace.metadata, both.trace.totals());
    EXPECT_TRUE(ledgers);
    both.breakdown = break_down(attribution, question, both.trace.metadata, ledgers->front());
    return both;
}

Question random_question(machine::Random& random) {
    Question question;
    std::vector<Dimension> left(kDimensions.begin(), kDimensions.end());
    for (std::uint32_t n = 1 + random.below(4); n > 0; --n) {
        const std::uint32_t at = random.below(static_cast<std::uint32_t>(left.size()));
        question.by.push_back(left[at]);
        left.erase(left.begin() + at);
    }
    question.rows = 0;
    return question;
}

// Functions carry their object only where the question does not name objects before them.
void drop_objects(const Question& question, Path& path) {
    const auto object = std::find(question.by.begin(), question.by.end(), Dimension::kObject);
    const auto function = std::find(question.by.begin(), question.by.end(), Dimension::kFunction);
    if (function == question.by.end() || object > function) return;
    std::string& text = path[static_cast<std::size_t>(function - question.by.begin())];
    text = text.substr(0, text.find(" of ")) + " of ";
}

TEST(Breakdown, CountsWhatTheReferenceCounts) {
    for (std::uint64_t seed = reference::seed(); seed < reference::seed() + 400; ++seed) {
        SCOPED_TRACE("TLBSCOPE_SEED=" + std::to_string(seed));
        Question question;
        Machine machine;
        const Both both = ask(seed, random_question, question, machine);
        ASSERT_TRUE(both.breakdown) << both.breakdown.error().message();
        std::map<Path, std::uint64_t> wanted;
        for (const MissRecord& miss : both.log) {
            Path path = path_of(question, miss, both.trace, machine.pages.base);
            drop_objects(question, path);
            ++wanted[path];
        }
        std::map<Path, std::uint64_t> leaves;
        Path above;
        flatten(both.breakdown->rows, question.by, above, leaves);
        ASSERT_EQ(leaves, wanted);
        EXPECT_EQ(both.breakdown->matched, both.log.size());
    }
}

TEST(Breakdown, FiltersKeepWhatMatchesAll) {
    for (std::uint64_t seed = reference::seed(); seed < reference::seed() + 200; ++seed) {
        SCOPED_TRACE("TLBSCOPE_SEED=" + std::to_string(seed));
        Question question;
        Machine machine;
        const Both both = ask(
            seed,
            [](machine::Random& random) {
                Question asked = random_question(random);
                for (const char* filter :
                     {"function=^f[0-5]$", "kind=instr", "cause=c", "page=[02468ace]000$"})
                    if (random.below(2) == 0) asked.filters.push_back(*parse_filter(filter));
                return asked;
            },
            question, machine);
        ASSERT_TRUE(both.breakdown) << both.breakdown.error().message();
        std::map<Path, std::uint64_t> wanted;
        std::uint64_t matched = 0;
        for (const MissRecord& miss : both.log) {
            const bool all =
                std::all_of(question.filters.begin(), question.filters.end(), [&](const Filter& filter) {
                    return std::regex_search(label(filter.dimension, miss, both.trace, machine.pages.base),
                                             filter.regex);
                });
            if (!all) continue;
            Path path = path_of(question, miss, both.trace, machine.pages.base);
            drop_objects(question, path);
            ++wanted[path];
            ++matched;
        }
        std::map<Path, std::uint64_t> leaves;
        Path above;
        flatten(both.breakdown->rows, question.by, above, leaves);
        ASSERT_EQ(leaves, wanted);
        EXPECT_EQ(both.breakdown->matched, matched);
    }
}

void check_order(const std::vector<Row>& rows, std::size_t most) {
    for (std::size_t i = 0; i < rows.size(); ++i) {
        EXPECT_LE(i, most);
        if (i == most) {
            EXPECT_GT(rows[i].others, 0u);
            EXPECT_EQ(rows[i].label, "[" + std::to_string(rows[i].others) + " others]");
        } else {
            EXPECT_EQ(rows[i].others, 0u);
            if (i > 0) {
                EXPECT_GE(rows[i - 1].misses, rows[i].misses);
            }
        }
        std::uint64_t below = 0;
        for (const Row& row : rows[i].rows) below += row.misses;
        if (!rows[i].rows.empty()) {
            EXPECT_EQ(below, rows[i].misses);
        }
        check_order(rows[i].rows, most);
    }
}

TEST(Breakdown, TheRestOfALevelIsARow) {
    for (std::uint64_t seed = reference::seed(); seed < reference::seed() + 100; ++seed) {
        SCOPED_TRACE("TLBSCOPE_SEED=" + std::to_string(seed));
        Question question;
        Machine machine;
        const auto make = [](machine::Random& random) {
            Question asked = random_question(random);
            asked.rows = 1 + random.below(4);
            return asked;
        };
        const Both both = ask(seed, make, question, machine);
        ASSERT_TRUE(both.breakdown) << both.breakdown.error().message();
        check_order(both.breakdown->rows, question.rows);
        std::uint64_t sum = 0;
        for (const Row& row : both.breakdown->rows) sum += row.misses;
        EXPECT_EQ(sum, both.log.size());
    }
}

TEST(Breakdown, CodeCostsAddUpByKindAndByCause) {
    machine::Random random(reference::seed());
    const Trace trace = reference::random_trace(random);
    const Machine machine = reference::random_machine(random);
    Question question;
    question.instructions = true;
    Attribution attribution(machine, trace.dictionary, trace.metadata.kernel_base, naming(), question);
    replay::Engine engine(trace.dictionary, trace.metadata, reference::plans_of({machine}), {&attribution});
    reference::Replay slow(trace.dictionary, trace.metadata, machine);
    for (const Executions& executions : trace.batches) {
        ASSERT_TRUE(engine.consume(executions.batch()));
        slow.consume(executions.batch());
    }
    std::map<std::uint64_t, std::uint64_t> wanted;
    for (const MissRecord& miss : slow.log) ++wanted[miss.instruction];
    std::map<std::uint64_t, std::uint64_t> got;
    for (const CodeCost& cost : code_costs(attribution, question, trace.metadata, machine.pages.base)) {
        EXPECT_EQ(cost.by_kind[0] + cost.by_kind[1], cost.by_cause.total());
        EXPECT_EQ(cost.function.name, function_name(cost.address));
        EXPECT_EQ(cost.function.object, object_name(cost.address));
        got[cost.address] += cost.by_cause.total();
    }
    EXPECT_EQ(got, wanted);
}

// Code outside every map has no object; that is a value like any other.
TEST(Breakdown, CodeWithoutAnObjectIsOfAnUnknownOne) {
    machine::Random random(reference::seed());
    const Trace trace = reference::random_trace(random);
    const Machine machine = reference::random_machine(random);
    Question question;
    question.by = {Dimension::kObject};
    const Naming nowhere{.function_at = [](SpaceId, VirtAddr) { return Name{}; },
                         .region_of = [](SpaceId, VirtAddr) { return Region::kUnknown; }};
    Attribution attribution(machine, trace.dictionary, trace.metadata.kernel_base, nowhere, question);
    replay::Engine engine(trace.dictionary, trace.metadata, reference::plans_of({machine}), {&attribution});
    for (const Executions& executions : trace.batches) ASSERT_TRUE(engine.consume(executions.batch()));
    const auto breakdown = break_down(attribution, question, trace.metadata,
                                      engine.finish(trace.metadata, trace.totals())->front());
    ASSERT_TRUE(breakdown) << breakdown.error().message();
    ASSERT_EQ(breakdown->rows.size(), 1u);
    EXPECT_EQ(breakdown->rows[0].label, kUnknown);
}

TEST(Breakdown, AnotherReplaysLedgerIsRefused) {
    machine::Random random(reference::seed());
    const Trace trace = reference::random_trace(random);
    Machine machine = reference::random_machine(random);
    Question question;
    Attribution attribution(machine, trace.dictionary, trace.metadata.kernel_base, naming(), question);
    replay::Engine engine(trace.dictionary, trace.metadata, reference::plans_of({machine}), {&attribution});
    for (const Executions& executions : trace.batches) ASSERT_TRUE(engine.consume(executions.batch()));
    replay::Ledger ledger = engine.finish(trace.metadata, trace.totals())->front();
    ++ledger.misses.at(Kind::kData, Mode::kKernel, Side::kUser);
    const auto refused = break_down(attribution, question, trace.metadata, ledger);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().what.find("do not add up"), std::string::npos);
}

TEST(Question, MistakesAreUsageErrors) {
    for (const char* by : {"", "kind,", "kind,kind", "colour"}) {
        const auto parsed = parse_dimensions(by);
        ASSERT_FALSE(parsed) << by;
        EXPECT_EQ(parsed.error().error_class, ErrorClass::kUsage);
    }
    for (const char* filter : {"", "kind", "colour=red", "function=("}) {
        const auto parsed = parse_filter(filter);
        ASSERT_FALSE(parsed) << filter;
        EXPECT_EQ(parsed.error().error_class, ErrorClass::kUsage);
    }
    EXPECT_EQ(parse_dimensions("cause,page")->size(), 2u);
}

}  // namespace
}  // namespace tlbscope::explain
