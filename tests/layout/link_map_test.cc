#include "layout/link_map.h"

#include <gtest/gtest.h>

namespace tlbscope::layout {
namespace {

constexpr const char* kGnu = R"(Archive member included to satisfy reference by file (symbol)

Linker script and memory map

LOAD a.o
.text           0x0000000000401000       0x52
 *(.text.unlikely .text.*_unlikely .text.unlikely.*)
 .text.unlikely.with_a_long_name
                0x0000000000401000        0xa a.o
 *(.text .stub .text.* .gnu.linkonce.t.*)
 *fill*         0x000000000040100a        0x6
 .text.f        0x0000000000401010       0x22 a.o
                0x0000000000401010                f
 .text          0x0000000000401032        0x0 b.o
 .text.g        0x0000000000401040       0x12 /lib/libx.a(g o.o)
 .debug_info    0x0000000000000000       0x12 a.o
)";
constexpr const char* kGold = R"(
Memory map

.text           0x0000000000401000       0x52
 .text.unlikely.with_a_long_name
                0x0000000000401000        0xa a.o
 ** fill        0x000000000040100a        0x6
 .text.f        0x0000000000401010       0x22 a.o
                0x0000000000401010                f
 .text.g        0x0000000000401040       0x12 /lib/libx.a(g o.o)
)";
constexpr const char* kLld = R"(             VMA              LMA     Size Align Out     In      Symbol
          401000           401000       52    16 .text
          401000           401000        a     1         a.o:(.text.unlikely.with_a_long_name)
          401000           401000        a     1                 f.cold
          401010           401010       22    16         a.o:(.text.f)
          401010           401010       22     1                 f
          401040           401040       12    16         /lib/libx.a(g o.o):(.text.g)
)";
constexpr const char* kMold = R"(               VMA       Size Align Out     In      Symbol
          0x401000         82    16 .text
          0x401000         10     1         a.o:(.text.unlikely.with_a_long_name)
          0x401010         34    16         a.o:(.text.f)
          0x401010          0     0                 f
          0x401040         18    16         /lib/libx.a(g o.o):(.text.g)
)";

TEST(LinkMap, AllFourLinkersSayTheSame) {
    const std::pair<const char*, MapWriter> maps[] = {{kGnu, MapWriter::kGnuLd},
                                                      {kGold, MapWriter::kGold},
                                                      {kLld, MapWriter::kLld},
                                                      {kMold, MapWriter::kMold}};
    for (const auto& [text, writer] : maps) {
        const auto map = parse_link_map(text, "x.map");
        ASSERT_TRUE(map) << map.error().message();
        EXPECT_EQ(map->writer, writer);
        ASSERT_EQ(map->sections.size(), 3U) << text;
        EXPECT_EQ(map->sections[0].section, ".text.unlikely.with_a_long_name");
        EXPECT_EQ(map->sections[0].output, ".text");
        EXPECT_EQ(map->sections[0].start, 0x401000U);
        EXPECT_EQ(map->sections[0].size, 10U);
        EXPECT_EQ(map->sections[0].object, "a.o");
        EXPECT_EQ(map->sections[1].section, ".text.f");
        EXPECT_EQ(map->sections[1].size, 34U);
        EXPECT_EQ(map->sections[2].object, "/lib/libx.a(g o.o)");
        EXPECT_EQ(map->sections[2].start, 0x401040U);
    }
}

TEST(LinkMap, SaysWhatIsNoMap) {
    const auto map = parse_link_map("hello\n", "x.map");
    ASSERT_FALSE(map);
    EXPECT_EQ(
        map.error().message(),
        "x.map: it is no link map of GNU ld, gold, lld or mold; link with -Wl,-Map=FILE and give that file");
    EXPECT_FALSE(parse_link_map("", "x.map"));
}

TEST(LinkMap, EveryPrefixIsReadOrRefused) {
    for (const std::string text : {kGnu, kGold, kLld, kMold})
        for (std::size_t length = 0; length < text.size(); ++length)
            if (const auto map = parse_link_map(text.substr(0, length), "x.map"); map)
                EXPECT_LE(map->sections.size(), 3U);
}

}  // namespace
}  // namespace tlbscope::layout
