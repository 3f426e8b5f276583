// The kernel's mmu_gather: one operation collects the translations it removes and the tables it takes out,
// flushes once, and only then frees pages and tables. Freed any earlier, a page could belong to somebody else
// while some CPU still reaches it through its TLB.
//
// The order is checked here, not trusted: free() before the flush that covers what is to be freed, and a
// gather that ends with something unflushed or not freed, are complaints. A complaint is a programmer's
// error; the default handler prints it and aborts, tests put in their own.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "flush/request.h"

namespace tlbscope::flush {

class Gather {
  public:
    // The kernel flushes early when it holds this many pages (MAX_GATHER_BATCH_COUNT: 10,000 pages in
    // batches, mm/mmu_gather.c [R: "~10k"]).
    static constexpr std::uint64_t kMostPages = 10'000;

    using Flush = std::function<void(const Request&)>;
    using Complaint = std::function<void(std::string_view)>;
    // A freed thing: a page, or a table when `table`.
    struct Freed {
        std::uint64_t address = 0;
        std::uint64_t pages = 0;
        bool table = false;
    };

    // `first` says who asks and why; its ranges are filled in here.
    Gather(const Request& first, std::uint64_t page_bytes, Flush flush, Complaint complain = {});
    ~Gather();
    Gather(const Gather&) = delete;
    Gather& operator=(const Gather&) = delete;

    // The translations of [start, start + pages) were removed and the pages are to be freed; flushes early
    // when full.
    void remove(std::uint64_t start, std::uint64_t pages);
    // Rights of [start, start + pages) were taken away; nothing is to be freed.
    void restrict(std::uint64_t start, std::uint64_t pages);
    // The table that maps from `start` on was taken out of the tree and is to be freed.
    void remove_table(std::uint64_t start);

    // Flushes what was gathered since the last flush, if anything was.
    void flush();
    // Frees what the flushes so far cover; complains when something to be freed is not covered.
    std::vector<Freed> free();
    // flush() and free().
    std::vector<Freed> finish();

    [[nodiscard]] bool anything_unflushed() const { return unflushed_; }

  private:
    void cover(std::uint64_t start, std::uint64_t end);
    void complain(std::string_view what);

    Request request_;
    std::uint64_t page_bytes_;
    Flush flush_;
    Complaint complain_;
    std::vector<Freed> waiting_;
    std::size_t covered_ = 0;  // of waiting_, by flushes so far
    std::uint64_t held_pages_ = 0;
    bool unflushed_ = false;
};

}  // namespace tlbscope::flush
