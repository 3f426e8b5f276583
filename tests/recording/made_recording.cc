#include "made_recording.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <map>
#include <stdexcept>

namespace tlbscope::recording::testing {

namespace {

void must(const Result<void>& done) {
    if (!done) throw std::runtime_error(done.error().message());
}

std::uint32_t key_of(const Access& access) {
    return std::uint32_t{access.instruction} << kKeyInfoBits | (access.store ? 16U : 0U) | access.size_log2;
}

}  // namespace

MadeRun random_run(std::uint64_t seed, std::size_t cpus, std::size_t blocks, std::size_t length) {
    std::mt19937_64 random(seed);
    const auto upto = [&](std::uint64_t n) { return random() % n; };
    MadeRun run;
    // The usual accesses of each block; some blocks have a second usual set.
    std::vector<std::vector<Access>> shapes;
    for (std::size_t b = 0; b < blocks; ++b) {
        MadeBlock block{.address = (upto(4) == 0 ? 0xffffffff81000000U : 0x400000U) + b * 131 + upto(32)};
        const std::size_t instructions = 1 + upto(6);
        for (std::size_t i = 0; i < instructions; ++i)
            block.lengths.push_back(static_cast<std::uint8_t>(1 + upto(15)));
        run.blocks.push_back(block);
        std::vector<Access> shape;
        for (std::size_t i = 0; i < instructions; ++i)
            for (std::uint64_t n = upto(3); n > 0; --n)
                shape.push_back({.instruction = static_cast<std::uint16_t>(i),
                                 .size_log2 = static_cast<std::uint8_t>(upto(5)),
                                 .store = upto(2) == 0,
                                 .address = upto(1U << 24)});
        shapes.push_back(shape);
    }
    for (std::size_t cpu = 0; cpu < cpus; ++cpu) {
        std::vector<Execution> executions;
        std::vector<std::pair<std::size_t, Event>> events;
        auto here = shapes;
        std::uint32_t at = 0;
        for (std::size_t n = 0; n < length; ++n) {
            at = static_cast<std::uint32_t>(upto(8) == 0 ? upto(blocks) : (at * 7 + 3) % blocks);
            Execution execution{.translation = at};
            for (Access& access : here[at]) {
                switch (upto(10)) {
                    case 0:
                        access.address += upto(256);
                        break;
                    case 1:
                        access.address -= upto(1U << 22);
                        break;
                    case 2:
                        access.address = random();
                        break;
                    default:
                        access.address += 8;
                }
                execution.accesses.push_back(access);
            }
            if (upto(20) == 0 && !execution.accesses.empty()) {
                // A fault: an access and all behind it are missing, and so are the instructions behind.
                const std::size_t kept = upto(execution.accesses.size());
                execution.begun = static_cast<std::uint16_t>(execution.accesses[kept].instruction + 1);
                execution.accesses.resize(kept);
            } else if (upto(20) == 0) {
                execution.accesses.clear();
            } else if (upto(30) == 0) {
                execution.accesses.push_back(
                    {.instruction = static_cast<std::uint16_t>(run.blocks[at].lengths.size() - 1),
                     .size_log2 = 0,
                     .address = random()});
            }
            executions.push_back(execution);
            if (upto(50) == 0)
                events.push_back({n + 1,
                                  {.type = static_cast<EventType>(1 + upto(7)),
                                   .a = random() >> upto(64),
                                   .b = upto(99)}});
        }
        run.executions.push_back(executions);
        run.events.push_back(events);
    }
    return run;
}

void write_run(const MadeRun& run, const std::filesystem::path& path, Granularity granularity,
               std::size_t buffer_blocks, std::size_t chunk_buffers) {
    Metadata metadata{
        .command = {"made"}, .target = "x86_64", .system = true, .kernel_base = 0xffff800000000000};
    metadata.granularity = granularity;
    metadata.cpus = static_cast<std::uint32_t>(run.executions.size());
    auto writer = Writer::create(path, metadata);
    if (!writer) throw std::runtime_error(writer.error().message());
    DictionaryBuilder dictionary{AccessTable(access_table())};
    for (const MadeBlock& block : run.blocks) {
        std::size_t bytes = 0;
        for (const std::uint8_t n : block.lengths) bytes += n;
        std::vector<std::uint8_t> code(bytes, 0x90);
        dictionary.add_translation(
            {.address = VirtAddr(block.address), .lengths = block.lengths, .code = code});
    }
    std::uint64_t ticket = 0;
    for (std::size_t cpu = 0; cpu < run.executions.size(); ++cpu) {
        const auto encoder = Encoder::create(granularity, dictionary, CpuId(static_cast<std::uint32_t>(cpu)),
                                             metadata.kernel_base);
        const auto& executions = run.executions[cpu];
        auto event = run.events[cpu].begin();
        std::size_t buffers = 0;
        for (std::size_t start = 0; start < executions.size(); start += buffer_blocks) {
            const std::size_t end = std::min(start + buffer_blocks, executions.size());
            std::vector<std::uint64_t> words;
            std::vector<std::uint32_t> keys;
            std::vector<std::uint64_t> addresses;
            std::vector<RawEvent> raw;
            for (std::size_t i = start; i < end; ++i) {
                words.push_back(executions[i].translation | std::uint64_t{addresses.size()} << 32);
                for (const Access& access : executions[i].accesses) {
                    keys.push_back(key_of(access));
                    addresses.push_back(access.address);
                }
                const auto position = static_cast<std::uint32_t>(i + 1 - start);
                if (executions[i].begun != 0)
                    raw.push_back(
                        {.position = position, .type = kEarlyEnd, .a = executions[i].begun, .b = 1});
                for (; event != run.events[cpu].end() && event->first == i + 1; ++event)
                    raw.push_back({.position = position,
                                   .type = static_cast<std::uint16_t>(event->second.type),
                                   .a = event->second.a,
                                   .b = event->second.b});
            }
            encoder->consume(
                {.blocks = words, .keys = keys, .addresses = addresses, .events = raw, .ticket = ticket++},
                ~std::uint64_t{0});
            if (encoder->full() || ++buffers % chunk_buffers == 0)
                must(writer->add(pack(encoder->take(), 1)));
        }
        if (!encoder->empty()) must(writer->add(pack(encoder->take(), 1)));
    }
    must(writer->finish(metadata));
}

Result<ReadBack> read_back(const Recording& recording, const MadeRun& run) {
    const auto fail_with = [](const std::string& what) { return fail("", what, ""); };
    ReadBack back;
    back.executions.resize(run.executions.size());
    back.events.resize(run.executions.size());
    std::map<std::pair<std::uint64_t, std::vector<std::uint8_t>>, std::uint32_t> known;
    for (std::uint32_t i = 0; i < run.blocks.size(); ++i)
        known.try_emplace({run.blocks[i].address, run.blocks[i].lengths}, i);
    if (recording.chunks().empty()) return back;
    BatchReader reader(recording, 0);
    for (std::size_t chunk = 0; chunk < recording.chunks().size(); ++chunk) {
        reader.restart(chunk);
        for (;;) {
            auto batch = reader.next();
            if (!batch) return std::unexpected(batch.error());
            if (!*batch) break;
            const Batch& b = **batch;
            if (b.cpu.value() >= back.executions.size()) return fail_with("a CPU that was not there");
            auto& executions = back.executions[b.cpu.value()];
            for (const Event& event : b.events) {
                Event plain = event;
                plain.position = 0;
                back.events[b.cpu.value()].push_back({executions.size() + event.position, plain});
            }
            auto odd = b.odd.begin();
            std::size_t address = 0;
            for (std::size_t i = 0; i < b.blocks.size(); ++i) {
                const Block& block = recording.dictionary()[b.blocks[i]];
                const auto lengths = recording.dictionary().lengths(block);
                const auto found = known.find({block.address.value(), {lengths.begin(), lengths.end()}});
                if (found == known.end()) return fail_with("a block that was not there");
                Execution execution{.translation = found->second};
                auto slots = recording.dictionary().shape(block);
                if (odd != b.odd.end() && odd->ordinal == i) {
                    if (odd->instructions != block.instructions) execution.begun = odd->instructions;
                    slots = b.odd_slots.subspan(odd->first_slot, odd->slot_count);
                    ++odd;
                }
                for (const Slot& slot : slots) {
                    if (address >= b.addresses.size()) return fail_with("accesses without addresses");
                    execution.accesses.push_back({.instruction = slot.instruction,
                                                  .size_log2 = slot.size_log2,
                                                  .store = slot.store,
                                                  .address = b.addresses[address++]});
                }
                executions.push_back(execution);
            }
            if (address != b.addresses.size()) return fail_with("addresses without accesses");
        }
    }
    return back;
}

std::vector<std::uint8_t> file_bytes(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

void put_file(const std::filesystem::path& path, std::span<const std::uint8_t> bytes) {
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
}

TestFolder::TestFolder() {
    static std::atomic<int> count = 0;
    folder_ =
        std::filesystem::temp_directory_path() / fmt::format("tlbscope-test-{}-{}", ::getpid(), count++);
    std::filesystem::create_directories(folder_);
}
TestFolder::~TestFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
}

}  // namespace tlbscope::recording::testing
