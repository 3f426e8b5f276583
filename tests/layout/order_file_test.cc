#include "layout/order_file.h"

#include <gtest/gtest.h>

#include "worlds.h"

namespace tlbscope::layout {
namespace {

TEST(OrderFile, EveryListIsReadBack) {
    const Image image = testing::image_of_sizes({100, 100, 100, 100});
    for (const FormatInfo& info : formats()) {
        if (info.format == OrderFormat::kLldCallGraph || info.format == OrderFormat::kBoltProfile) continue;
        const Units units(image, info.linker);
        Order order{1, 0};
        const std::string text = written(info.format, {.image = &image,
                                                       .units = &units,
                                                       .graph = nullptr,
                                                       .order = order,
                                                       .branches = {},
                                                       .origin = {.image = "made",
                                                                  .build_id = "ab12",
                                                                  .machine = "lru32",
                                                                  .method = "c3",
                                                                  .recordings = {"a b.rec"},
                                                                  .contents = {"0123456789abcdef"}}});
        const auto file = parse_order(text, "o");
        ASSERT_TRUE(file) << info.name << ": " << file.error().message() << "\n" << text;
        const Matched matched = match(*file, image, units);
        EXPECT_EQ(matched.order, order) << info.name;
        EXPECT_TRUE(matched.missing.empty()) << info.name;
        if (text.starts_with("#") || text.starts_with("/*")) {
            EXPECT_EQ(file->linker, info.linker) << info.name;
            EXPECT_EQ(file->origin.build_id, "ab12") << info.name;
            EXPECT_EQ(file->origin.recordings, std::vector<std::string>{"a b.rec"}) << info.name;
            EXPECT_EQ(file->origin.contents, std::vector<std::string>{"0123456789abcdef"}) << info.name;
        }
    }
}

// The list stands in for all object files of the link: one that it lacks would not be linked at all.
TEST(OrderFile, MoldListsAllObjects) {
    Image image = testing::image_of_sizes({100, 100, 100, 100});
    image.objects = {"/usr/lib/crti.o", "data.o", "o0.o", "libc.a(exit.o)", "/lib/libc.so.6", "o1.o"};
    const Units units(image, Linker::kMold);
    const Order order{1};
    const std::string text = written(
        OrderFormat::kMold,
        {.image = &image, .units = &units, .graph = nullptr, .order = order, .branches = {}, .origin = {}});
    EXPECT_EQ(text, "o1.o\ndata.o\no0.o\n");
    const auto file = parse_order(text, "o");
    ASSERT_TRUE(file);
    EXPECT_EQ(file->linker, Linker::kMold);
    EXPECT_EQ(match(*file, image, units).order, (Order{1, 0}));
    EXPECT_TRUE(match(*file, image, units).missing.empty())
        << "data.o is part of the link, if not of the order";
}

// Data lies in several sections of the program; a line in the wrong one would move zeroed data into the file.
TEST(OrderFile, GnuLdsFileHasABlockForEachSection) {
    Image image = testing::image_of_sizes({100, 100, 100});
    image.outputs[0].name = ".data";
    image.outputs.push_back({.name = ".bss", .start = 0, .end = 0, .align = 1});
    image.pieces[1].output = 1;
    for (int i = 0; i < 3; ++i) image.pieces[i].section = (i == 1 ? ".bss.v" : ".data.v") + std::to_string(i);
    const Units units(image, Linker::kScript);
    const Order order{2, 1, 0};
    const std::string text = written(
        OrderFormat::kLd243,
        {.image = &image, .units = &units, .graph = nullptr, .order = order, .branches = {}, .origin = {}});
    EXPECT_TRUE(text.ends_with(".data :\n{\n  *(.data.v2)\n  *(.data.v0)\n}\n.bss :\n{\n  *(.bss.v1)\n}\n"))
        << text;
}

TEST(OrderFile, FindsThinLtoNamesWhoseHashChanged) {
    Image image = testing::image_of_sizes({100, 100, 100});
    image.pieces[0].symbols = {"f.llvm.111"};
    image.pieces[1].symbols = {"g.llvm.1"};
    image.pieces[2].symbols = {"g.llvm.2"};
    const Units units(image, Linker::kLld);
    const auto file = parse_order("f.llvm.999\ng.llvm.999\ngone\n", "o");
    ASSERT_TRUE(file);
    const Matched matched = match(*file, image, units);
    EXPECT_EQ(matched.order, Order{*units.named("f.llvm.111")});
    EXPECT_EQ(matched.missing, (std::vector<std::string>{"g.llvm.999", "gone"}))
        << "two functions could be meant";
}

TEST(OrderFile, BadOnesAreRefused) {
    for (const char* text : {"", "# nothing\n", "caller callee 12\n", "1 f 0 1 g 0 0 7\n"}) {
        const auto file = parse_order(text, "o");
        EXPECT_FALSE(file) << text;
    }
    EXPECT_FALSE(parse_order(std::string_view("a\0b\n", 4), "o"));
}

TEST(OrderFile, CallGraphsAndProfiles) {
    const Image image = testing::image_of_sizes({100, 100});
    const Units units(image, Linker::kLld);
    Graph graph;
    graph.nodes.resize(2);
    graph.nodes[1].unit = 1;
    graph.edges = {{.from = 0, .to = 1, .offset = 0, .count = 3},
                   {.from = 0, .to = 1, .offset = 16, .count = 4}};
    const Branch branches[] = {{.from = "f0", .from_offset = 0x1c, .to = "f1", .to_offset = 0, .count = 9}};
    const OrderInput input{
        .image = &image, .units = &units, .graph = &graph, .order = {}, .branches = branches, .origin = {}};
    EXPECT_EQ(written(OrderFormat::kLldCallGraph, input), "f0 f1 7\n");
    EXPECT_EQ(written(OrderFormat::kBoltProfile, input), "1 f0 1c 1 f1 0 0 9\n");
}

}  // namespace
}  // namespace tlbscope::layout
