#include "flush/gather.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace tlbscope::flush {

Gather::Gather(const Request& first, std::uint64_t page_bytes, Flush flush, Complaint complain)
    : request_(first), page_bytes_(page_bytes), flush_(std::move(flush)), complain_(std::move(complain)) {
    request_.freed_tables = false;
    request_.start = request_.end = 0;
}

Gather::~Gather() {
    if (unflushed_) complain("a gather ended with translations that no flush has covered");
    if (!waiting_.empty()) complain("a gather ended without freeing what it had taken out");
}

void Gather::complain(std::string_view what) {
    if (complain_) {
        complain_(what);
        return;
    }
    std::fprintf(stderr, "tlbscope: internal error: %.*s\n", static_cast<int>(what.size()), what.data());
    std::abort();
}

void Gather::cover(std::uint64_t start, std::uint64_t end) {
    if (request_.start == request_.end) {
        request_.start = start;
        request_.end = end;
    } else {
        request_.start = std::min(request_.start, start);
        request_.end = std::max(request_.end, end);
    }
    unflushed_ = true;
}

void Gather::remove(std::uint64_t start, std::uint64_t pages) {
    while (pages > 0) {
        const std::uint64_t now = std::min(pages, kMostPages - held_pages_);
        cover(start, start + now * page_bytes_);
        waiting_.push_back({.address = start, .pages = now, .table = false});
        held_pages_ += now;
        start += now * page_bytes_;
        pages -= now;
        if (held_pages_ == kMostPages) {
            // The kernel frees what it holds here (tlb_flush_mmu); pages only, so that free() stays the one
            // place where its caller learns of them.
            flush();
            held_pages_ = 0;
        }
    }
}

void Gather::restrict(std::uint64_t start, std::uint64_t pages) {
    if (pages > 0) cover(start, start + pages * page_bytes_);
}

void Gather::remove_table(std::uint64_t start) {
    // pte_free_tlb: the range grows by the page at which the walk stood (include/asm-generic/tlb.h).
    cover(start, start + page_bytes_);
    request_.freed_tables = true;
    waiting_.push_back({.address = start, .pages = 0, .table = true});
}

void Gather::flush() {
    if (!unflushed_) return;
    flush_(request_);
    request_.freed_tables = false;
    request_.start = request_.end = 0;
    unflushed_ = false;
    covered_ = waiting_.size();
}

std::vector<Gather::Freed> Gather::free() {
    if (covered_ < waiting_.size()) complain("pages or tables were freed before the flush that covers them");
    covered_ = 0;
    std::vector<Freed> freed;
    freed.swap(waiting_);
    return freed;
}

std::vector<Gather::Freed> Gather::finish() {
    flush();
    return free();
}

}  // namespace tlbscope::flush
