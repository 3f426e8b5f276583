#include "capture/guest/perf_records.h"

#include <linux/perf_event.h>

#include <cstring>

#include <fmt/format.h>

namespace tlbscope::capture {

namespace {

constexpr std::size_t kHeader = 8;
constexpr std::size_t kSampleId = 24;  // pid, tid, time, CPU, reserved

class Fields {
  public:
    Fields(std::span<const std::uint8_t> bytes, bool big_endian) : bytes_(bytes), big_(big_endian) {}
    template <class T>
    T take() {
        T v = 0;
        if (bytes_.size() < sizeof(T)) {
            short_ = true;
            bytes_ = {};
            return 0;
        }
        for (std::size_t i = 0; i < sizeof(T); ++i)
            v = static_cast<T>(
                v | static_cast<T>(static_cast<T>(bytes_[i]) << 8 * (big_ ? sizeof(T) - 1 - i : i)));
        bytes_ = bytes_.subspan(sizeof(T));
        return v;
    }
    std::uint32_t u32() { return take<std::uint32_t>(); }
    std::uint64_t u64() { return take<std::uint64_t>(); }
    std::string text() {
        const auto* start = reinterpret_cast<const char*>(bytes_.data());
        return bytes_.empty() ? std::string() : std::string(start, ::strnlen(start, bytes_.size()));
    }
    [[nodiscard]] bool cut_short() const { return short_; }

  private:
    std::span<const std::uint8_t> bytes_;
    bool big_;
    bool short_ = false;
};

// Fields of the record's own kind; false for a kind that is skipped.
bool read_body(std::uint32_t type, std::uint16_t misc, Fields& f, PerfRecord& r) {
    switch (type) {
        case PERF_RECORD_MMAP2:
            r.type = PerfType::kMap;
            r.pid = f.u32();
            r.tid = f.u32();
            r.start = f.u64();
            r.length = f.u64();
            r.file_offset = f.u64();
            f.u64();  // device
            f.u64();  // inode
            f.u64();  // inode's generation
            r.protection = f.u32();
            r.flags = f.u32();
            r.name = f.text();
            return true;
        case PERF_RECORD_COMM:
            r.type = PerfType::kName;
            r.exec = (misc & PERF_RECORD_MISC_COMM_EXEC) != 0;
            r.pid = f.u32();
            r.tid = f.u32();
            r.name = f.text();
            return true;
        case PERF_RECORD_FORK:
        case PERF_RECORD_EXIT:
            r.type = type == PERF_RECORD_FORK ? PerfType::kFork : PerfType::kExit;
            r.pid = f.u32();
            r.parent_pid = f.u32();
            r.tid = f.u32();
            r.parent_tid = f.u32();
            return true;
        case PERF_RECORD_SWITCH_CPU_WIDE:
            r.type = PerfType::kSwitch;
            r.away = (misc & PERF_RECORD_MISC_SWITCH_OUT) != 0;
            r.pid = f.u32();
            r.tid = f.u32();
            return true;
        case PERF_RECORD_LOST:
            r.type = PerfType::kLost;
            f.u64();  // event
            r.lost = f.u64();
            return true;
        default:
            return false;
    }
}

}  // namespace

Result<std::vector<PerfRecord>> parse_perf(std::span<const std::uint8_t> bytes, bool big_endian) {
    std::vector<PerfRecord> records;
    for (std::size_t at = 0; at < bytes.size();) {
        const auto bad = [&](const std::string& what) {
            return fail(fmt::format("guest's perf records:byte {}", at), what,
                        "programs and mappings after it are unknown; please report this");
        };
        if (bytes.size() - at < kHeader) return bad("half a header");
        Fields header(bytes.subspan(at, kHeader), big_endian);
        const std::uint32_t type = header.u32();
        const auto misc = header.take<std::uint16_t>();
        const auto size = header.take<std::uint16_t>();
        if (size < kHeader || size > bytes.size() - at)
            return bad(fmt::format("a record of {} bytes where {} are left", size, bytes.size() - at));
        const bool has_id = type < PERF_RECORD_MAX && size >= kHeader + kSampleId;
        const std::size_t body = size - kHeader - (has_id ? kSampleId : 0);
        PerfRecord record;
        Fields fields(bytes.subspan(at + kHeader, body), big_endian);
        if (read_body(type, misc, fields, record)) {
            if (!has_id || fields.cut_short())
                return bad(fmt::format("a record of type {} is too short", type));
            Fields id(bytes.subspan(at + size - kSampleId, kSampleId), big_endian);
            record.current_pid = id.u32();
            record.current_tid = id.u32();
            record.time = id.u64();
            record.cpu = id.u32();
            records.push_back(std::move(record));
        }
        at += size;
    }
    return records;
}

}  // namespace tlbscope::capture
