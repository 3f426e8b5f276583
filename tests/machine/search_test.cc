// Every form of the vector loops gives what the obvious loop gives.
#include "machine/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/traces.h"

namespace tlbscope::machine {
namespace {

class EveryForm : public testing::TestWithParam<const Kernels*> {};

std::vector<const Kernels*> forms() {
    const auto found = available_kernels();
    return {found.begin(), found.end()};
}

INSTANTIATE_TEST_SUITE_P(Search, EveryForm, testing::ValuesIn(forms()),
                         [](const auto& form) { return form.param->name; });

TEST_P(EveryForm, FindsTheFirstEqualKey) {
    Random random(1);
    for (std::size_t count = 0; count <= 100; ++count)
        for (int repeat = 0; repeat < 20; ++repeat) {
            std::vector<std::uint64_t> keys(count);
            for (auto& key : keys) key = random.below(60);
            for (std::uint64_t wanted = 0; wanted < 60; wanted += 7) {
                const auto at = std::find(keys.begin(), keys.end(), wanted) - keys.begin();
                ASSERT_EQ(GetParam()->find(keys.data(), count, wanted), static_cast<std::size_t>(at));
            }
        }
}

TEST_P(EveryForm, FindsTheFirstLeastValue) {
    Random random(2);
    for (std::size_t count = 1; count <= 70; ++count)
        for (int repeat = 0; repeat < 20; ++repeat) {
            std::vector<std::uint64_t> values(count);
            // Values on both sides of 2^63 tell signed from unsigned comparison.
            for (auto& value : values)
                value = random.below(30) + (random.below(2) == 0 ? 0 : ~std::uint64_t{0} - 40);
            const auto at = std::min_element(values.begin(), values.end()) - values.begin();
            ASSERT_EQ(GetParam()->find_least(values.data(), count), static_cast<std::size_t>(at));
        }
}

TEST_P(EveryForm, CollapsesRunsOfAPage) {
    Random random(3);
    for (std::size_t count = 0; count < 200; ++count) {
        const KeyRule rule{.kernel_base = random.below(3) == 0 ? ~std::uint64_t{0} : 0xffff800000000000,
                           .user_tag = std::uint64_t{random.below(16)} << 52,
                           .page_shift = 12 + random.below(3)};
        std::vector<std::uint64_t> addresses(count);
        for (auto& address : addresses)
            address = (random.below(2) == 0 ? 0x400000 : 0xffff800000000000) + random.below(4 * 4096);
        const std::uint64_t last = 0x400 | rule.user_tag;
        std::vector<std::uint64_t> wanted_keys;
        std::vector<std::uint32_t> wanted_ordinals;
        std::uint64_t kernel_side = 0;
        std::uint64_t before = last;
        for (std::size_t i = 0; i < count; ++i) {
            const bool kernel = addresses[i] >= rule.kernel_base;
            kernel_side += kernel ? 1 : 0;
            const std::uint64_t key = addresses[i] >> rule.page_shift | (kernel ? 0 : rule.user_tag);
            if (key != before) {
                wanted_keys.push_back(key);
                wanted_ordinals.push_back(static_cast<std::uint32_t>(7 + i));
            }
            before = key;
        }
        std::vector<std::uint64_t> keys(count + kCollapseSlack);
        std::vector<std::uint32_t> ordinals(count + kCollapseSlack);
        const Collapsed done =
            GetParam()->collapse(addresses.data(), count, rule, last, 7, keys.data(), ordinals.data());
        keys.resize(done.count);
        ordinals.resize(done.count);
        ASSERT_EQ(keys, wanted_keys);
        ASSERT_EQ(ordinals, wanted_ordinals);
        ASSERT_EQ(done.kernel_side, kernel_side);
        ASSERT_EQ(done.last, before);
    }
}

TEST_P(EveryForm, ListsAddressesNearAPagesEnd) {
    Random random(4);
    for (std::size_t count = 0; count < 100; ++count) {
        std::vector<std::uint64_t> addresses(count);
        for (auto& address : addresses) address = random.next() | (random.below(2) == 0 ? 0xff0 : 0);
        std::vector<std::uint32_t> wanted;
        for (std::size_t i = 0; i < count; ++i)
            if ((addresses[i] & 0xfff) > 4088) wanted.push_back(static_cast<std::uint32_t>(i));
        std::vector<std::uint32_t> ordinals(count + kCollapseSlack);
        ordinals.resize(GetParam()->near_page_end(addresses.data(), count, 0xfff, 4088, ordinals.data()));
        ASSERT_EQ(ordinals, wanted);
    }
}

}  // namespace
}  // namespace tlbscope::machine
