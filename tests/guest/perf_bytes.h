// Perf records as a kernel writes them (perf_event_open(2)), made by hand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tlbscope::capture {

class PerfBytes {
  public:
    explicit PerfBytes(bool big_endian = false) : big_(big_endian) {}

    // The task that runs, and the time, for the records that follow.
    void now(std::uint32_t pid, std::uint32_t tid, std::uint64_t time) {
        pid_ = pid;
        tid_ = tid;
        time_ = time;
    }
    void map(std::uint32_t pid, std::uint64_t start, std::uint64_t length, std::uint64_t offset,
             std::uint32_t protection, const std::string& name) {
        Body b(big_);
        b.u32(pid)
            .u32(pid)
            .u64(start)
            .u64(length)
            .u64(offset)
            .u64(0)
            .u64(0)
            .u64(0)
            .u32(protection)
            .u32(2)
            .text(name);
        record(10, 0, b);
    }
    void name(std::uint32_t pid, std::uint32_t tid, const std::string& text, bool exec) {
        Body b(big_);
        b.u32(pid).u32(tid).text(text);
        record(3, exec ? 1 << 13 : 0, b);
    }
    void fork(std::uint32_t pid, std::uint32_t tid, std::uint32_t parent) {
        Body b(big_);
        b.u32(pid).u32(parent).u32(tid).u32(parent).u64(time_);
        record(7, 0, b);
    }
    void exit(std::uint32_t pid, std::uint32_t parent) {
        Body b(big_);
        b.u32(pid).u32(parent).u32(pid).u32(parent).u64(time_);
        record(4, 0, b);
    }
    // Both records of a switch; the current task is `next` afterwards.
    void switch_to(std::uint32_t next, std::uint64_t time) {
        const std::uint32_t before = tid_;
        time_ = time;
        Body out(big_);
        out.u32(next).u32(next);
        record(15, 1 << 13, out);
        pid_ = tid_ = next;
        Body in(big_);
        in.u32(before).u32(before);
        record(15, 0, in);
    }
    void lost(std::uint64_t count) {
        Body b(big_);
        b.u64(1).u64(count);
        record(2, 0, b);
    }
    void unknown(std::uint32_t type, std::size_t size) {
        Body b(big_);
        for (std::size_t i = 0; i < size; i += 4) b.u32(0);
        record(type, 0, b);
    }

    std::vector<std::uint8_t> bytes;

  private:
    struct Body {
        explicit Body(bool big_endian) : big(big_endian) {}
        Body& number(std::uint64_t v, int size) {
            for (int i = 0; i < size; ++i)
                data.push_back(static_cast<std::uint8_t>(v >> 8 * (big ? size - 1 - i : i)));
            return *this;
        }
        Body& u16(std::uint16_t v) { return number(v, 2); }
        Body& u32(std::uint32_t v) { return number(v, 4); }
        Body& u64(std::uint64_t v) { return number(v, 8); }
        Body& text(const std::string& s) {
            data.insert(data.end(), s.begin(), s.end());
            do data.push_back(0);
            while (data.size() % 8 != 0);
            return *this;
        }
        bool big;
        std::vector<std::uint8_t> data;
    };

    void record(std::uint32_t type, unsigned misc, Body& body) {
        body.u32(pid_).u32(tid_).u64(time_).u32(0).u32(0);
        Body header(big_);
        header.u32(type)
            .u16(static_cast<std::uint16_t>(misc))
            .u16(static_cast<std::uint16_t>(8 + body.data.size()));
        bytes.insert(bytes.end(), header.data.begin(), header.data.end());
        bytes.insert(bytes.end(), body.data.begin(), body.data.end());
    }

    bool big_;
    std::uint32_t pid_ = 1;
    std::uint32_t tid_ = 1;
    std::uint64_t time_ = 0;
};

}  // namespace tlbscope::capture
