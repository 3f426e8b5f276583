// Misses of a machine by the counting plugin's page stream, looked up one by one in the reference model: a
// way from guest to counts that shares nothing with the recorder, the format, the reader or the engine.
//
//     page_stream MACHINE KERNEL_BASE FILE
//
// Prints four numbers: instruction misses on the user and on the kernel side, then data misses. The stream
// knows nothing of address spaces, so all user pages count as one space's.
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "machine/machine_file.h"
#include "support/reference_tlb.h"

int main(int argc, char** argv) {
    using tlbscope::Kind;
    if (argc != 4) {
        fmt::print(stderr, "usage: page_stream MACHINE KERNEL_BASE FILE\n");
        return 2;
    }
    const auto machine = tlbscope::machine::load_machine(argv[1]);
    if (!machine) {
        fmt::print(stderr, "page_stream: {}\n", machine.error().message());
        return 1;
    }
    const std::uint64_t kernel_page = std::strtoull(argv[2], nullptr, 0) >> 12;
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(argv[3], "rb"), std::fclose);
    if (!file) {
        fmt::print(stderr, "page_stream: cannot open {}\n", argv[3]);
        return 1;
    }
    tlbscope::reference::Tlb tlbs[2] = {{machine->tlb(Kind::kInstruction).geometry, 0},
                                        {machine->tlb(Kind::kData).geometry, 1}};
    std::uint64_t misses[2][2] = {};
    for (std::uint64_t word = 0; std::fread(&word, sizeof word, 1, file.get()) == 1;) {
        const std::uint64_t page = word >> 1;
        const bool kernel = page >= kernel_page;
        if (!tlbs[word & 1].look_up({.kernel = kernel, .space = kernel ? 0U : 1U, .page = page}))
            ++misses[word & 1][kernel ? 1 : 0];
    }
    fmt::print("{} {} {} {}\n", misses[0][0], misses[0][1], misses[1][0], misses[1][1]);
    return 0;
}
