// The agent's report, put together from the units that come over the channel (guests/channel.h,
// guests/messages.h).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"

namespace tlbscope::capture {

// Everything the guest told about itself and the run.
struct GuestFacts {
    std::uint32_t page_size = 0;
    std::uint32_t cpus = 0;
    bool big_endian = false;
    std::string release;  // uname -r
    std::string version;  // uname -v
    std::string machine;  // uname -m
    std::string command_line;
    std::string cpu;
    std::string build_id;  // of the kernel, hex
    std::string modules;   // /proc/modules
    std::string vdso;      // the image, not text
    std::string kallsyms;
    bool has_all_kallsyms = false;  // the list is complete; it comes before the command starts
    std::string tasks;              // those that existed before the command: lines "TID PID FLAGS NAME"
    std::map<std::uint32_t, std::vector<std::uint8_t>> perf;  // by CPU
    std::uint64_t perf_lost = 0;             // records; 1 when some are lost and nobody counted
    std::vector<std::string> trace_formats;  // of the kernel's trace events
    std::map<std::uint32_t, std::vector<std::vector<std::uint8_t>>> trace;  // pages by CPU
    std::uint64_t trace_lost = 0;                                           // events
    std::string out;                                                        // what the command wrote
    std::string err;
    std::uint64_t out_dropped = 0;  // bytes beyond what is kept
    std::uint64_t err_dropped = 0;
    std::uint32_t pid = 0;                    // of the command in the guest
    std::optional<int> status;                // as wait() gives it
    std::optional<std::uint32_t> exec_error;  // errno in the guest: the command never ran
    std::vector<std::string> warnings;        // what the agent could not find out
    std::optional<std::string> failure;       // why it did not start the command
    bool done = false;                        // the report is complete
};

class GuestReport {
  public:
    // The next units, in any pieces. Bytes that cannot come from the agent are an error; the facts so far
    // stay.
    Result<void> feed(std::span<const std::uint16_t> units);
    [[nodiscard]] const GuestFacts& facts() const { return facts_; }
    [[nodiscard]] bool done() const { return facts_.done; }
    [[nodiscard]] std::uint64_t units() const { return units_; }

  private:
    Result<void> unit(std::uint16_t value);
    Result<void> finish_message();

    GuestFacts facts_;
    std::vector<std::uint8_t> bytes_;  // of the message being received
    std::vector<std::uint8_t> notes_;
    std::uint32_t type_ = 0;
    std::uint32_t length_ = 0;
    int header_ = 0;  // units of the header received
    std::uint64_t units_ = 0;
    std::uint64_t kept_ = 0;  // bytes of all texts, to bound the memory
    std::uint64_t kept_trace_ = 0;
    bool hello_ = false;
};

// How the command ended, in words: "exited with status 0", "was killed by signal 11 (Segmentation fault)".
[[nodiscard]] std::string outcome(const GuestFacts& facts);

}  // namespace tlbscope::capture
