// After the flush that a policy issues, no CPU can use a translation that was removed: tried in every state
// that a small world can reach.
#include <gtest/gtest.h>

#include "flush/broadcast.h"
#include "flush/radix.h"
#include "flush/x86.h"
#include "small_world.h"

namespace tlbscope::flush {
namespace {

constexpr std::uint64_t kPage = 4096;

RadixRules patches(const std::string& numbers) {
    const auto has = [&](char n) { return numbers.find(n) != std::string::npos; };
    return {.batch_barriers = has('1'),
            .range_flush = has('3'),
            .local_ceiling = has('4'),
            .tables_by_range = has('5'),
            .reset_cpumask = has('6'),
            .local_spurious = has('7'),
            .pid_instructions = 4,
            .page_bytes = kPage};
}

RadixRules today(bool no_tlbie) {
    RadixRules rules{.today = true, .no_tlbie = no_tlbie, .pid_instructions = 4, .page_bytes = kPage};
    rules.trim_interval = 3;  // so that a small world gets to see it
    return rules;
}

struct Case {
    std::string name;
    std::shared_ptr<Flusher> flusher;
};

std::vector<Case> cases() {
    std::vector<Case> all;
    for (const char* numbers : {"", "1", "2", "3", "4", "5", "7", "13457"})
        all.push_back({std::string("radix_") + numbers, std::make_shared<Radix>(patches(numbers))});
    all.push_back({"today", std::make_shared<Radix>(today(false))});
    all.push_back({"today_ipi", std::make_shared<Radix>(today(true))});
    all.push_back({"x86", std::make_shared<X86>(X86Rules{.asids = 2})});
    all.push_back({"x86_one_asid", std::make_shared<X86>(X86Rules{.asids = 1})});
    all.push_back({"x86_no_pcid", std::make_shared<X86>(X86Rules{.asids = 0})});
    all.push_back(
        {"invlpgb", std::make_shared<X86>(X86Rules{.asids = 2, .broadcast = true, .broadcast_cpus = 2})});
    all.push_back({"arm64", std::make_shared<Arm64>(Arm64Rules{})});
    all.push_back({"arm64_range", std::make_shared<Arm64>(Arm64Rules{.range = true})});
    all.push_back({"riscv", std::make_shared<Riscv>(RiscvRules{})});
    all.push_back({"riscv_asids", std::make_shared<Riscv>(RiscvRules{.asids = true})});
    return all;
}

class Safety : public testing::TestWithParam<Case> {};

TEST_P(Safety, OneThreadThatMigratesOverTwoCpus) {
    const Search search = explore(*GetParam().flusher, {.cpus = 2, .spaces = 1, .pages = 2, .threads = 1});
    EXPECT_TRUE(search.counterexample.empty()) << search.text();
    EXPECT_TRUE(search.complete) << search.states;
}

TEST_P(Safety, TwoThreadsOnThreeCpus) {
    const Search search = explore(*GetParam().flusher, {.cpus = 3, .spaces = 1, .pages = 1, .threads = 2});
    EXPECT_TRUE(search.counterexample.empty()) << search.text();
    EXPECT_TRUE(search.complete) << search.states;
}

TEST_P(Safety, TwoSpacesOnTwoCpus) {
    const Search search = explore(*GetParam().flusher, {.cpus = 2, .spaces = 2, .pages = 1, .threads = 2});
    EXPECT_TRUE(search.counterexample.empty()) << search.text();
    EXPECT_TRUE(search.complete) << search.states;
}

INSTANTIATE_TEST_SUITE_P(Policies, Safety, testing::ValuesIn(cases()),
                         [](const auto& of) { return of.param.name; });

// Broken on purpose: it flushes this CPU and forgets the others.
class LocalOnly : public Flusher {
  public:
    [[nodiscard]] std::unique_ptr<Flusher> clone() const override {
        return std::make_unique<LocalOnly>(*this);
    }
    [[nodiscard]] std::string state() const override { return cpus_state(); }

  protected:
    void do_forget(SpaceId) override {}
    void do_switch(std::uint32_t number, std::optional<SpaceId> space) override {
        if (space) cpu(number).loaded = space;
    }
    void do_request(const Request& request) override {
        Operation operation{.scope = TlbScope::kPid, .walk_cache = true, .space = request.space};
        operation.cpus.add(request.cpu);
        issue(operation, TlbScope::kPid, 1);
    }
};

TEST(Broken, ForgettingTheOtherCpusIsFoundByTheShortestWay) {
    const Search search = explore(LocalOnly(), {.cpus = 2, .spaces = 1, .pages = 1, .threads = 2});
    EXPECT_EQ(search.text(),
              "run space 0 on CPU 0\n"
              "run space 0 on CPU 1\n"
              "touch page 0 of space 0 on CPU 0\n"
              "unmap page 0 of space 0 on CPU 1\n"
              "CPU 0 can use the old translation of page 0 of space 0");
}

// A single thread that migrates is enough: it comes back to what it left behind.
TEST(Broken, MigrationAloneFindsItToo) {
    const Search search =
        explore(LocalOnly(), {.cpus = 2, .spaces = 1, .pages = 2, .threads = 1, .speculation = false});
    EXPECT_EQ(search.text(),
              "run space 0 on CPU 0\n"
              "touch page 0 of space 0 on CPU 0\n"
              "idle on CPU 0\n"
              "run space 0 on CPU 1\n"
              "unmap page 0 of space 0 on CPU 1\n"
              "idle on CPU 1\n"
              "run space 0 on CPU 0\n"
              "CPU 0 can use the old translation of page 0 of space 0");
}

// Patch 6 takes lazy CPUs out of the mask without ending their use of the space. That is safe only while such
// a CPU fetches no translation on its own; the kernel therefore interrupts them since 0cef77c7798a (2018),
// which is "today" above.
TEST(Patch6, IsSafeWhereIdleCpusDoNotSpeculate) {
    for (const char* numbers : {"6", "1234567"})
        for (const std::uint32_t threads : {1U, 2U}) {
            const Search search =
                explore(Radix(patches(numbers)),
                        {.cpus = 2, .spaces = 1, .pages = 2, .threads = threads, .speculation = false});
            EXPECT_TRUE(search.counterexample.empty()) << search.text();
            EXPECT_TRUE(search.complete) << search.states;
        }
}

TEST(Patch6, IsNotSafeWhereTheyDo) {
    const Search search =
        explore(Radix(patches("6")), {.cpus = 2, .spaces = 1, .pages = 1, .threads = 1, .speculation = true});
    EXPECT_NE(search.text().find("speculate on page 0 of space 0"), std::string::npos) << search.text();
}

}  // namespace
}  // namespace tlbscope::flush
