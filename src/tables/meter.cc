#include "tables/meter.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <new>

namespace tlbscope::tables {

namespace {

template <class T>
T* zeroes(std::uint64_t count) {
    void* memory = std::calloc(static_cast<std::size_t>(count), sizeof(T));
    if (memory == nullptr) throw std::bad_alloc();
    return static_cast<T*>(memory);
}

}  // namespace

Accesses& Accesses::operator+=(const Accesses& other) {
    entries_read += other.entries_read;
    loads += other.loads;
    entries_written += other.entries_written;
    lines_touched += other.lines_touched;
    lines_fetched += other.lines_fetched;
    lines_fetched_again += other.lines_fetched_again;
    lines_evicted += other.lines_evicted;
    lines_cleared += other.lines_cleared;
    return *this;
}

Accesses operator-(const Accesses& a, const Accesses& b) {
    return {.entries_read = a.entries_read - b.entries_read,
            .loads = a.loads - b.loads,
            .entries_written = a.entries_written - b.entries_written,
            .lines_touched = a.lines_touched - b.lines_touched,
            .lines_fetched = a.lines_fetched - b.lines_fetched,
            .lines_fetched_again = a.lines_fetched_again - b.lines_fetched_again,
            .lines_evicted = a.lines_evicted - b.lines_evicted,
            .lines_cleared = a.lines_cleared - b.lines_cleared};
}

LiveMeter::LiveMeter(const pagetable::Arena&, PhysAddr base, std::uint64_t bytes)
    : base_(base.value()),
      live_(zeroes<std::int32_t>(bytes >> kUnit)),
      size_(zeroes<std::uint8_t>(bytes >> kUnit)),
      in_use_(zeroes<std::uint8_t>(bytes >> kUnit)) {}

void LiveMeter::took(PhysAddr table, std::size_t bytes) {
    const std::size_t units = std::bit_ceil(bytes) >> kUnit == 0 ? 1 : std::bit_ceil(bytes) >> kUnit;
    const auto first = static_cast<std::size_t>((table.value() - base_) >> kUnit);
    if (in_use_[first] != 0 && mistake_.empty())
        mistake_ = fmt::format("the table at {:#x} was handed out twice", table.value());
    std::memset(size_.get() + first, std::countr_zero(units), units);
    live_[first] = 0;
    in_use_[first] = 1;
    ++tables_;
    bytes_ += bytes;
}

void LiveMeter::gave(PhysAddr table, std::size_t bytes) {
    const auto first = static_cast<std::size_t>((table.value() - base_) >> kUnit);
    if (mistake_.empty() && in_use_[first] == 0)
        mistake_ = fmt::format("the table at {:#x} was given up twice", table.value());
    else if (mistake_.empty() && live_[first] != 0)
        mistake_ = fmt::format("the table at {:#x} was given up while {} of its entries were in use",
                               table.value(), live_[first]);
    in_use_[first] = 0;
    --tables_;
    bytes_ -= bytes;
}

Meter::Meter(const pagetable::Arena& arena, PhysAddr base, std::uint64_t bytes, const DataCache& cache)
    : LiveMeter(arena, base, bytes),
      line_shift_(static_cast<unsigned>(std::countr_zero(cache.line))),
      sets_(cache.bytes / (cache.ways * cache.line)),
      ways_count_(cache.ways),
      write_allocate_(cache.write_allocate),
      first_line_(base.value() >> line_shift_),
      ways_(static_cast<std::size_t>(sets_ * cache.ways)),
      touched_(zeroes<std::uint32_t>((bytes >> line_shift_) + 1), std::free),
      fetched_(zeroes<std::uint32_t>((bytes >> line_shift_) + 1), std::free) {}

void Meter::touch(PhysAddr at, unsigned bytes, bool store) {
    const std::uint64_t last = (at.value() + bytes - 1) >> line_shift_;
    for (std::uint64_t line = at.value() >> line_shift_; line <= last; ++line) {
        const auto index = static_cast<std::size_t>(line - first_line_);
        if (touched_[index] != epoch_) {
            touched_[index] = epoch_;
            ++counts_.lines_touched;
        }
        Way* const set = ways_.data() + line % sets_ * ways_count_;
        Way* victim = set;
        bool hit = false;
        for (Way* way = set; way != set + ways_count_ && !hit; ++way) {
            if (way->epoch == epoch_ && way->line == line) {
                way->used = ++clock_;
                hit = true;
            }
            // The program's lines are older than any of this operation.
            const bool older =
                (way->epoch == epoch_ ? way->used : 0) < (victim->epoch == epoch_ ? victim->used : 0);
            if (older) victim = way;
        }
        if (hit || (store && !write_allocate_)) continue;
        ++counts_.lines_fetched;
        if (fetched_[index] == epoch_) ++counts_.lines_fetched_again;
        fetched_[index] = epoch_;
        if (victim->epoch != epoch_) ++counts_.lines_evicted;
        *victim = {line, epoch_, ++clock_};
    }
}

void Meter::clear(PhysAddr table, std::size_t bytes) {
    const std::uint64_t line = std::uint64_t{1} << line_shift_;
    for (std::uint64_t offset = 0; offset < bytes; offset += line) {
        ++counts_.lines_cleared;
        touch(PhysAddr(table.value() + offset),
              static_cast<unsigned>(std::min<std::uint64_t>(line, bytes - offset)), true);
    }
}

}  // namespace tlbscope::tables
