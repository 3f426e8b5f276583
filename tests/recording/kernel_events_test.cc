// Kernel events come back as they went in, merged by time, and damage is noticed.
#include "recording/kernel_events.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "made_recording.h"

namespace tlbscope::recording::testing {
namespace {

KernelEvent random_event(std::mt19937_64& random, std::uint32_t cpu, std::uint64_t time) {
    const auto some = [&] { return random() >> random() % 64; };
    const auto flag = [&] { return random() % 2 == 0; };
    const auto word = [&] { return static_cast<std::uint32_t>(some()); };
    switch (random() % 3) {
        case 0:
            return MemoryEvent{.kind = static_cast<MemoryEventKind>(1 + random() % 11),
                               .protection = static_cast<std::uint8_t>(random() % 8),
                               .shares_space = flag(),
                               .write = flag(),
                               .spurious = flag(),
                               .file = flag(),
                               .cpu = cpu,
                               .process = word(),
                               .thread = word(),
                               .child = word(),
                               .time = time,
                               .start = VirtAddr(some()),
                               .bytes = some(),
                               .old_start = VirtAddr(some()),
                               .old_bytes = some()};
        case 1:
            return MemoryCall{.kind = static_cast<MemoryCallKind>(1 + random() % 10),
                              .whole = flag(),
                              .freed_tables = flag(),
                              .page_shift = static_cast<std::uint8_t>(random()),
                              .cpu = cpu,
                              .process = word(),
                              .thread = word(),
                              .time = time,
                              .space = some(),
                              .start = some(),
                              .end = some()};
        default:
            return TlbOperation{
                .source = flag() ? TlbOperation::Source::kTlbie : TlbOperation::Source::kTlbFlush,
                .scope = static_cast<TlbScope>(random() % kTlbScopes),
                .local = flag(),
                .walk_cache = flag(),
                .cpu = cpu,
                .time = time,
                .hardware = some(),
                .start = VirtAddr(some()),
                .bytes = some(),
                .operands = {.lpid = some(),
                             .local = flag(),
                             .rb = some(),
                             .rs = some(),
                             .ric = some(),
                             .prs = some(),
                             .r = some()},
                .reason = word()};
    }
}

// Several CPUs, several chunks each; returns the events in the order they must be read.
std::vector<KernelEvent> write_events(const std::filesystem::path& path, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    Metadata metadata;
    metadata.kernel_events = true;
    auto writer = Writer::create(path, metadata);
    EXPECT_TRUE(writer);
    std::vector<KernelEvent> all;
    for (const std::uint32_t cpu : {2U, 0U}) {
        KernelEventEncoder encoder;
        std::uint32_t number = 0;
        std::uint64_t time = random() % 1000;
        for (int i = 0; i < 3000; ++i) {
            time += random() % 3;
            all.push_back(random_event(random, cpu, time));
            encoder.add(all.back());
            if (random() % 500 != 0) continue;
            EXPECT_TRUE(writer->add_kernel_events(cpu, number++, encoder.take()));
        }
        EXPECT_TRUE(writer->add_kernel_events(cpu, number, encoder.take()));
    }
    EXPECT_TRUE(writer->finish(metadata));
    const auto cpu_of = [](const KernelEvent& e) {
        return std::visit([](const auto& x) { return x.cpu; }, e);
    };
    std::stable_sort(all.begin(), all.end(), [&](const KernelEvent& a, const KernelEvent& b) {
        return std::pair(time_of(a), cpu_of(a)) < std::pair(time_of(b), cpu_of(b));
    });
    for (std::size_t i = 0; i < all.size(); ++i) std::visit([&](auto& e) { e.position = i; }, all[i]);
    return all;
}

TEST(KernelEvents, ComeBackMergedByTime) {
    const TestFolder folder;
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        const auto all = write_events(folder.file("a.rec"), seed);
        auto recording = Recording::open(folder.file("a.rec"));
        ASSERT_TRUE(recording) << recording.error().message();
        EXPECT_TRUE(recording->metadata().kernel_events);
        KernelEventReader reader(*recording);
        for (std::size_t i = 0; i < all.size(); ++i) {
            auto event = reader.next();
            ASSERT_TRUE(event) << event.error().message();
            ASSERT_TRUE(*event);
            ASSERT_TRUE(**event == all[i]) << "seed " << seed << ", event " << i;
        }
        auto end = reader.next();
        ASSERT_TRUE(end);
        EXPECT_FALSE(*end);
        const auto counts = count_kernel_events(*recording);
        ASSERT_TRUE(counts);
        EXPECT_EQ(counts->total, all.size());
    }
}

TEST(KernelEvents, NoneAreNone) {
    const TestFolder folder;
    write_run(random_run(1, 1, 5, 20), folder.file("a.rec"));
    auto recording = Recording::open(folder.file("a.rec"));
    ASSERT_TRUE(recording);
    auto event = KernelEventReader(*recording).next();
    ASSERT_TRUE(event);
    EXPECT_FALSE(*event);
}

// A payload that no encoder makes, under good checksums.
TEST(KernelEvents, MalformedIsAnError) {
    const TestFolder folder;
    const std::vector<std::vector<std::uint8_t>> payloads{
        {1},                                                // an event is missing
        {1, 200, 0},                                        // a kind that does not exist
        {2, 32 + 7, 0, 0, 0, 0, 0, 0, 0, 0},                // one of two
        {0, 1},                                             // more than it says
        {1, 64, 0, 1, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0},  // a scope that does not exist
        {1, 11, 0, 0, 0xff, 0x7f},                          // a byte with 14 bits
    };
    for (const auto& payload : payloads) {
        auto writer = Writer::create(folder.file("a.rec"), {});
        ASSERT_TRUE(writer);
        ASSERT_TRUE(writer->add_kernel_events(0, 0, payload));
        ASSERT_TRUE(writer->finish({}));
        auto recording = Recording::open(folder.file("a.rec"));
        ASSERT_TRUE(recording);
        EXPECT_FALSE(count_kernel_events(*recording)) << static_cast<int>(payload[0]);
    }
}

TEST(KernelEvents, FlippedBitsAreNoticed) {
    const TestFolder folder;
    write_events(folder.file("a.rec"), 9);
    const auto good = file_bytes(folder.file("a.rec"));
    for (std::size_t at = 24; at < good.size(); at += 97) {
        auto bad = good;
        bad[at] ^= 4;
        put_file(folder.file("b.rec"), bad);
        auto recording = Recording::open(folder.file("b.rec"));
        EXPECT_FALSE(recording && count_kernel_events(*recording)) << at;
    }
}

}  // namespace
}  // namespace tlbscope::recording::testing
