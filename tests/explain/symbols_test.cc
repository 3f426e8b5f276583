// Names from text and tables made by hand: which symbol wins, how far it reaches, what garbage does.
#include "explain/symbols.h"

#include <gtest/gtest.h>

#include "explain/demangle.h"
#include "explain/jit_map.h"
#include "explain/kallsyms.h"

namespace tlbscope::explain {
namespace {

Symbol sized(std::uint64_t start, std::uint64_t size, std::string name, Binding binding = Binding::kGlobal) {
    return {.start = start,
            .size = size,
            .limit = 0x10000,
            .name = std::move(name),
            .binding = binding,
            .function = true};
}

std::string at(const SymbolTable& table, std::uint64_t address) {
    const auto found = table.find(address);
    return found ? table.names()[*found] : "[unknown]";
}

TEST(SymbolTable, NamesOnlyWhatLiesInside) {
    const SymbolTable table({sized(0x100, 0x10, "f"), sized(0x120, 0x10, "g")});
    EXPECT_EQ(at(table, 0xff), "[unknown]");
    EXPECT_EQ(at(table, 0x100), "f");
    EXPECT_EQ(at(table, 0x10f), "f");
    EXPECT_EQ(at(table, 0x110), "[unknown]");
    EXPECT_EQ(at(table, 0x12f), "g");
    EXPECT_EQ(at(table, 0x130), "[unknown]");
    EXPECT_EQ(at(SymbolTable(), 0), "[unknown]");
}

TEST(SymbolTable, AnUnsizedSymbolEndsAtTheNextOrWithItsSection) {
    Symbol last = sized(0x200, 0, "last");
    last.limit = 0x240;
    const SymbolTable table({sized(0x100, 0, "first"), sized(0x180, 8, "next"), last});
    EXPECT_EQ(at(table, 0x17f), "first");
    EXPECT_EQ(at(table, 0x188), "[unknown]");
    EXPECT_EQ(at(table, 0x23f), "last");
    EXPECT_EQ(at(table, 0x240), "[unknown]");
}

TEST(SymbolTable, ALabelWithoutSizeDoesNotHideItsFunction) {
    const SymbolTable table({sized(0x100, 0x80, "function"), sized(0x140, 0, "label")});
    EXPECT_EQ(at(table, 0x150), "function");
}

TEST(SymbolTable, OfTwoThatOverlapTheLaterStartCounts) {
    const SymbolTable table({sized(0x100, 0x100, "outer"), sized(0x140, 0x10, "inner")});
    EXPECT_EQ(at(table, 0x13f), "outer");
    EXPECT_EQ(at(table, 0x140), "inner");
    EXPECT_EQ(at(table, 0x150), "outer");
    EXPECT_EQ(at(table, 0x1ff), "outer");
}

TEST(SymbolTable, AliasesHaveAStatedOrder) {
    const auto best = [](std::vector<Symbol> symbols) { return at(SymbolTable(std::move(symbols)), 0x100); };
    EXPECT_EQ(best({sized(0x100, 8, "local", Binding::kLocal), sized(0x100, 8, "a_global")}), "a_global");
    EXPECT_EQ(best({sized(0x100, 8, "weak", Binding::kWeak), sized(0x100, 8, "a_global")}), "a_global");
    EXPECT_EQ(best({sized(0x100, 8, "__libc_read"), sized(0x100, 8, "__read"), sized(0x100, 8, "read")}),
              "read");
    EXPECT_EQ(best({sized(0x100, 8, "b"), sized(0x100, 8, "a")}), "a");
    EXPECT_EQ(best({sized(0x100, 4, "short"), sized(0x100, 8, "longer")}), "longer");
    EXPECT_EQ(best({sized(0x100, 8, "__entry_text_start"), sized(0x100, 8, "entry", Binding::kLocal)}),
              "entry");
}

TEST(SymbolTable, ToolLabelsAreNoNames) {
    for (const char* name : {"$x", "$d.7", ".L12", ""}) EXPECT_TRUE(is_tool_label(name)) << name;
    for (const char* name : {"x", "_start", ".text_of_mine"}) EXPECT_FALSE(is_tool_label(name)) << name;
}

// A kernel's list with data between functions, init text, a module and per-CPU offsets.
constexpr const char* kKallsyms =
    "0000000000001000 A cpu_tss_rw\n"
    "ffffffff81000000 T _stext\n"
    "ffffffff81000000 T _text\n"
    "ffffffff81000000 T startup_64\n"
    "ffffffff81000100 t do_it\n"
    "ffffffff81000180 T __x64_sys_read\n"
    "ffffffff81000200 T _etext\n"
    "ffffffff81200000 D data\n"
    "ffffffff81300000 T _sinittext\n"
    "ffffffff81300000 t early\n"
    "ffffffff81300100 T _einittext\n"
    "ffffffff81400000 B _end\n"
    "ffffffffa0000000 t mod_read\t[mod]\n"
    "ffffffffa0000080 t mod_write\t[mod]\n"
    "ffffffffa0001000 r table\t[mod]\n";

TEST(Kallsyms, FunctionsReachToTheNextAndNotOutOfTheText) {
    const KernelSymbols symbols = parse_kallsyms(kKallsyms);
    const SymbolTable kernel(symbols.kernel);
    EXPECT_EQ(at(kernel, 0xffffffff81000000), "startup_64");
    EXPECT_EQ(at(kernel, 0xffffffff8100017f), "do_it");
    EXPECT_EQ(at(kernel, 0xffffffff810001ff), "__x64_sys_read");
    EXPECT_EQ(at(kernel, 0xffffffff81000200), "[unknown]");
    EXPECT_EQ(at(kernel, 0xffffffff81200000), "[unknown]");
    EXPECT_EQ(at(kernel, 0xffffffff813000ff), "early");
    EXPECT_EQ(at(kernel, 0xffffffff81300100), "[unknown]");
    EXPECT_EQ(at(kernel, 0x1000), "[unknown]");
    EXPECT_EQ(symbols.image.start, 0xffffffff81000000);
    EXPECT_EQ(symbols.image.end, 0xffffffff81400000);
    ASSERT_EQ(symbols.modules.size(), 1U);
    EXPECT_EQ(symbols.modules[0].name, "mod");
    const SymbolTable module(symbols.modules[0].symbols);
    EXPECT_EQ(at(module, 0xffffffffa000007f), "mod_read");
    EXPECT_EQ(at(module, 0xffffffffa0000fff), "mod_write");
    EXPECT_EQ(at(module, 0xffffffffa0001000), "[unknown]");
}

TEST(Kallsyms, HiddenAddressesAndGarbageAreTold) {
    EXPECT_TRUE(parse_kallsyms("0000000000000000 T _stext\n0000000000000000 T sys_read\n").hidden);
    const KernelSymbols symbols = parse_kallsyms(std::string("not a line\n\n") + kKallsyms + "zz T x\n");
    EXPECT_EQ(symbols.unreadable_lines, 2U);
    EXPECT_FALSE(symbols.kernel.empty());
    EXPECT_TRUE(parse_kallsyms("").kernel.empty());
}

// A text without a trailing newline, cut anywhere, is read or partly read, never trusted beyond its end.
TEST(Kallsyms, EveryPrefixIsReadable) {
    const std::string text = kKallsyms;
    for (std::size_t n = 0; n <= text.size(); ++n)
        EXPECT_LE(parse_kallsyms(std::string_view(text).substr(0, n)).kernel.size(), 8U);
}

TEST(JitMap, TheLaterOfTwoThatOverlapCounts) {
    const JitMap map =
        parse_jit_map("7f0000001000 100 old one\n7f0000001040 40 new\n0x7f0000002000 0x10 hex\n");
    EXPECT_EQ(map.unreadable_lines, 0U);
    const SymbolTable table(map.symbols);
    EXPECT_EQ(at(table, 0x7f000000103f), "old one");
    EXPECT_EQ(at(table, 0x7f0000001040), "new");
    EXPECT_EQ(at(table, 0x7f0000001080), "old one");
    EXPECT_EQ(at(table, 0x7f0000001100), "[unknown]");
    EXPECT_EQ(at(table, 0x7f000000200f), "hex");
}

TEST(JitMap, GarbageIsCountedAndTheRestWorks) {
    const JitMap map = parse_jit_map(
        "7f0000001000 10 good\ngarbage\n7f0000002000 0 empty\nffffffffffffffff 10 wraps\n7f0000003000 10\n"
        "7f0000003000 10 \x01\x02\n7f0000004000 10 lambda (x) [y]\n");
    EXPECT_EQ(map.unreadable_lines, 5U);
    EXPECT_EQ(map.first_unreadable, 2U);
    const SymbolTable table(map.symbols);
    EXPECT_EQ(at(table, 0x7f0000001000), "good");
    EXPECT_EQ(at(table, 0x7f0000004000), "lambda (x) [y]");
}

TEST(Demangle, CppAndRustAndNothingElse) {
    EXPECT_EQ(demangled("_ZNSt6vectorIiSaIiEE9push_backEOi"),
              "std::vector<int, std::allocator<int> >::push_back(int&&)");
    EXPECT_EQ(demangled("_ZN4core3fmt9Formatter9write_str17h0123456789abcdefE"),
              "core::fmt::Formatter::write_str");
    EXPECT_EQ(demangled("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
    EXPECT_EQ(demangled("_Znwm@plt"), "operator new(unsigned long)@plt");
    EXPECT_EQ(demangled("sys_read"), "sys_read");
    EXPECT_EQ(demangled("_Znot_mangled"), "_Znot_mangled");
}

}  // namespace
}  // namespace tlbscope::explain
