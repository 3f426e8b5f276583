// What `tlbscope order` and `tlbscope prove` print.
#pragma once

#include <string>
#include <vector>

#include "explain/paths.h"
#include "layout/image.h"
#include "layout/linker.h"
#include "layout/ordering.h"
#include "layout/proof.h"
#include "machine/machine.h"

namespace tlbscope::report {

struct OrderReport {
    std::string machine;
    std::string geometry;  // "instruction TLB: 32 entries, fully associative, fifo-down, 4K pages"
    Kind kind = Kind::kInstruction;
    std::vector<std::string> recordings;
    std::vector<double> weights;
    std::vector<std::string> tests;
    const layout::Image* image = nullptr;
    layout::Linker linker = layout::Linker::kLld;
    std::string format;
    std::string output;  // the file written; empty when none was
    std::string use;     // how to use it
    const layout::Ordering* ordering = nullptr;
    std::vector<std::string> notes;
    // Misses with the page size that this kernel's text really has, as linked and ordered.
    struct RealPages {
        std::string size;
        std::uint64_t before = 0;
        std::uint64_t after = 0;
    };
    std::vector<RealPages> real_pages;
};

[[nodiscard]] std::string as_text(const OrderReport& report, bool color);
[[nodiscard]] std::string as_json(const OrderReport& report);
[[nodiscard]] std::string as_csv(const OrderReport& report);

struct ProofReport {
    std::string recording;
    std::string order;
    std::vector<std::string> trained_on;  // as the order says
    enum class Seen { kSeen, kUnseen, kUnknown } seen = Seen::kUnknown;
    const layout::Image* image = nullptr;
    layout::Linker linker = layout::Linker::kLld;
    std::size_t listed = 0;   // units that the order moves
    std::size_t missing = 0;  // names that the image does not have
    const layout::Proof* proof = nullptr;
    std::vector<explain::Path> paths;
    std::vector<std::string> notes;
};

[[nodiscard]] std::string as_text(const ProofReport& report, bool color);
[[nodiscard]] std::string as_json(const ProofReport& report);
[[nodiscard]] std::string as_csv(const ProofReport& report);

}  // namespace tlbscope::report
