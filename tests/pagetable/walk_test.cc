// Walks of tables written by hand, bit by bit from each format's description and without its encoder: per
// format a page of each size, an address that is not mapped, and an entry that means nothing.
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <set>

#include "pagetable/arena.h"
#include "pagetable/tree.h"
#include "pagetable/walk.h"

namespace tlbscope::pagetable {
namespace {

// Memory that holds just the words a test wrote; bytes are laid down one by one.
class Words : public Memory {
  public:
    void little(std::uint64_t at, std::uint64_t value, unsigned bytes = 8) {
        for (unsigned n = 0; n < bytes; ++n) bytes_[at + n] = static_cast<std::uint8_t>(value >> (8 * n));
    }
    void big(std::uint64_t at, std::uint64_t value, unsigned bytes = 8) {
        for (unsigned n = 0; n < bytes; ++n)
            bytes_[at + n] = static_cast<std::uint8_t>(value >> (8 * (bytes - 1 - n)));
    }
    // A frame of zeroes, where nothing else was written.
    void zero(std::uint64_t at, std::uint64_t bytes = 4096) { zeroes_[at] = bytes; }

    bool load(PhysAddr at, void* into, unsigned bytes) const override {
        auto* out = static_cast<std::uint8_t*>(into);
        for (unsigned n = 0; n < bytes; ++n) {
            const auto byte = bytes_.find(at.value() + n);
            if (byte != bytes_.end()) {
                out[n] = byte->second;
                continue;
            }
            auto frame = zeroes_.upper_bound(at.value() + n);
            if (frame == zeroes_.begin()) return false;
            --frame;
            if (at.value() + n >= frame->first + frame->second) return false;
            out[n] = 0;
        }
        return true;
    }
    bool store(PhysAddr, const void*, unsigned) override { return false; }

  private:
    std::map<std::uint64_t, std::uint8_t> bytes_;
    std::map<std::uint64_t, std::uint64_t> zeroes_;
};

void expect_page(const Format& format, const Memory& memory, std::uint64_t root, std::uint64_t address,
                 std::uint64_t physical, std::uint64_t size, Flags flags, std::size_t steps) {
    const Walk found = walk(format, memory, PhysAddr(root), VirtAddr(address));
    ASSERT_EQ(found.outcome, Outcome::kMapped)
        << format.name << " " << name_of(found.outcome) << (found.why == nullptr ? "" : found.why);
    EXPECT_EQ(found.physical(address).value(), physical) << format.name;
    EXPECT_EQ(found.page().size.bytes(), size) << format.name;
    EXPECT_EQ(flags_text(found.page().flags), flags_text(flags)) << format.name;
    EXPECT_EQ(found.count, steps) << format.name;
    std::array<PhysAddr, kMostSteps> addresses;
    ASSERT_EQ(entry_addresses(format, memory, PhysAddr(root), VirtAddr(address), addresses), steps);
    for (std::size_t step = 0; step < steps; ++step)
        EXPECT_EQ(addresses[step], found.path[step].entry_address) << format.name;
}

void expect_none(const Format& format, const Memory& memory, std::uint64_t root, std::uint64_t address,
                 Outcome outcome, std::size_t steps, std::string_view why = {}) {
    const Walk found = walk(format, memory, PhysAddr(root), VirtAddr(address));
    EXPECT_EQ(name_of(found.outcome), name_of(outcome)) << format.name;
    EXPECT_EQ(found.count, steps) << format.name;
    if (!why.empty()) {
        EXPECT_EQ(std::string_view(found.why == nullptr ? "" : found.why), why) << format.name;
    }
}

// 0xc0009e00: first-level index 0x300, second 0x009. The table at 0x5000 stands in the entry as 0xc0005000.
TEST(Walk, Mpc8xxLinux24) {
    Words memory;
    memory.zero(0x4000);
    memory.zero(0x5000);
    memory.big(0x4000 + 0x300 * 4, 0xc0005000, 4);
    memory.big(0x5000 + 0x009 * 4, 0x00123000 | 0x001 | 0x004 | 0x008 | 0x080, 4);
    memory.big(0x4000 + 0x301 * 4, 0xc0005001, 4);
    memory.big(0x4000 + 0x302 * 4, 0x00005000, 4);
    const Format& format = kMpc8xxLinux24;
    expect_page(format, memory, 0x4000, 0xc0009e01, 0x00123e01, 4096, kRead | kExecute | kGlobal | kAccessed,
                2);
    expect_none(format, memory, 0x4000, 0xc000a000, Outcome::kNotPresent, 2);
    expect_none(format, memory, 0x4000, 0x10000000, Outcome::kNotPresent, 1);
    expect_none(format, memory, 0x4000, 0xc0400000, Outcome::kMalformed, 1,
                "a 2.4 first-level entry has no flags, and this has some");
    expect_none(format, memory, 0x4000, 0xc0800000, Outcome::kMalformed, 1,
                "the table's virtual address lies below KERNELBASE");
    expect_none(format, memory, 0x4000, 0x1'0000'0000, Outcome::kNotCanonical, 0);
    expect_none(format, memory, 0x9000, 0xc0009e01, Outcome::kNoMemory, 1);
}

TEST(Walk, Mpc8xxLinux26) {
    Words memory;
    for (const std::uint64_t frame : {0x4000, 0x5000, 0x6000, 0x7000}) memory.zero(frame);
    memory.big(0x4000 + 0x040 * 4, 0x00005001, 4);  // 0x10000000: 4K pages
    memory.big(0x5000 + 0x3ff * 4, 0x0abcd000 | 0x801 | 0x040 | 0x020 | 0x100 | 0x080, 4);
    memory.big(0x4000 + 0x300 * 4, 0x00006001 | 0xc, 4);  // 0xc0000000: two equal entries, one page of 8M
    memory.big(0x4000 + 0x301 * 4, 0x00006001 | 0xc, 4);
    memory.big(0x6000, 0x00800000 | 0x001 | 0x004 | 0x040, 4);
    memory.big(0x4000 + 0x3fc * 4, 0x00007001 | 0x4, 4);  // 0xff000000: pages of 512K, the third of the eight
    memory.big(0x7000 + 2 * 4, 0xff080000 | 0x001 | 0x002 | 0x040, 4);
    memory.big(0x7000 + 3 * 4, 0xff0c1000 | 0x001, 4);
    memory.big(0x4000 + 0x050 * 4, 0x00005001 | 0x8, 4);
    const Format& format = kMpc8xxLinux26;
    expect_page(format, memory, 0x4000, 0x103ff123, 0x0abcd123, 4096,
                kRead | kWrite | kUser | kAccessed | kDirty, 2);
    expect_page(format, memory, 0x4000, 0xc0012345, 0x00812345, 8 << 20, kRead | kWrite | kGlobal, 2);
    expect_page(format, memory, 0x4000, 0xc0712345, 0x00f12345, 8 << 20, kRead | kWrite | kGlobal, 2);
    expect_page(format, memory, 0x4000, 0xff1654a1, 0xff0e54a1, 512 << 10, kRead | kWrite | kUncached, 2);
    expect_none(format, memory, 0x4000, 0x103fe000, Outcome::kNotPresent, 2);
    expect_none(format, memory, 0x4000, 0x20000000, Outcome::kNotPresent, 1);
    expect_none(format, memory, 0x4000, 0x14000000, Outcome::kMalformed, 1, "page size 10 is reserved");
    expect_none(format, memory, 0x4000, 0xff180000, Outcome::kMalformed, 2,
                "the frame is not aligned to the page's size");
}

TEST(Walk, Mpc8xxToday) {
    Words memory;
    for (const std::uint64_t frame : {0x4000, 0x5000, 0x6000}) memory.zero(frame);
    memory.big(0x4000 + 0x040 * 4, 0x00005001 | 0x20, 4);
    memory.big(0x5000 + 0 * 4, 0x00345000 | 0x001 | 0x600 | 0x040 | 0x080, 4);
    for (unsigned n = 4; n < 8; ++n) memory.big(0x5000 + n * 4, 0x00778000 | 0x001 | 0x008 | 0x100, 4);
    for (unsigned n = 128; n < 256; ++n)
        memory.big(0x5000 + n * 4, 0x00680000 | 0x001 | 0x008 | 0x800 | 0x004, 4);
    memory.big(0x5000 + 8 * 4, 0x00779000 | 0x001 | 0x008, 4);
    memory.big(0x5000 + 9 * 4, 0x00779000 | 0x001 | 0x400, 4);
    memory.big(0x4000 + 0x200 * 4, 0x00006001 | 0xc, 4);
    memory.big(0x4000 + 0x201 * 4, 0x00006001 | 0xc, 4);
    memory.big(0x6000, 0x01000000 | 0x001 | 0x004 | 0x808 | 0x040, 4);
    memory.big(0x4000 + 0x041 * 4, 0x00005001 | 0x4, 4);
    const Format& format = kMpc8xx;
    expect_page(format, memory, 0x4000, 0x10000fff, 0x00345fff, 4096, kRead | kExecute | kUser | kAccessed,
                2);
    expect_page(format, memory, 0x4000, 0x10006001, 0x0077a001, 16 << 10, kRead | kWrite | kUser | kDirty, 2);
    expect_page(format, memory, 0x4000, 0x100f0000, 0x006f0000, 512 << 10, kRead | kWrite | kGlobal, 2);
    expect_page(format, memory, 0x4000, 0x80654321, 0x01654321, 8 << 20, kRead | kWrite | kExecute | kGlobal,
                2);
    expect_none(format, memory, 0x4000, 0x10001000, Outcome::kNotPresent, 2);
    expect_none(format, memory, 0x4000, 0x10008000, Outcome::kMalformed, 2,
                "the frame is not aligned to the page's size");
    expect_none(format, memory, 0x4000, 0x10009000, Outcome::kMalformed, 2,
                "access rights 0x400 are reserved");
    expect_none(format, memory, 0x4000, 0x10400000, Outcome::kMalformed, 1,
                "page size 512K, which today's kernels keep in the page");
}

// One layout, three ways to say where the next table is. 0x00000001_81802000 / 8K: pgd 0, pmd 0x303 (8M
// each), pte 1.
void sparc64_tables(Words& memory, unsigned shift, unsigned upper) {
    memory.zero(0x10000, 0x2000);
    memory.zero(0x12000, 0x4000);
    memory.zero(0x16000, 0x2000);
    memory.big(0x10000, 0x12000 >> shift, upper);
    memory.big(0x12000 + 0x303 * upper, 0x16000 >> shift, upper);
    const std::uint64_t valid = 0x8000000000000000;
    memory.big(0x16000 + 1 * 8, valid | 0x1f00000000 | 0x2000 | 0x80 | 0x200 | 0x100 | 0x400 | 0x30);
    for (std::uint64_t n = 8; n < 16; ++n)
        memory.big(0x16000 + n * 8, valid | (1ULL << 61) | 0x50000 | 0x280 | 0x30);
    for (std::uint64_t n = 64; n < 128; ++n)
        memory.big(0x16000 + n * 8, valid | (2ULL << 61) | 0x980000 | 0x280 | 0x34 | 0x1);
    for (std::uint64_t n = 512; n < 1024; ++n)
        memory.big(0x16000 + n * 8, valid | (3ULL << 61) | 0x1400000 | 0x280 | 0x08);
    memory.big(0x16000 + 2 * 8, valid | 0x4000 | 0x280 | 0x2);
    memory.big(0x16000 + 3 * 8, valid | (1ULL << 61) | 0x2000 | 0x280);
}

TEST(Walk, Sparc64) {
    struct Case {
        const Format* format;
        unsigned shift;
        unsigned upper;
    };
    for (const auto& [format, shift, upper] :
         {Case{&kSparc64Wide, 0, 8}, Case{&kSparc64Linux22, 0, 4}, Case{&kSparc64, 11, 4}}) {
        Words memory;
        sparc64_tables(memory, shift, upper);
        const std::uint64_t base = std::uint64_t{0x303} << 23;
        expect_page(*format, memory, 0x10000, base + 0x2123, 0x1f00002123, 8 << 10,
                    kRead | kWrite | kExecute | kUser | kAccessed, 3);
        expect_page(*format, memory, 0x10000, base + 0x1abcd, 0x5abcd, 64 << 10, kRead | kExecute | kUser, 3);
        expect_page(*format, memory, 0x10000, base + 0xfffff, 0x9fffff, 512 << 10, kRead | kExecute | kGlobal,
                    3);
        expect_page(*format, memory, 0x10000, base + 0x4000000 / 16 + 0x200000, 0x1400000 + 0x200000, 4 << 20,
                    kRead | kExecute | kUser | kUncached, 3);
        expect_none(*format, memory, 0x10000, base, Outcome::kNotPresent, 3);
        expect_none(*format, memory, 0x10000, 0, Outcome::kNotPresent, 2);
        expect_none(*format, memory, 0x10000, std::uint64_t{5} << 34, Outcome::kNotPresent, 1);
        expect_none(*format, memory, 0x10000, base + 0x4000, Outcome::kMalformed, 3,
                    "the hardware may write where Linux says nobody may");
        expect_none(*format, memory, 0x10000, base + 0x6000, Outcome::kMalformed, 3,
                    "the frame is not aligned to the page's size");
        expect_none(*format, memory, 0x10000, std::uint64_t{1} << 43, Outcome::kNotCanonical, 0);
        memory.big(0x12000 + 0x100 * upper, shift == 0 ? 0x16800 : 0x16800 >> shift, upper);
        expect_none(*format, memory, 0x10000, std::uint64_t{0x100} << 23, Outcome::kMalformed, 2,
                    "the table's address is not aligned to its size");
    }
}

// 0x7f12_3456_789a: indexes 0xfe 0x048 0x1a2 0x167.
void x86_tables(Words& memory) {
    for (const std::uint64_t frame : {0x1000, 0x2000, 0x3000, 0x4000}) memory.zero(frame);
    memory.little(0x1000 + 0xfe * 8, 0x2000 | 0x67);
    memory.little(0x2000 + 0x048 * 8, 0x3000 | 0x67);
    memory.little(0x3000 + 0x1a2 * 8, 0x4000 | 0x67);
    memory.little(0x4000 + 0x167 * 8, 0x800000001abcd000 | 0x67);
    memory.little(0x3000 + 0x1a3 * 8, 0x0000000040200000 | 0x1000 | 0xa1 | 0x100);  // 2M with PAT, global
    memory.little(0x2000 + 0x049 * 8, 0x8000000080000000 | 0x87);
    memory.little(0x3000 + 0x1a4 * 8, 0x0000000040202000 | 0x81);
    memory.little(0x2000 + 0x04a * 8, 0x0000000080200000 | 0x81);
    memory.little(0x1000 + 0x0ff * 8, 0x2000 | 0xe7);
    memory.little(0x4000 + 0x168 * 8, 0xdead000 | 0x2);  // a swap entry
}

TEST(Walk, X86) {
    Words memory;
    x86_tables(memory);
    memory.zero(0x8000);
    memory.little(0x8000 + 0x11 * 8, 0x1000 | 0x67);
    memory.little(0x8000 + 0x12 * 8, 0x1000 | 0xe7);
    struct Case {
        const Format* format;
        std::uint64_t root;
        std::uint64_t base;
        std::size_t more;
    };
    for (const auto& [format, root, base, more] :
         {Case{&kX86, 0x1000, 0, 0}, Case{&kX86FiveLevels, 0x8000, std::uint64_t{0x11} << 48, 1}}) {
        expect_page(*format, memory, root, base + 0x7f123456789a, 0x1abcd89a, 4096,
                    kRead | kWrite | kUser | kAccessed | kDirty, 4 + more);
        expect_page(*format, memory, root, base + 0x7f1234789abc, 0x40389abc, 2 << 20,
                    kRead | kExecute | kGlobal | kAccessed, 3 + more);
        expect_page(*format, memory, root, base + 0x7f127fffffff, 0xbfffffff, 1 << 30, kRead | kWrite | kUser,
                    2 + more);
        expect_none(*format, memory, root, base + 0x7f1234568000, Outcome::kNotPresent, 4 + more);
        expect_none(*format, memory, root, base + 0x7f1234400000, Outcome::kNotPresent, 4 + more);
        expect_none(*format, memory, root, base, Outcome::kNotPresent, 1 + more);
        expect_none(*format, memory, root, base + 0x7f1234800000, Outcome::kMalformed, 3 + more,
                    "reserved address bits of a large page are set");
        expect_none(*format, memory, root, base + 0x7f1280000000, Outcome::kMalformed, 2 + more,
                    "reserved address bits of a large page are set");
        expect_none(*format, memory, root, base + 0x7f8000000000, Outcome::kMalformed, 1 + more,
                    "PS is reserved at this level");
    }
    expect_none(kX86, memory, 0x1000, 0x800000000000, Outcome::kNotCanonical, 0);
    expect_none(kX86, memory, 0x1000, 0xffff800000000000, Outcome::kNotPresent, 1);
    expect_none(kX86FiveLevels, memory, 0x8000, std::uint64_t{0x12} << 48, Outcome::kMalformed, 1,
                "PS is reserved at this level");
    EXPECT_EQ(kX86.root(0x8000000001234005).value(), 0x1234000U);
}

TEST(Walk, Arm64) {
    Words memory;
    for (const std::uint64_t frame : {0x1000, 0x2000, 0x3000, 0x4000}) memory.zero(frame);
    memory.little(0x1000 + 0x155 * 8, 0x2000 | 3);
    memory.little(0x2000 + 0x048 * 8, 0x3000 | 3);
    memory.little(0x3000 + 0x1a2 * 8, 0x4000 | 3);
    // A user page: EL0, inner shareable, accessed, not global, PXN.
    memory.little(0x4000 + 0x167 * 8, 0x1abcd000 | 0x3 | 0x40 | 0x300 | 0x400 | 0x800 | (1ULL << 53));
    // Kernel blocks: read-only executable 2M (UXN), writable device 1G (AttrIndx 3, PXN and UXN).
    memory.little(0x3000 + 0x1a3 * 8, 0x40200000 | 0x1 | 0x80 | 0x400 | (1ULL << 54));
    memory.little(0x2000 + 0x049 * 8, 0x80000000 | 0x1 | 0x0c | 0x400 | (3ULL << 53));
    memory.little(0x4000 + 0x168 * 8, 0x1abcd000 | 0x1);
    memory.little(0x3000 + 0x1a4 * 8, 0x40210000 | 0x1);
    memory.little(0x1000 + 0x156 * 8, 0x2000 | 1);
    const Format& format = kArm64;
    const std::uint64_t base = std::uint64_t{0x155} << 39;
    const std::uint64_t low = 0x123456789a & 0x7fffffffff;
    for (const std::uint64_t half : {std::uint64_t{0}, std::uint64_t{0xffff000000000000}}) {
        expect_page(format, memory, 0x1000, half + base + low, 0x1abcd89a, 4096,
                    kRead | kWrite | kExecute | kUser | kAccessed, 4);
        expect_page(format, memory, 0x1000, half + base + 0x1234712345, 0x40312345, 2 << 20,
                    kRead | kExecute | kGlobal | kAccessed, 3);
        expect_page(format, memory, 0x1000, half + base + 0x1240000001, 0x80000001, 1 << 30,
                    kRead | kWrite | kGlobal | kAccessed | kUncached, 2);
        expect_none(format, memory, 0x1000, half + base + 0x1234569000, Outcome::kNotPresent, 4);
        expect_none(format, memory, 0x1000, half + base + 0x1234568000, Outcome::kMalformed, 4,
                    "01 is reserved at level 3: a page is 11");
        expect_none(format, memory, 0x1000, half + base + 0x1234800000, Outcome::kMalformed, 3,
                    "reserved address bits of a block are set");
        expect_none(format, memory, 0x1000, half + base + (1ULL << 39), Outcome::kMalformed, 1,
                    "there are no blocks at level 0");
    }
    expect_none(format, memory, 0x1000, 0x8000000000000000, Outcome::kNotCanonical, 0);
    EXPECT_EQ(format.root(0x0042000000001001).value(), 0x1000U);
}

// A table of the same indexes for all three modes: Sv39's root is Sv48's second level, and so on.
TEST(Walk, Riscv) {
    Words memory;
    for (const std::uint64_t frame : {0x1000, 0x2000, 0x3000, 0x4000, 0x5000}) memory.zero(frame);
    const auto pointer = [](std::uint64_t table) { return table >> 12 << 10 | 1; };
    const auto leaf = [](std::uint64_t page, std::uint64_t bits) { return page >> 12 << 10 | bits | 1; };
    memory.little(0x1000 + 0x033 * 8, pointer(0x2000));  // Sv57's root
    memory.little(0x2000 + 0x044 * 8, pointer(0x3000));  // Sv48's
    memory.little(0x3000 + 0x055 * 8, pointer(0x4000));  // Sv39's
    memory.little(0x4000 + 0x066 * 8, pointer(0x5000));
    memory.little(0x5000 + 0x077 * 8, leaf(0x123456789000, 0xde));  // RWX U A D: 2 4 8 10 40 80
    for (unsigned n = 0x80; n < 0x90; ++n)
        memory.little(0x5000 + n * 8, leaf(0x340000 | 0x8000, 0x42) | 1ULL << 63);
    memory.little(0x4000 + 0x067 * 8, leaf(0x40600000, 0x66));
    memory.little(0x3000 + 0x056 * 8, leaf(0xc0000000, 0x4a));
    memory.little(0x2000 + 0x045 * 8, leaf(0x8000000000, 0x06));
    memory.little(0x1000 + 0x034 * 8, leaf(0x1000000000000, 0x02));
    memory.little(0x5000 + 0x078 * 8, leaf(0x1000, 0x04));
    memory.little(0x4000 + 0x068 * 8, leaf(0x40601000, 0x02));
    memory.little(0x4000 + 0x069 * 8, pointer(0x5000) | 0x40);
    memory.little(0x5000 + 0x079 * 8, pointer(0x5000));
    memory.little(0x5000 + 0x07a * 8, leaf(0x1000, 0x02) | 1ULL << 54);
    memory.little(0x5000 + 0x07b * 8, leaf(0x1000, 0x02) | 3ULL << 61);
    memory.little(0x5000 + 0x07c * 8, leaf(0x1000, 0x02) | 1ULL << 63);
    struct Case {
        const Format* format;
        std::uint64_t root;
        std::uint64_t base;
        std::size_t more;
    };
    const std::uint64_t in48 = std::uint64_t{0x44} << 39;
    const std::uint64_t in57 = std::uint64_t{0x33} << 48;
    for (const auto& [format, root, base, more] :
         {Case{&kSv39, 0x3000, 0, 0}, Case{&kSv48, 0x2000, in48, 1}, Case{&kSv57, 0x1000, in57 + in48, 2}}) {
        const std::uint64_t pages = base + (std::uint64_t{0x55} << 30);
        const std::uint64_t small = pages + (0x66 << 21);
        expect_page(*format, memory, root, small + (0x77 << 12) + 5, 0x123456789005, 4096,
                    kRead | kWrite | kExecute | kUser | kAccessed | kDirty, 3 + more);
        expect_page(*format, memory, root, small + (0x83 << 12) + 5, 0x343005, 64 << 10, kRead | kAccessed,
                    3 + more);
        expect_page(*format, memory, root, pages + (0x67 << 21) + 0x12345, 0x40612345, 2 << 20,
                    kRead | kWrite | kGlobal | kAccessed, 2 + more);
        expect_page(*format, memory, root, base + (std::uint64_t{0x56} << 30) + 9, 0xc0000009, 1 << 30,
                    kRead | kExecute | kAccessed, 1 + more);
        expect_none(*format, memory, root, small, Outcome::kNotPresent, 3 + more);
        expect_none(*format, memory, root, pages, Outcome::kNotPresent, 2 + more);
        expect_none(*format, memory, root, small + (0x78 << 12), Outcome::kMalformed, 3 + more,
                    "W without R is reserved");
        expect_none(*format, memory, root, pages + (0x68 << 21), Outcome::kMalformed, 2 + more,
                    "misaligned superpage: low PPN bits are set");
        expect_none(*format, memory, root, pages + (0x69 << 21), Outcome::kMalformed, 2 + more,
                    "D, A, U, PBMT or N is set in a pointer");
        expect_none(*format, memory, root, small + (0x79 << 12), Outcome::kMalformed, 3 + more,
                    "a pointer at the last level");
        expect_none(*format, memory, root, small + (0x7a << 12), Outcome::kMalformed, 3 + more,
                    "reserved bits 60:54 are set");
        expect_none(*format, memory, root, small + (0x7b << 12), Outcome::kMalformed, 3 + more,
                    "PBMT 3 is reserved");
        expect_none(*format, memory, root, small + (0x7c << 12), Outcome::kMalformed, 3 + more,
                    "N with a size other than 64K is reserved");
    }
    expect_page(kSv48, memory, 0x2000, (std::uint64_t{0x45} << 39) + 7, 0x8000000007, std::uint64_t{1} << 39,
                kRead | kWrite, 1);
    expect_page(kSv57, memory, 0x1000, (std::uint64_t{0x34} << 48) + 7, 0x1000000000007,
                std::uint64_t{1} << 48, kRead, 1);
    expect_none(kSv39, memory, 0x3000, std::uint64_t{1} << 38, Outcome::kNotCanonical, 0);
    EXPECT_EQ(kSv39.root(0x8000000000000003).value(), 0x3000U);
    EXPECT_EQ(kSv39.root(0x80003000).value(), 0x80003000U);
}

TEST(Walk, Radix) {
    struct Case {
        const Format* format;
        std::uint64_t last_bits;
        std::uint64_t small;
    };
    for (const auto& [format, last_bits, small] : {Case{&kRadix4K, 9, 12}, Case{&kRadix64K, 5, 16}}) {
        Words memory;
        memory.zero(0x10000, 0x10000);
        for (const std::uint64_t frame : {0x20000, 0x21000, 0x22000}) memory.zero(frame);
        const std::uint64_t valid = std::uint64_t{1} << 63;
        const std::uint64_t leaf = std::uint64_t{3} << 62;
        memory.big(0x10000 + 0x1234 * 8, valid | 0x20000 | 9);
        memory.big(0x20000 + 0x048 * 8, valid | 0x21000 | 9);
        memory.big(0x21000 + 0x1a2 * 8, valid | 0x22000 | last_bits);
        memory.big(0x22000 + 0x7 * 8, leaf | 0x1ab0000 | 0x2 | 0x4 | 0x80 | 0x100);
        memory.big(0x22000 + 0x8 * 8, leaf | 0x1ab0000 | 0x1 | 0x4 | 0x8 | 0x100 | 0x20);
        memory.big(0x21000 + 0x1a3 * 8, leaf | 0x40200000 | 0x1 | 0x4 | 0x8);
        memory.big(0x20000 + 0x049 * 8, leaf | 0x80000000 | 0x6);
        memory.big(0x21000 + 0x1a4 * 8, leaf | 0x40210000 | 0x4);
        memory.big(0x20000 + 0x04a * 8, valid | 0x21000 | 8);
        memory.big(0x10000 + 0x1235 * 8, leaf | 0x4);
        memory.big(0x22000 + 0x9 * 8, valid | 0x22000);
        const std::uint64_t base = (std::uint64_t{0x1234} << 39) + (std::uint64_t{0x48} << 30);
        const std::uint64_t table = base + (std::uint64_t{0x1a2} << 21);
        const std::uint64_t size = std::uint64_t{1} << small;
        // The kernel's quadrant has a root of its own with the same layout.
        for (const std::uint64_t quadrant : {std::uint64_t{0}, std::uint64_t{0xc000000000000000}}) {
            expect_page(*format, memory, 0x10000, quadrant + table + 7 * size + 0x89a, 0x1ab089a, size,
                        kRead | kWrite | kUser | kAccessed | kDirty, 4);
            expect_page(*format, memory, 0x10000, quadrant + table + 8 * size, 0x1ab0000, size,
                        kRead | kExecute | kAccessed | kUncached, 4);
            expect_page(*format, memory, 0x10000, quadrant + base + (0x1a3ULL << 21) + 0x12345, 0x40212345,
                        2 << 20, kRead | kExecute, 3);
            expect_page(*format, memory, 0x10000,
                        quadrant + (std::uint64_t{0x1234} << 39) + (0x49ULL << 30) + 1, 0x80000001, 1 << 30,
                        kRead | kWrite | kUser, 2);
            expect_none(*format, memory, 0x10000, quadrant + table, Outcome::kNotPresent, 4);
            expect_none(*format, memory, 0x10000, quadrant + base, Outcome::kNotPresent, 3);
            expect_none(*format, memory, 0x10000, quadrant + base + (0x1a4ULL << 21), Outcome::kMalformed, 3,
                        "the frame is not aligned to the page's size");
            expect_none(*format, memory, 0x10000, quadrant + (std::uint64_t{0x1234} << 39) + (0x4aULL << 30),
                        Outcome::kMalformed, 2, "NLS is not the size of this format's next table");
            expect_none(*format, memory, 0x10000, quadrant + (std::uint64_t{0x1235} << 39),
                        Outcome::kMalformed, 1, "there are no pages of 512G");
            expect_none(*format, memory, 0x10000, quadrant + table + 9 * size, Outcome::kMalformed, 4,
                        "a pointer at the last level");
        }
        expect_none(*format, memory, 0x10000, 0x4000000000000000, Outcome::kNotCanonical, 0);
    }
}

// What the walker relies on to end: a level's parent comes before it, and a level of the base page is
// reached.
TEST(Formats, AreSound) {
    std::set<std::string_view> names;
    for (const Format* format : formats()) {
        EXPECT_TRUE(names.insert(format->name).second);
        EXPECT_EQ(find_format(std::string(format->name)).value(), format);
        ASSERT_LE(format->levels.size(), 6U);
        std::size_t bits = format->levels[0].span_shift();
        EXPECT_EQ(bits, format->address_bits) << format->name;
        for (std::size_t level = 1; level < format->levels.size(); ++level) {
            EXPECT_LT(format->levels[level].parent, level) << format->name;
            // A table covers what its parent's entry covers, or (8xx 8M) several of them.
            EXPECT_GE(format->levels[level].span_shift(), format->levels[format->levels[level].parent].shift);
        }
        for (std::size_t n = 1; n < format->sizes.size(); ++n)
            EXPECT_LT(format->sizes[n - 1].shift, format->sizes[n].shift);
        EXPECT_LE(format->user_end() - 1, (std::uint64_t{1} << format->address_bits) - 1) << format->name;
        EXPECT_TRUE(format->canonical(0));
        EXPECT_TRUE(format->canonical(format->user_end() - 1)) << format->name;
        EXPECT_FALSE(format->canonical(std::uint64_t{1} << (format->address_bits + 1))) << format->name;
        // The none entry is zero at every level, and zero is none.
        for (unsigned level = 0; level < format->levels.size(); ++level)
            EXPECT_EQ(format->decode(*format, level, 0).kind, EntryKind::kNone);
    }
    EXPECT_EQ(names.size(), 14U);
    EXPECT_EQ(find_format("sv93").error().hint, "did you mean sv39?");
    EXPECT_FALSE(find_format("vax").has_value());
}

// Encoders write what decoders read: every size, every combination of common flags that the format can hold.
TEST(Formats, EncodeWhatTheyDecode) {
    for (const Format* format : formats()) {
        for (const PageSize& size : format->sizes) {
            const PhysAddr page((std::uint64_t{3} << 29 | std::uint64_t{5} << 23) &
                                ~(size.shift.bytes() - 1));
            for (const int bits : {1, 3, 5, 7, 9, 11, 13, 15, 1 + 32, 3 + 8 + 32 + 64, 1 + 8 + 128}) {
                const auto flags = static_cast<Flags>(bits);
                const std::uint64_t raw = format->encode_page(*format, size, page, flags);
                const Entry entry = format->decode(*format, size.level, raw);
                ASSERT_EQ(entry.kind, EntryKind::kPage) << format->name << " " << size.shift.bytes();
                EXPECT_EQ(entry.address, page) << format->name;
                EXPECT_EQ(entry.size, size.shift) << format->name;
                EXPECT_EQ(entry.flags & (kWrite | kUser | kRead), flags & (kWrite | kUser | kRead))
                    << format->name;
                EXPECT_EQ(format->encode_page(*format, size, page, entry.flags), raw) << format->name;
            }
        }
        for (unsigned level = 1; level < format->levels.size(); ++level) {
            const PhysAddr table(0x40000);
            const std::uint64_t raw = format->encode_table(*format, level, table);
            const Entry entry = format->decode(*format, format->levels[level].parent, raw);
            ASSERT_EQ(entry.kind, EntryKind::kTable) << format->name;
            EXPECT_EQ(entry.address, table) << format->name;
            EXPECT_EQ(entry.next, level) << format->name;
        }
    }
}

// Garbage of every kind decodes to something, and a walk through it ends.
TEST(Walk, EndsOnGarbage) {
    struct Garbage : Memory {
        std::uint64_t seed = 1;
        mutable std::uint64_t state = 0;
        bool load(PhysAddr at, void* into, unsigned bytes) const override {
            state = (at.value() + seed) * 0x9e3779b97f4a7c15 ^ state >> 7;
            std::memcpy(into, &state, bytes);
            return true;
        }
        bool store(PhysAddr, const void*, unsigned) override { return false; }
    } memory;
    for (const Format* format : formats())
        for (memory.seed = 1; memory.seed < 2000; ++memory.seed) {
            const std::uint64_t address = (memory.seed * 0x123456789ab) & (format->user_end() - 1);
            const Walk found = walk(*format, memory, PhysAddr(0x1000), VirtAddr(address));
            ASSERT_GE(found.count, 1) << format->name;
            ASSERT_LE(found.count, kMostSteps) << format->name;
        }
}

}  // namespace
}  // namespace tlbscope::pagetable
