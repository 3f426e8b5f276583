// What a machine file may say, and where each complaint points.
#include "machine/machine_file.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "core/files.h"

namespace tlbscope::machine {
namespace {

std::string shipped(const std::string& name) {
    return *read_text(std::filesystem::path(MACHINES) / (name + ".toml"));
}

// The file with the first `from` replaced, which must be there.
std::string edited(const std::string& from, const std::string& to, const std::string& name = "mpc855t") {
    std::string text = shipped(name);
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
}

// "LINE:COLUMN" of a piece of the file, as an editor counts.
std::string position_of(const std::string& text, const std::string& piece) {
    const auto at = text.find(piece);
    EXPECT_NE(at, std::string::npos) << piece;
    const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
    const auto start = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
    return std::to_string(line) + ":" + std::to_string(at - start + 1);
}

std::string complaint(const std::string& text, const std::vector<std::string>& changes = {}) {
    const auto machine = parse_machine(text, "m.toml", changes);
    return machine ? "no complaint" : machine.error().message();
}

TEST(MachineFile, Mpc855tIsWhatTheManualsSay) {
    const auto machine = parse_machine(shipped("mpc855t"), "m.toml");
    ASSERT_TRUE(machine) << machine.error().message();
    EXPECT_EQ(machine->name, "mpc855t");
    EXPECT_EQ(machine->address_bits, 32u);
    EXPECT_EQ(machine->clock.hertz, 48e6);
    EXPECT_EQ(machine->asids.count, 16u);
    EXPECT_EQ(machine->refill.cycles, Cycles(23));
    EXPECT_EQ(machine->pages.sizes,
              (std::vector{PageShift(12), PageShift(14), PageShift(19), PageShift(23)}));
    EXPECT_EQ(machine->pages.base, PageShift(12));
    const TlbGeometry wanted{
        .entries = 32, .ways = 32, .reserved = 0, .replacement = Replacement::kFifoDown, .seed = 1};
    EXPECT_EQ(machine->tlb(Kind::kInstruction).geometry, wanted);
    EXPECT_EQ(machine->tlb(Kind::kData).geometry, wanted);
}

TEST(MachineFile, EveryShippedMachineLoadsUnderItsOwnNameWithItsSources) {
    ASSERT_EQ(setenv("TLBSCOPE_MACHINES", MACHINES, 1), 0);
    const auto names = machine_names();
    for (const char* wanted :
         {"mpc855t", "mpc801", "mpc823", "mpc850", "ultrasparc1", "e500v2", "ppc440", "power9", "pentium2",
          "skylake", "golden-cove", "zen2", "zen4", "cortex-a72", "neoverse-n1", "apple-m1", "lru32"})
        EXPECT_NE(std::find(names.begin(), names.end(), wanted), names.end()) << wanted;
    for (const std::string& name : names) {
        SCOPED_TRACE(name);
        const auto machine = load_machine(name);
        ASSERT_TRUE(machine) << machine.error().message();
        EXPECT_EQ(machine->name, name);
        // Every table of every file says where it comes from; a lookup of the text, as the parser asks only
        // for the tables that it knows.
        const std::string text = shipped(name);
        std::size_t tables = 0;
        std::size_t sources = 0;
        for (std::size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
            tables += text[at] == '[' ? 1 : 0;
            sources += text.compare(at, 10, "source = \"") == 0 ? 1 : 0;
        }
        EXPECT_EQ(sources, tables + 1);
    }
}

TEST(MachineFile, SecondLevelsAndArraysByPageSizeAreRead) {
    const Machine machine = parse_machine(shipped("skylake"), "m.toml").value();
    ASSERT_EQ(machine.tlbs.size(), 7u);
    EXPECT_EQ(machine.levels(), 2u);
    EXPECT_EQ(machine.tlb(Kind::kInstruction).geometry.entries, 128u);
    const TlbDescription& second = machine.tlbs[5];
    EXPECT_EQ(second.name, "second");
    EXPECT_TRUE(second.instruction && second.data && !second.inclusive);
    EXPECT_EQ(second.pages, (std::vector{PageShift(12), PageShift(21)}));
    EXPECT_EQ(second.geometry.sets(), 128u);
    EXPECT_EQ(second.hit, Cycles(9));
    EXPECT_EQ(machine.mapping().text(), "4K; kernel-linear=2M, kernel-text=2M, kernel-vmemmap=2M");
    EXPECT_TRUE(machine.invalidation.all_spares_global);
    EXPECT_TRUE(parse_machine(shipped("e500v2"), "m.toml").value().tlbs.back().inclusive);
    EXPECT_TRUE(parse_machine(shipped("ppc440"), "m.toml").value().rules.at(0).pinned);
}

TEST(MachineFile, TheManualsExamplesLoad) {
    const std::string manual = *read_text(MANUAL);
    std::vector<Machine> machines;
    for (std::size_t start = manual.find("```toml\n"); start != std::string::npos;
         start = manual.find("```toml\n", start)) {
        start += 8;
        const auto machine = parse_machine(manual.substr(start, manual.find("```", start) - start), "m.toml");
        ASSERT_TRUE(machine) << machine.error().message();
        machines.push_back(*machine);
    }
    ASSERT_EQ(machines.size(), 2u);
    EXPECT_EQ(machines[0].tlb(Kind::kData).geometry.sets(), 32u);
    EXPECT_EQ(machines[1].levels(), 2u);
    EXPECT_TRUE(machines[1].tlbs.back().inclusive);
    EXPECT_EQ(machines[1].tlb(Kind::kInstruction).geometry.replacement, Replacement::kNru);
    EXPECT_FALSE(machines[1].rules.empty());
}

TEST(MachineFile, AMisspeltKeyIsNamedWithTheRightOne) {
    const std::string text = edited("entries = 32", "entires = 32");
    EXPECT_EQ(complaint(text),
              "m.toml:" + position_of(text, "entires") +
                  ": unknown key tlb.instruction.entires; did you mean tlb.instruction.entries?");
    const std::string section = edited("[tlb.data]", "[tlb.dta]");
    EXPECT_EQ(complaint(section),
              "m.toml:" + position_of(section, "dta]") + ": unknown key tlb.dta; did you mean tlb.data?");
    const std::string top = edited("address_bits", "width");
    EXPECT_EQ(
        complaint(top),
        "m.toml:" + position_of(top, "width") +
            ": unknown key width; known keys are name, title, source, address_bits, clock, "
            "pages, asid, tlb, refill, mapping, invalidation, walk, data_cache, instruction_cache, flush");
}

TEST(MachineFile, AWrongTypeIsNamed) {
    const std::string text = edited("entries = 32", "entries = \"32\"");
    EXPECT_EQ(complaint(text),
              "m.toml:" + position_of(text, "\"32\"") +
                  ": tlb.instruction.entries is text, not a whole number; give a whole number");
    const std::string table = edited("[asid]\ncount = 16", "[asid]\ncount = [16]");
    EXPECT_EQ(complaint(table), "m.toml:" + position_of(table, "[16]") +
                                    ": asid.count is a list, not a whole number; give a whole number");
}

TEST(MachineFile, AnImpossibleGeometryIsRefused) {
    const auto why = [](const std::string& from, const std::string& to) {
        const std::string text = complaint(edited(from, to));
        return text.substr(text.find(": ") + 2);
    };
    EXPECT_EQ(why("entries = 32", "entries = 0"),
              "tlb.instruction.entries is 0; give a number from 1 to 1048576");
    EXPECT_EQ(why("entries = 32", "entries = -4"),
              "tlb.instruction.entries is -4; give a number from 1 to 1048576");
    EXPECT_EQ(why("ways = \"full\"", "ways = 64"),
              "tlb.instruction.ways is 64, more than the 32 entries; give at most that many, or \"full\"");
    EXPECT_EQ(why("ways = \"full\"", "ways = 5"),
              "32 entries do not divide into sets of 5 ways; make the entries a multiple of the ways");
    EXPECT_EQ(
        why("ways = \"full\"", "ways = \"half\""),
        "tlb.instruction.ways is text, not a whole number or \"full\"; give a whole number or \"full\"");
    EXPECT_EQ(why("reserved = 0", "reserved = 32"),
              "tlb.instruction.reserved is 32 of 32 entries, which leaves none to reload; reserve fewer");
    EXPECT_EQ(why("ways = \"full\"\nreserved = 0", "ways = 4\nreserved = 2"),
              "only a fully associative TLB can reserve entries; set ways to \"full\"");
    EXPECT_EQ(why("base = \"4K\"", "base = \"64K\""),
              "pages.base is 64K, which is not among pages.sizes; choose one of them or add it");
    EXPECT_EQ(why("base = \"4K\"", "base = \"3K\""),
              "pages.base is no page size: \"3K\"; give a power of two from 4K up, such as \"4K\" or \"8M\"");
    EXPECT_EQ(why("replacement = \"fifo-down\"", "replacement = \"fifo-dwon\""),
              "tlb.instruction.replacement is \"fifo-dwon\"; did you mean fifo-down?");
    EXPECT_EQ(why("replacement = \"fifo-down\"", "replacement = \"plru\""),
              "tlb.instruction.replacement is \"plru\"; did you mean lru?");
}

// What was changed stands for where the complaint must point.
struct Refused {
    std::string machine;
    std::string from;
    std::string to;
    std::string at;
    std::string message;
};

TEST(MachineFile, AnImpossibleArrangementIsRefusedAtItsLine) {
    const Refused all[] = {
        {"cortex-a72", "hit = 7\n", "", "[tlb.second]",
         "tlb.second.hit is missing; add it; see docs/machine-file.md"},
        {"cortex-a72", "entries = 48", "entries = 48\nhit = 1", "1\nways",
         "a hit in the first level costs nothing extra; leave it out"},
        {"cortex-a72", "level = 2", "level = 3", "[tlb.second]",
         "tlb.second is of level 3 and there is none of level 2; number the levels from 1"},
        {"cortex-a72", "level = 2", "level = 4", "4\nentries = 1024",
         "tlb.second.level is 4; give a number from 1 to 3"},
        {"cortex-a72", "level = 2", "levle = 2", "levle",
         "unknown key tlb.second.levle; did you mean tlb.second.level?"},
        {"cortex-a72", "serves = \"both\"\n", "", "[tlb.second]",
         "tlb.second.serves is missing; add it; see docs/machine-file.md"},
        {"cortex-a72", "serves = \"both\"", "serves = \"all\"", "\"all\"",
         "tlb.second.serves is \"all\"; give \"instruction\", \"data\" or \"both\""},
        {"cortex-a72", "pages = [\"4K\", \"64K\", \"1M\"]", "pages = [\"8K\"]", "[\"8K\"]",
         "8K is not among pages.sizes; add it there, or leave it out here"},
        {"cortex-a72", "pages = [\"4K\", \"64K\", \"1M\"]", "pages = []", "[]",
         "tlb.instruction.pages is empty; list sizes, or leave it out for all of pages.sizes"},
        {"cortex-a72", "pages = [\"4K\", \"64K\", \"1M\"]", "pages = [\"64K\", \"1M\"]", "[tlb.instruction]",
         "no first-level array holds 4K pages for instruction references; add the size, or a smaller one, to "
         "the pages of an array"},
        {"skylake", "serves = \"data\"\npages = [\"2M\"]", "serves = \"data\"\npages = [\"4K\", \"2M\"]",
         "[tlb.data-2m]",
         "two arrays of level 1 hold 4K pages for data references; list each size in one array's pages only"},
        {"skylake", "entries = 64\nways = 4", "entries = 63\nways = 3",
         "\"tree-plru\"\nsource = \"4K pages: 64",
         "a tree over 3 ways, 0 of them reserved, does not come out even; tree-plru needs 1, 2, 4 ... 64 "
         "ways "
         "and none reserved; \"lru\" or \"nru\" take any"},
        {"skylake", "entries = 1536\nways = 12", "entries = 1536\nways = 11", "11\n",
         "1536 entries do not divide into sets of 11 ways; make the entries a multiple of the ways"},
        {"skylake", "entries = 64\n", "entries = 64\ninclusive = true\n", "true\nways",
         "the first level has no level before it to include; leave it out"},
        {"skylake", "hit = 9", "hit = 9\ninclusive = 1", "1\nsource",
         "tlb.second.inclusive is a whole number, not true or false; give true or false"},
        {"skylake", "[tlb.data]\npages", "[tlb.dta]\npages", "dta]",
         "unknown key tlb.dta; did you mean tlb.data?"},
        {"ppc440", "serves = \"both\"", "serves = \"data\"", "[tlb.unified]",
         "no first-level array serves instruction references; add a table [tlb.instruction]"},
    };
    for (const Refused& one : all) {
        const std::string text = edited(one.from, one.to, one.machine);
        EXPECT_EQ(complaint(text), "m.toml:" + position_of(text, one.at) + ": " + one.message) << one.to;
    }
}

TEST(MachineFile, AWrongMappingOrRuleIsRefusedAtItsLine) {
    const Refused all[] = {
        {"skylake", "kernel-linear=2M", "kernel-liner=2M", "[\"kernel-liner",
         "mapping rule \"kernel-liner=2M\": there is no region kernel-liner; did you mean kernel-linear?"},
        {"skylake", "\"kernel-linear=2M\"", "\"kernel-linear\"", "[\"kernel-linear",
         "mapping rule \"kernel-linear\": it has no =SIZE; write REGION=SIZE or 0xSTART-0xEND=SIZE, such as "
         "kernel-linear=8M"},
        {"skylake", "\"kernel-linear=2M\"", "\"kernel-linear=3M\"", "[\"kernel-linear",
         "mapping rule \"kernel-linear=3M\": \"3M\" is no page size; give a power of two from 4K up, such as "
         "64K or 8M"},
        {"skylake", "\"kernel-linear=2M\"", "\"0x2000-0x1000=2M\"", "[\"0x2000",
         "mapping rule \"0x2000-0x1000=2M\": the range is empty; give the end behind the start"},
        {"ppc440", "pin = [\"0xc0000000:256M\"]", "pin = [\"0xc0000000=256M\"]", "[\"0xc0000000",
         "mapping rule \"0xc0000000=256M\": it has no :SIZE; write REGION:SIZE or 0xADDRESS:SIZE, such as "
         "kernel-text:8M"},
        {"ppc440", "pin = [", "pni = [", "pni", "unknown key mapping.pni; did you mean mapping.pin?"},
        {"ppc440", "all_clears_index = false", "all_clears_index = 0",
         "0\nsource = \"Linux 6.1 arch/powerpc/mm/nohash/tlb_low",
         "invalidation.all_clears_index is a whole number, not true or false; give true or false"},
        {"ppc440", "page_kills_reserved", "page_kills_pinned", "page_kills_pinned",
         "unknown key invalidation.page_kills_pinned; invalidation has page_matches_any_asid, "
         "page_kills_reserved, all_spares_reserved, all_spares_global, all_clears_index, "
         "reload_kills_overlapping, source"},
    };
    for (const Refused& one : all) {
        const std::string text = edited(one.from, one.to, one.machine);
        EXPECT_EQ(complaint(text), "m.toml:" + position_of(text, one.at) + ": " + one.message) << one.to;
    }
}

TEST(MachineFile, EveryGroupOfFactsNeedsASource) {
    std::string text = shipped("mpc855t");
    const auto at = text.find("source", text.find("[asid]"));
    text.erase(at, text.find('\n', at) - at);
    EXPECT_EQ(complaint(text),
              "m.toml:" + position_of(text, "[asid]") +
                  ": asid has no source; say where these facts come from: source = \"manual, section\"");
    for (const std::string& table :
         {std::string("mapping"), std::string("invalidation"), std::string("tlb.unified")}) {
        std::string other = shipped("ppc440");
        const auto from = other.find("\nsource", other.find("[" + table + "]")) + 1;
        other.erase(from, other.find('\n', from) - from);
        EXPECT_EQ(complaint(other),
                  "m.toml:" + position_of(other, "[" + table + "]") + ": " + table +
                      " has no source; say where these facts come from: source = \"manual, section\"");
    }
    const std::string empty = edited("source = \"as the instruction TLB, with MD_CTR\"", "source = \" \"");
    EXPECT_EQ(complaint(empty), "m.toml:" + position_of(empty, "\" \"") +
                                    ": tlb.data.source is empty; say where these facts come from");
}

TEST(MachineFile, AMissingKeyOrTableIsNamed) {
    const std::string text = edited("cycles = 23\n", "");
    EXPECT_EQ(complaint(text), "m.toml:" + position_of(text, "[refill]") +
                                   ": refill.cycles is missing; add it; see docs/machine-file.md");
    EXPECT_EQ(complaint(""), "m.toml:1:1: name is missing; add it; see docs/machine-file.md");
}

TEST(MachineFile, TextThatIsNoTomlIsRefusedAtItsLine) {
    const std::string text = complaint("name = \"x\"\nentries == 3\n");
    EXPECT_EQ(text.substr(0, 11), "m.toml:2:10") << text;
}

TEST(MachineFile, SetChangesWhatTheFileSays) {
    const auto machine =
        parse_machine(shipped("mpc855t"), "m.toml",
                      {"tlb.instruction.entries=64", "tlb.data.replacement=lru", "tlb.data.ways=4",
                       "pages.base=16K", "refill.cycles=113", "tlb.instruction.seed=9"});
    ASSERT_TRUE(machine) << machine.error().message();
    EXPECT_EQ(machine->tlb(Kind::kInstruction).geometry.entries, 64u);
    EXPECT_EQ(machine->tlb(Kind::kInstruction).geometry.ways, 64u);  // "full" follows
    EXPECT_EQ(machine->tlb(Kind::kInstruction).geometry.seed, 9u);
    EXPECT_EQ(machine->tlb(Kind::kData).geometry.replacement, Replacement::kLru);
    EXPECT_EQ(machine->tlb(Kind::kData).geometry.sets(), 8u);
    EXPECT_EQ(machine->pages.base, PageShift(14));
    EXPECT_EQ(machine->refill.cycles, Cycles(113));
    EXPECT_EQ(machine->changes.size(), 6u);
}

TEST(MachineFile, AWrongSetIsNamedAndIsTheCommandLinesFault) {
    const std::string text = shipped("mpc855t");
    const auto why = [&](const std::string& change) {
        const auto machine = parse_machine(text, "m.toml", {change});
        EXPECT_FALSE(machine);
        EXPECT_EQ(machine.error().error_class, ErrorClass::kUsage);
        return machine.error().message();
    };
    EXPECT_EQ(why("tlb.data.entries=0"),
              "--set tlb.data.entries=0: tlb.data.entries is 0; give a number from 1 to 1048576");
    EXPECT_EQ(why("tlb.data.entires=8"),
              "--set tlb.data.entires=8: unknown key tlb.data.entires; did you mean tlb.data.entries?");
    EXPECT_EQ(why("tlb.dat.entries=8"),
              "--set tlb.dat.entries=8: unknown key tlb.dat; did you mean tlb.data?");
    EXPECT_EQ(
        why("tlb.data.ways=5"),
        "--set tlb.data.ways=5: 32 entries do not divide into sets of 5 ways; make the entries a multiple of "
        "the ways");
    EXPECT_EQ(why("name.x=1"), "--set name.x=1: name is a value and has no keys; --set name=VALUE");
    EXPECT_EQ(why("tlb=1"), "--set tlb=1: tlb is a whole number, not a table; give a table");
    EXPECT_EQ(why("entries"), "--set entries: this is not key=value; for example --set tlb.data.entries=64");
    EXPECT_EQ(why("=3"), "--set =3: this is not key=value; for example --set tlb.data.entries=64");
}

TEST(MachineFile, AnUnknownNameSuggestsAKnownOne) {
    ASSERT_EQ(setenv("TLBSCOPE_MACHINES", MACHINES, 1), 0);
    const auto machine = load_machine("mpc855tt");
    ASSERT_FALSE(machine);
    EXPECT_EQ(machine.error().message(), "there is no machine mpc855tt; did you mean mpc855t?");
    EXPECT_EQ(load_machine("./none.toml").error().message(),
              "./none.toml: cannot open: No such file or directory; check the name");
}

}  // namespace
}  // namespace tlbscope::machine
