// Operands of POWER's tlbie and tlbiel in words (Power ISA 3.0, Book III, 5.9.3.3; encodings as the kernel
// makes them, arch/powerpc/mm/book3s64/radix_tlb.c).
#pragma once

#include <optional>
#include <string>

#include "core/tlb_operation.h"

namespace tlbscope {

// What the operands say, in the fields of a TlbOperation; cpu, time and position are the caller's.
[[nodiscard]] TlbOperation operation_of(const TlbieOperands& operands);
// "tlbiel: page 0x7fff8a2d0000 (64K) of PID 12, translations" and the like; odd operands are named as such.
[[nodiscard]] std::string in_words(const TlbieOperands& operands);
// The same without the page, set and process: what all operands of the kind have in common.
[[nodiscard]] std::string kind_in_words(const TlbieOperands& operands);
// "lpid=0, local=1, rb=0x400, rs=0x500000000, ric=0x0, prs=0x1, r=0x1" as the tracepoint powerpc:tlbie prints
// it, in any order, numbers decimal or with 0x; nothing when a field is missing. rb and rs must be there, the
// others take the values of a process's radix translation: lpid 0, local 0, ric 0, prs 1, r 1.
[[nodiscard]] std::optional<TlbieOperands> parse_tlbie(std::string_view text);

// The operands the kernel makes.
[[nodiscard]] TlbieOperands tlbie_page(std::uint64_t address, std::uint64_t page_bytes, std::uint64_t pid,
                                       bool local);
[[nodiscard]] TlbieOperands tlbie_pid(std::uint64_t pid, std::uint64_t set, std::uint64_t ric, bool local);

}  // namespace tlbscope
