// clang-format off
/* A program whose paths have a footprint that follows from how it is built: no libc, every function on a page
 * of its own, and calls of every sort.
 *
 * Between marks 1 and 2 it calls `work` 10 times and then `tail` 5 times.
 *   work   pushes a register, stores to 5 data pages, on its last 3 calls to a 6th, calls `helper` twice, and pops
 *   tail   jumps to `helper`, whose return ends the call of `tail`
 *   helper loads from 1 data page that nobody else touches
 * So per call, with pages of 4K:
 *            code pages                data pages (one is the stack)      functions
 *   work     2: its own, helper's      7 (7 times), 8 (3 times)           2
 *   tail     2: its own, helper's      2                                  2
 *   helper   1                         2                                  1     25 calls
 * The window between the marks also has the driver's page: 4 code pages, 8 data pages.
 */
// clang-format on
#include "tlbscope/mark.h"

__asm__(
    "\t.bss\n"
    "\t.balign 4096\n"
    "array:\t.zero 4096 * 6\n"
    "own:\t.zero 4096\n"

    "\t.section .text.paths, \"ax\", @progbits\n"
    "\t.balign 4096\n"
    "\t.globl work\n\t.type work, @function\n"
    "work:\tpush %rbx\n"
    "\tlea array(%rip), %rax\n"
    "\tmov $5, %edx\n"
    "\tcmp $3, %ecx\n"
    "\tja 1f\n"
    "\tinc %edx\n"
    "1:\tmov %rax, (%rax)\n"
    "\tadd $4096, %rax\n"
    "\tdec %edx\n"
    "\tjnz 1b\n"
    "\tcall helper\n"
    "\tcall helper\n"
    "\tpop %rbx\n"
    "\tret\n"
    "\t.size work, . - work\n"

    "\t.balign 4096\n"
    "\t.globl tail\n\t.type tail, @function\n"
    "tail:\tjmp helper\n"
    "\t.size tail, . - tail\n"

    "\t.balign 4096\n"
    "\t.globl helper\n\t.type helper, @function\n"
    "helper:\tmov own(%rip), %rax\n"
    "\tret\n"
    "\t.size helper, . - helper\n"
    "\t.balign 4096\n"
    "\t.text\n");

__attribute__((section(".text.driver"), aligned(4096), noreturn)) void _start(void) {
    __asm__ volatile("and $-4096, %rsp\n\tsub $64, %rsp\n");
    TLBSCOPE_MARK(1);
    __asm__ volatile(
        "\tjmp 1f\n"
        "1:\tmov $10, %ecx\n"
        "2:\tcall work\n"
        "\tdec %ecx\n"
        "\tjnz 2b\n"
        "\tmov $5, %ecx\n"
        "3:\tcall tail\n"
        "\tdec %ecx\n"
        "\tjnz 3b\n");
    TLBSCOPE_MARK(2);
    __asm__ volatile(
        "\tjmp 1f\n"
        "1:\tmov $231, %eax\n" /* exit_group */
        "\txor %edi, %edi\n"
        "\tsyscall\n");
    __builtin_unreachable();
}
