#include "layout/linker.h"

#include <gtest/gtest.h>

#include "layout/image.h"
#include "worlds.h"

namespace tlbscope::layout {
namespace {

using testing::image_of_sizes;
using testing::kImageStart;

TEST(Placer, WithoutAnOrderNothingMoves) {
    for (std::uint8_t linker = 0; linker < kLinkers; ++linker) {
        const Image image = image_of_sizes({33, 100, 7, 4000, 64}, {2});
        const Units units(image, static_cast<Linker>(linker));
        EXPECT_EQ(Placer(image, units, static_cast<Linker>(linker)).placed({}), as_linked(image))
            << name_of(static_cast<Linker>(linker));
    }
}

TEST(Placer, PutsListedOnesWhereEachLinkerDoes) {
    Image image = image_of_sizes({100, 100, 100, 100}, {0});
    const Units units(image, Linker::kLld);
    const std::uint32_t order[] = {*units.named("f3"), *units.named("f1")};
    // 100 bytes at multiples of 16: 112 apart.
    EXPECT_EQ(Placer(image, units, Linker::kLld).placed(order),
              (Placement{kImageStart + 224, kImageStart + 112, kImageStart + 336, kImageStart}));
    EXPECT_EQ(Placer(image, units, Linker::kGold).placed(order),
              (Placement{kImageStart, kImageStart + 336, kImageStart + 112, kImageStart + 224}));
    // A kernel's head stays before the order; assembly that TEXT_TEXT takes comes behind it.
    image.pieces[0].stays = Stays::kOwnPlace;
    EXPECT_EQ(Placer(image, units, Linker::kLinux).placed(order),
              (Placement{kImageStart, kImageStart + 224, kImageStart + 336, kImageStart + 112}));
    image.pieces[0].stays = Stays::kNotSplit;
    EXPECT_EQ(Placer(image, units, Linker::kLinux).placed(order),
              (Placement{kImageStart + 224, kImageStart + 112, kImageStart + 336, kImageStart}));
    image.pieces[0].section = ".text.unlikely.f0";
    EXPECT_EQ(Placer(image, units, Linker::kSorted).placed(order),
              (Placement{kImageStart, kImageStart + 224, kImageStart + 336, kImageStart + 112}));
}

TEST(Placer, AlignsAndMovesWhatFollows) {
    Image image = image_of_sizes({100, 10, 50});
    image.pieces[2].align = 64;
    image.pieces[2].start = kImageStart + 128;
    image.outputs[0].end = kImageStart + 178;
    image.outputs.push_back(
        {.name = ".fini", .start = kImageStart + 180, .end = kImageStart + 189, .align = 4});
    image.pieces.push_back({.section = ".fini",
                            .object = {},
                            .symbols = {},
                            .start = kImageStart + 180,
                            .size = 9,
                            .align = 4,
                            .output = 1,
                            .stays = Stays::kMadeByLinker,
                            .local = false});
    const Units units(image, Linker::kLld);
    const std::uint32_t order[] = {*units.named("f1"), *units.named("f2")};
    // f1 at 0, f2 at 64, f0 at 128 (50 bytes end at 114), .fini at 228.
    EXPECT_EQ(Placer(image, units, Linker::kLld).placed(order),
              (Placement{kImageStart + 128, kImageStart, kImageStart + 64, kImageStart + 228}));
}

TEST(Units, OneNameInSeveralFilesMovesTogether) {
    Image image = image_of_sizes({100, 100, 100});
    image.pieces[2].symbols = {"f0"};
    image.pieces[2].section = ".text.f0";
    const Units units(image, Linker::kLld);
    ASSERT_EQ(units.size(), 2U);
    EXPECT_EQ(units[*units.named("f0")].pieces, (std::vector<std::uint32_t>{0, 2}));
    EXPECT_EQ(Units(image, Linker::kGold).size(), 2U);
}

TEST(Units, MoldMovesFiles) {
    const Image image = image_of_sizes({100, 100, 100});
    const Units units(image, Linker::kMold);
    ASSERT_EQ(units.size(), 2U);
    EXPECT_EQ(units[0].key, "o0.o");
    EXPECT_EQ(units[0].pieces, (std::vector<std::uint32_t>{0, 1}));
}

TEST(Units, MoldNamesNoFileOfTheCompilerDriver) {
    Image image = image_of_sizes({100, 100, 100, 100, 100, 100});
    image.pieces[0].object = "/usr/lib/x86_64-linux-gnu/Scrt1.o";
    image.pieces[1].object = "/usr/lib/gcc/x86_64-linux-gnu/12/crtbeginS.o";
    image.pieces[2].object = "libc.a(exit.o)";
    image.pieces[3].object = "a.o";
    image.pieces[4].object = "my-crt1-test.o";
    image.pieces[5].object = "/usr/lib/x86_64-linux-gnu/crtn.o";
    const Units units(image, Linker::kMold);
    ASSERT_EQ(units.size(), 2U);
    EXPECT_EQ(units[0].key, "a.o");
    EXPECT_EQ(units[1].key, "my-crt1-test.o");
    // It links its start files before all others.
    const std::uint32_t order[] = {1};
    EXPECT_EQ(Placer(image, units, Linker::kMold).placed(order)[4], image.pieces[3].start);
}

TEST(Alignments, GapsTellThem) {
    std::vector<Piece> pieces;
    const auto add = [&](std::uint64_t start, std::uint64_t size, const char* section) {
        pieces.push_back({.section = section,
                          .object = {},
                          .symbols = {},
                          .start = start,
                          .size = size,
                          .align = 0,
                          .output = 0,
                          .stays = Stays::kMoves,
                          .local = false});
    };
    add(0x1000, 30, ".text.a");
    add(0x1020, 32, ".text.b");
    add(0x1040, 10, ".text.c");          // no gap: as its like
    add(0x104a, 6, ".text.unlikely.a");  // packed
    add(0x1050, 5, ".text.unlikely.b");
    infer_alignments(pieces);
    EXPECT_EQ(pieces[1].align, 32U) << "4 to 32 explain the gap; 32 fits all";
    EXPECT_EQ(pieces[2].align, 32U);
    EXPECT_EQ(pieces[3].align, 2U);
    EXPECT_EQ(pieces[4].align, 2U);
}

}  // namespace
}  // namespace tlbscope::layout
