// What goes into a recording comes out again, whatever the run looks like; what is not as it was written
// never does.
#include <gtest/gtest.h>

#include <cstdlib>

#include "made_recording.h"
#include "recording/summary.h"

namespace tlbscope::recording::testing {
namespace {

std::uint64_t first_seed() {
    const char* chosen = std::getenv("TLBSCOPE_SEED");
    return chosen != nullptr ? std::strtoull(chosen, nullptr, 10) : 1;
}

// An execution that began as many instructions as its block has ended early all the same: the file says only
// the number.
MadeRun without_full_early_ends(MadeRun run) {
    for (auto& cpu : run.executions)
        for (Execution& execution : cpu)
            if (execution.begun == run.blocks[execution.translation].lengths.size()) execution.begun = 0;
    return run;
}

void expect_same(const MadeRun& run, const ReadBack& back) {
    const MadeRun plain = without_full_early_ends(run);
    ASSERT_EQ(back.executions.size(), plain.executions.size());
    for (std::size_t cpu = 0; cpu < plain.executions.size(); ++cpu) {
        ASSERT_EQ(back.executions[cpu].size(), plain.executions[cpu].size()) << "cpu " << cpu;
        for (std::size_t i = 0; i < plain.executions[cpu].size(); ++i)
            ASSERT_EQ(back.executions[cpu][i], plain.executions[cpu][i])
                << "cpu " << cpu << ", execution " << i;
        ASSERT_EQ(back.events[cpu], plain.events[cpu]);
    }
}

TEST(Recording, RandomRunsComeBackAsTheyWere) {
    for (std::uint64_t seed = first_seed(); seed < first_seed() + 30; ++seed) {
        SCOPED_TRACE(::testing::Message() << "TLBSCOPE_SEED=" << seed);
        const TestFolder folder;
        const MadeRun run = random_run(seed, 1 + seed % 3, 3 + seed * 5, 3000);
        write_run(run, folder.file("a.rec"), Granularity::kFull, 1 + seed * 37 % 500, 1 + seed % 4);
        auto recording = Recording::open(folder.file("a.rec"));
        ASSERT_TRUE(recording) << recording.error().message();
        EXPECT_TRUE(recording->whole());
        auto back = read_back(*recording, run);
        ASSERT_TRUE(back) << back.error().message();
        expect_same(run, *back);
    }
}

// More blocks than 16 bits number, more executions than a batch holds, more events than go between two
// batches.
TEST(Recording, LargeRunComesBack) {
    const TestFolder folder;
    const MadeRun run = random_run(7, 1, 120000, 400000);
    write_run(run, folder.file("a.rec"), Granularity::kFull, 16384, 8);
    auto recording = Recording::open(folder.file("a.rec"));
    ASSERT_TRUE(recording) << recording.error().message();
    ASSERT_GT(recording->dictionary().size(), 65536U);
    auto back = read_back(*recording, run);
    ASSERT_TRUE(back) << back.error().message();
    expect_same(run, *back);
}

TEST(Recording, ChunksDecodeInAnyOrder) {
    const TestFolder folder;
    const MadeRun run = random_run(3, 1, 40, 5000);
    write_run(run, folder.file("a.rec"));
    auto recording = Recording::open(folder.file("a.rec"));
    ASSERT_TRUE(recording);
    std::vector<std::vector<std::uint64_t>> forwards(recording->chunks().size());
    std::vector<std::vector<std::uint64_t>> backwards(recording->chunks().size());
    const auto decode = [&](BatchReader& reader, std::vector<std::uint64_t>& into) {
        for (;;) {
            auto batch = reader.next();
            ASSERT_TRUE(batch);
            if (!*batch) break;
            into.insert(into.end(), (*batch)->addresses.begin(), (*batch)->addresses.end());
            into.insert(into.end(), (*batch)->blocks.begin(), (*batch)->blocks.end());
        }
    };
    ASSERT_GT(forwards.size(), 10U);
    BatchReader reader(*recording, 0);
    for (std::size_t c = 0; c < forwards.size(); ++c) {
        reader.restart(c);
        decode(reader, forwards[c]);
    }
    for (std::size_t c = forwards.size(); c-- > 0;) {
        BatchReader fresh(*recording, c);
        decode(fresh, backwards[c]);
    }
    EXPECT_EQ(forwards, backwards);
}

TEST(Recording, SummaryCountsWhatHappened) {
    const TestFolder folder;
    const MadeRun run = without_full_early_ends(random_run(11, 2, 50, 4000));
    write_run(run, folder.file("a.rec"));
    auto recording = Recording::open(folder.file("a.rec"));
    ASSERT_TRUE(recording);
    auto summary = summarise(*recording);
    ASSERT_TRUE(summary);
    std::uint64_t instructions = 0;
    std::uint64_t loads = 0;
    std::uint64_t stores = 0;
    for (const auto& cpu : run.executions)
        for (const Execution& execution : cpu) {
            instructions +=
                execution.begun != 0 ? execution.begun : run.blocks[execution.translation].lengths.size();
            for (const Access& access : execution.accesses) ++(access.store ? stores : loads);
        }
    EXPECT_EQ(summary->of(Kind::kInstruction, Side::kUser) + summary->of(Kind::kInstruction, Side::kKernel),
              instructions);
    EXPECT_EQ(summary->loads, loads);
    EXPECT_EQ(summary->stores, stores);
    EXPECT_EQ(summary->total(), instructions + loads + stores);
    std::uint64_t in_chunks = 0;
    for (const ChunkInfo& chunk : recording->chunks()) in_chunks += chunk.instructions + chunk.accesses;
    EXPECT_EQ(in_chunks, summary->total());
}

// The CPU delivers an interrupt behind a block: QEMU reports these accesses of any earlier instruction.
TEST(Recording, InstructionsOfAccessesNeverGoBack) {
    const TestFolder folder;
    MadeRun run;
    run.blocks = {{.address = 0x1000, .lengths = {4, 4, 4}}};
    const Execution normal{
        .translation = 0, .begun = 0, .accesses = {{2, 3, false, 0x5000}, {0, 2, false, 0x6000}}};
    const Execution odd{
        .translation = 0, .begun = 2, .accesses = {{1, 3, true, 0x7000}, {0, 3, true, 0x7008}}};
    run.executions = {{normal, normal, odd}};
    run.events = {{}};
    write_run(run, folder.file("a.rec"));
    auto recording = Recording::open(folder.file("a.rec"));
    ASSERT_TRUE(recording);
    const auto back = read_back(*recording, run);
    ASSERT_TRUE(back);
    run.executions[0][0].accesses[1].instruction = 2;
    run.executions[0][1].accesses[1].instruction = 2;
    run.executions[0][2].accesses[1].instruction = 1;
    EXPECT_EQ(back->executions, run.executions);
}

TEST(Recording, DigestTellsRunsApartAndIgnoresTheFileLayout) {
    const TestFolder folder;
    MadeRun run = random_run(5, 1, 20, 2000);
    const auto digest = [&](const char* name, std::size_t buffer) {
        write_run(run, folder.file(name), Granularity::kFull, buffer, 100);
        auto recording = Recording::open(folder.file(name));
        return summarise(*recording)->digest;
    };
    const std::uint64_t first = digest("a", 100);
    EXPECT_EQ(first, digest("b", 250));
    run.executions[0][1500].accesses.push_back({.address = 1});
    EXPECT_NE(first, digest("c", 100));
}

// Granularity page: the touches are the page changes of each kind, and the counts are those of the full
// recording.
TEST(Recording, PageTouchesAreTheChangesOfPage) {
    const TestFolder folder;
    const MadeRun run = random_run(13, 1, 60, 5000);
    write_run(run, folder.file("full.rec"));
    write_run(run, folder.file("page.rec"), Granularity::kPage);
    auto full = Recording::open(folder.file("full.rec"));
    auto page = Recording::open(folder.file("page.rec"));
    ASSERT_TRUE(full && page);
    auto full_summary = summarise(*full);
    auto page_summary = summarise(*page);
    ASSERT_TRUE(full_summary && page_summary);
    EXPECT_EQ(full_summary->references, page_summary->references);
    EXPECT_EQ(full_summary->pages, page_summary->pages);

    // The obvious way: every reference in turn, touches that repeat the one before of their kind left out.
    std::vector<std::vector<PageTouch>> expected(1);
    std::uint64_t last[2] = {~std::uint64_t{0}, ~std::uint64_t{0}};
    const auto touch = [&](Kind kind, bool kernel, std::uint64_t address, std::uint64_t bytes) {
        for (std::uint64_t p = address >> 12;; ++p) {
            auto& before = last[static_cast<int>(kind)];
            if (before != (p << 1 | (kernel ? 1 : 0)))
                expected[0].push_back({p, kind, kernel ? Mode::kKernel : Mode::kUser});
            before = p << 1 | (kernel ? 1 : 0);
            if (p >= (address + bytes - 1) >> 12) break;
        }
    };
    std::size_t position = 0;
    for (const Execution& execution : run.executions[0]) {
        const MadeBlock& block = run.blocks[execution.translation];
        const bool kernel = block.address >= 0xffff800000000000;
        std::uint64_t address = block.address;
        const std::size_t begun = execution.begun != 0 ? execution.begun : block.lengths.size();
        for (std::size_t i = 0; i < begun; ++i) {
            touch(Kind::kInstruction, kernel, address, block.lengths[i]);
            address += block.lengths[i];
            for (const Access& access : execution.accesses)
                if (access.instruction == i)
                    touch(Kind::kData, kernel, access.address, std::uint64_t{1} << access.size_log2);
        }
        // Chunks of 3 buffers of 100: each starts without a touch before it.
        if (++position % 300 == 0) last[0] = last[1] = ~std::uint64_t{0};
    }
    std::vector<PageTouch> found;
    for (std::size_t chunk = 0; chunk < page->chunks().size(); ++chunk) {
        auto touches = page->touches(chunk);
        ASSERT_TRUE(touches);
        found.insert(found.end(), touches->touches.begin(), touches->touches.end());
    }
    ASSERT_EQ(found.size(), expected[0].size());
    for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(found[i].page, expected[0][i].page) << i;
        ASSERT_EQ(found[i].kind, expected[0][i].kind) << i;
        ASSERT_EQ(found[i].mode, expected[0][i].mode) << i;
    }
}

// Opens and decodes everything; the first error, if there is one.
std::optional<Error> read_all(const std::filesystem::path& path, bool* whole = nullptr) {
    auto recording = Recording::open(path);
    if (!recording) return recording.error();
    if (whole != nullptr) *whole = recording->whole();
    if (auto sound = recording->verify(); !sound) return sound.error();
    if (auto symbols = recording->kernel_symbols(); !symbols) return symbols.error();
    auto summary = summarise(*recording);
    if (!summary) return summary.error();
    return std::nullopt;
}

TEST(Recording, EveryPrefixIsReadableOrRefused) {
    const TestFolder folder;
    for (const Granularity granularity : {Granularity::kFull, Granularity::kPage}) {
        write_run(random_run(17, 1, 8, 400), folder.file("a.rec"), granularity);
        const auto bytes = file_bytes(folder.file("a.rec"));
        ASSERT_FALSE(read_all(folder.file("a.rec")));
        std::size_t readable = 0;
        for (std::size_t length = 0; length < bytes.size(); ++length) {
            put_file(folder.file("cut.rec"), std::span(bytes).first(length));
            bool whole = true;
            const auto error = read_all(folder.file("cut.rec"), &whole);
            if (error) {
                EXPECT_FALSE(error->what.empty());
                EXPECT_FALSE(error->hint.empty()) << error->message();
                // Whatever follows the first metadata is readable: only the end may be missing.
                ASSERT_EQ(readable, 0U) << "at " << length << ": " << error->message();
            } else {
                ASSERT_FALSE(whole) << "at " << length;
                ++readable;
            }
        }
        EXPECT_GT(readable, bytes.size() / 2);
    }
}

TEST(Recording, EveryFlippedBitIsDetected) {
    const TestFolder folder;
    for (const Granularity granularity : {Granularity::kFull, Granularity::kPage}) {
        write_run(random_run(19, 1, 6, 200), folder.file("a.rec"), granularity);
        auto bytes = file_bytes(folder.file("a.rec"));
        for (std::size_t at = 0; at < bytes.size(); ++at)
            for (int bit = 0; bit < 8; ++bit) {
                bytes[at] ^= static_cast<std::uint8_t>(1 << bit);
                put_file(folder.file("bad.rec"), bytes);
                bool whole = true;
                const auto error = read_all(folder.file("bad.rec"), &whole);
                ASSERT_TRUE(error.has_value()) << "byte " << at << " bit " << bit;
                bytes[at] ^= static_cast<std::uint8_t>(1 << bit);
            }
    }
}

TEST(Recording, LaterVersionsAreRefusedByName) {
    const TestFolder folder;
    write_run(random_run(1, 1, 3, 10), folder.file("a.rec"));
    auto bytes = file_bytes(folder.file("a.rec"));
    bytes[8] = 9;
    const std::uint64_t hash = format::hash(std::span(bytes).first(16));
    std::memcpy(bytes.data() + 16, &hash, 8);
    put_file(folder.file("a.rec"), bytes);
    auto recording = Recording::open(folder.file("a.rec"));
    ASSERT_FALSE(recording);
    EXPECT_EQ(recording.error().what, "recording format version 9 is newer than this tlbscope's 1");
    EXPECT_EQ(recording.error().hint, "use a newer tlbscope");
}

TEST(Recording, UnknownChunksAreSkipped) {
    const TestFolder folder;
    const MadeRun run = random_run(2, 1, 5, 100);
    write_run(run, folder.file("a.rec"));
    auto bytes = file_bytes(folder.file("a.rec"));
    const std::vector<std::uint8_t> payload{1, 2, 3};
    auto chunk = format::chunk_header({.kind = static_cast<format::ChunkKind>(999),
                                       .payload_bytes = 3,
                                       .payload_hash = format::hash(payload)});
    chunk.insert(chunk.end(), payload.begin(), payload.end());
    bytes.insert(bytes.begin() + format::kFileHeaderBytes, chunk.begin(), chunk.end());
    put_file(folder.file("a.rec"), bytes);
    auto recording = Recording::open(folder.file("a.rec"));
    ASSERT_TRUE(recording) << recording.error().message();
    auto back = read_back(*recording, run);
    ASSERT_TRUE(back);
    expect_same(run, *back);
}

TEST(Encoder, StopsWithTheExecutionThatReachesTheLimit) {
    DictionaryBuilder dictionary{AccessTable(access_table())};
    const std::vector<std::uint8_t> lengths{4, 4, 4};
    const std::vector<std::uint8_t> code(12, 0x90);
    dictionary.add_translation({.address = VirtAddr(0x1000), .lengths = lengths, .code = code});
    const auto encoder = Encoder::create(Granularity::kFull, dictionary, CpuId(0), ~std::uint64_t{0});
    const std::vector<std::uint64_t> words(10, 0);  // ten executions of three instructions each
    EXPECT_FALSE(encoder->consume({.blocks = words}, 10));
    EXPECT_EQ(encoder->totals().references(), 12U);
    EXPECT_EQ(encoder->totals().executions, 4U);
}

TEST(Metadata, SurvivesTheFile) {
    const TestFolder folder;
    Metadata metadata{
        .command = {"a", "b c"}, .target = "ppc", .cpu_model = "x", .cpus = 3, .deterministic = true};
    metadata.not_recorded = {"this", "that"};
    metadata.spaces = {{.id = SpaceId(2), .pid = 7, .name = "dd", .task = 0xffff888000000000}};
    metadata.maps = {{.space = SpaceId(2),
                      .start = VirtAddr(0x1000),
                      .end = VirtAddr(0x3000),
                      .file_offset = 0x1000,
                      .protection = "r-xp",
                      .path = "/bin/dd",
                      .build_id = "abcd"}};
    auto writer = Writer::create(folder.file("a.rec"), metadata);
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->add_kernel_symbols("ffffffff81000000 T _text\n"));
    ASSERT_TRUE(writer->add_vdso(std::string("\177ELF\0", 5)));
    ASSERT_TRUE(writer->finish(metadata));
    auto recording = Recording::open(folder.file("a.rec"));
    ASSERT_TRUE(recording) << recording.error().message();
    EXPECT_EQ(to_json(recording->metadata()), to_json(metadata));
    EXPECT_EQ(recording->metadata().spaces, metadata.spaces);
    EXPECT_EQ(recording->metadata().maps, metadata.maps);
    EXPECT_EQ(*recording->kernel_symbols(), "ffffffff81000000 T _text\n");
    EXPECT_EQ(*recording->vdso(), std::string("\177ELF\0", 5));
}

TEST(Writer, AnEarlierRecordingStaysUntilTheNewOneIsWhole) {
    const TestFolder folder;
    put_file(folder.file("a.rec"), std::vector<std::uint8_t>{1, 2, 3});
    {
        auto writer = Writer::create(folder.file("a.rec"), {});
        ASSERT_TRUE(writer);
        EXPECT_TRUE(std::filesystem::exists(folder.file("a.rec.partial")));
        auto second = Writer::create(folder.file("a.rec"), {});
        ASSERT_FALSE(second);
        EXPECT_EQ(second.error().what, "another tlbscope is writing this file");
    }
    EXPECT_EQ(file_bytes(folder.file("a.rec")), (std::vector<std::uint8_t>{1, 2, 3}));
    EXPECT_FALSE(std::filesystem::exists(folder.file("a.rec.partial")));
}

}  // namespace
}  // namespace tlbscope::recording::testing
