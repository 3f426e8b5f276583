// A small emulator's memory management with src/pagetable: it owns the guest's RAM, gives out frames of it
// for page tables, runs two processes on RISC-V Sv39, and looks every address up as the guest's MMU would.
//
// Everything here needs core and pagetable only; docs/pagetable-library.md explains the calls.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "pagetable/tree.h"
#include "pagetable/walk.h"

using namespace tlbscope;
using namespace tlbscope::pagetable;

namespace {

// The guest's RAM, and the simplest allocator of its frames: a list of free ones. Physical addresses start
// where the machine's RAM does.
class GuestMemory : public Frames, public Memory {
  public:
    static constexpr std::uint64_t kBase = 0x80000000;
    static constexpr std::size_t kFrame = 4096;
    static constexpr std::size_t kFrames = 1024;

    GuestMemory() {
        for (std::size_t n = kFrames; n != 0; --n) free_.push_back(PhysAddr(kBase + (n - 1) * kFrame));
    }

    // For page tables; all of Sv39's have the size of a frame.
    std::optional<PhysAddr> allocate(std::size_t bytes) override {
        if (bytes > kFrame || free_.empty()) return {};
        const PhysAddr frame = free_.back();
        free_.pop_back();
        return frame;
    }
    bool release(PhysAddr block, std::size_t) override {
        free_.push_back(block);
        return true;
    }
    std::byte* at(PhysAddr block) override { return ram_.data() + (block.value() - kBase); }

    // For the walker.
    bool load(PhysAddr at, void* into, unsigned bytes) const override {
        if (!contains(at, bytes)) return false;
        std::memcpy(into, ram_.data() + (at.value() - kBase), bytes);
        return true;
    }
    bool store(PhysAddr at, const void* from, unsigned bytes) override {
        if (!contains(at, bytes)) return false;
        std::memcpy(ram_.data() + (at.value() - kBase), from, bytes);
        return true;
    }

    [[nodiscard]] std::size_t frames_free() const { return free_.size(); }

  private:
    [[nodiscard]] bool contains(PhysAddr at, unsigned bytes) const {
        return at.value() >= kBase && at.value() - kBase <= ram_.size() - bytes;
    }
    std::vector<std::byte> ram_ = std::vector<std::byte>(kFrames * kFrame);
    std::vector<PhysAddr> free_;
};

int failures = 0;

void expect(bool good, const char* what) {
    std::printf("%-4s %s\n", good ? "ok" : "BAD", what);
    if (!good) ++failures;
}

}  // namespace

int main() {
    GuestMemory memory;
    const std::size_t frames_at_first = memory.frames_free();
    Unmetered meter;
    {
        // Freed tables are kept for the next process, as Linux 2.4 did.
        TableCache cache(kSv39, memory, {.policy = CachePolicy::kLinux24}, &meter);

        // A process maps two pages of text and a superpage of heap.
        auto first = Tree::create(kSv39, cache, meter);
        if (!first) return EXIT_FAILURE;
        constexpr PageShift kSmall(12);
        constexpr PageShift kSuper(21);
        expect(first->map(VirtAddr(0x10000), PhysAddr(0x80300000), kSmall, kRead | kExecute | kUser) ==
                       Status::kDone &&
                   first->map(VirtAddr(0x11000), PhysAddr(0x80301000), kSmall, kRead | kExecute | kUser) ==
                       Status::kDone &&
                   first->map(VirtAddr(0x40000000), PhysAddr(0x80200000), kSuper, kRead | kWrite | kUser) ==
                       Status::kDone,
               "map two pages and a superpage");
        expect(first->map(VirtAddr(0x40001000), PhysAddr(0x80300000), kSmall, kRead) == Status::kOccupied,
               "refuse a page inside the superpage");

        // The MMU's side: a walk through guest memory from the root, exactly as satp would start it.
        Walk found = walk(kSv39, memory, first->root(), VirtAddr(0x40012345));
        expect(found.outcome == Outcome::kMapped && found.physical(0x40012345).value() == 0x80212345,
               "find the superpage by a walk");
        expect(walk(kSv39, memory, first->root(), VirtAddr(0x20000)).outcome == Outcome::kNotPresent,
               "find nothing where nothing is mapped");

        // A fork shares pages; both sides lose write permission.
        auto second = Tree::create(kSv39, cache, meter);
        if (!second) return EXIT_FAILURE;
        expect(first->copy_range(*second, VirtAddr(0), kSv39.user_end(), true) == Status::kDone,
               "copy for a fork");
        found = walk(kSv39, memory, second->root(), VirtAddr(0x40000000));
        expect(found.outcome == Outcome::kMapped && (found.page().flags & kWrite) == 0,
               "the copy is write-protected");

        // munmap: the pages first, then the tables that no neighbour needs. The heap begins at 1 GiB, the
        // ceiling.
        std::uint64_t pages = 0;
        expect(first->unmap(VirtAddr(0x10000), 0x2000, &pages) == Status::kDone && pages == 2,
               "unmap the text");
        first->free_range(0x10000, 0x12000, 0, 0x40000000);
        expect(walk(kSv39, memory, second->root(), VirtAddr(0x11000)).outcome == Outcome::kMapped,
               "the other process still has it");

        // exit, once range by range and once by a scan of everything.
        (void)first->unmap(VirtAddr(0x40000000), 0x200000);
        first->free_range(0x40000000, 0x40200000, 0, 0);
        expect(first->bare(), "nothing is left to scan");
        first->release();
        (void)second->unmap(VirtAddr(0), kSv39.user_end());
        second->scan({});
        expect(second->bare(), "a scan leaves nothing either");
        second->release();

        expect(cache.held(0) != 0 && memory.frames_free() + cache.held(0) == frames_at_first,
               "every table is back on a list");
        auto third = Tree::create(kSv39, cache, meter);
        expect(third && cache.counts().from_cache != 0, "the next process gets its root from there");
        if (third) third->release();
    }
    expect(memory.frames_free() == frames_at_first, "and every frame is free at the end");
    return failures == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
