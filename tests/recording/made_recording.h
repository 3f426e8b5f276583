// Small recordings made by hand: programs out of invented blocks, run through the real encoder and writer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "recording/encoder.h"
#include "recording/recording.h"
#include "recording/writer.h"

namespace tlbscope::recording::testing {

// QEMU's access descriptions as the tests use them: size as a power of two in the low 4 bits, 16 for a store.
inline const std::vector<std::uint8_t>& access_table() {
    static const std::vector<std::uint8_t> table = [] {
        std::vector<std::uint8_t> made(std::size_t{1} << kKeyInfoBits);
        for (std::size_t i = 0; i < made.size(); ++i) made[i] = static_cast<std::uint8_t>(i & 0x1f);
        return made;
    }();
    return table;
}

// A reference to memory as a test wants it.
struct Access {
    std::uint16_t instruction = 0;
    std::uint8_t size_log2 = 3;
    bool store = false;
    std::uint64_t address = 0;
    friend bool operator==(const Access&, const Access&) = default;
};

struct Execution {
    std::uint32_t translation = 0;
    std::uint16_t begun = 0;  // 0: all instructions
    std::vector<Access> accesses;
    friend bool operator==(const Execution&, const Execution&) = default;
};

struct MadeBlock {
    std::uint64_t address = 0;
    std::vector<std::uint8_t> lengths;
};

// A whole run of several CPUs.
struct MadeRun {
    std::vector<MadeBlock> blocks;
    std::vector<std::vector<Execution>> executions;                  // by CPU
    std::vector<std::vector<std::pair<std::size_t, Event>>> events;  // by CPU: after so many executions
};

// Seeded random run: `blocks` translations, `length` executions a CPU, with loops, strides, misses, early
// ends and changing shapes, as programs have them.
MadeRun random_run(std::uint64_t seed, std::size_t cpus, std::size_t blocks, std::size_t length);

// Encodes the run in buffers of `buffer_blocks` and writes it to `path`. Chunks are closed when full and
// after `chunk_buffers` buffers.
void write_run(const MadeRun& run, const std::filesystem::path& path,
               Granularity granularity = Granularity::kFull, std::size_t buffer_blocks = 100,
               std::size_t chunk_buffers = 3);

// What the recording says happened, CPU by CPU, in the run's own terms (translations are found by address and
// lengths).
struct ReadBack {
    std::vector<std::vector<Execution>> executions;
    std::vector<std::vector<std::pair<std::size_t, Event>>> events;
};
Result<ReadBack> read_back(const Recording& recording, const MadeRun& run);

std::vector<std::uint8_t> file_bytes(const std::filesystem::path& path);
void put_file(const std::filesystem::path& path, std::span<const std::uint8_t> bytes);

// A folder of its own for the test, removed at its end.
class TestFolder {
  public:
    TestFolder();
    ~TestFolder();
    TestFolder(const TestFolder&) = delete;
    TestFolder& operator=(const TestFolder&) = delete;
    [[nodiscard]] std::filesystem::path file(const std::string& name) const { return folder_ / name; }

  private:
    std::filesystem::path folder_;
};

}  // namespace tlbscope::recording::testing
