/* The smallest program in which a TLB of two entries shows the causes of misses: between marks 1 and 2 it
 * loads from three pages in the order A B A C A B, by one instruction each. A and C have even page numbers, B
 * has an odd one. docs/causes.md follows it load by load.
 *
 *   data, 2 entries              A B A C A B
 *   fully associative, LRU       m m . m . m    compulsory x 3; B: capacity
 *   fully associative, FIFO      m m . m m m    compulsory x 3; A: replacement; B: capacity
 *   2 sets of 1                  m m . m m .    compulsory x 3; A: conflict
 *
 * All code lies on one page.
 */
#include "tlbscope/mark.h"

__asm__(
    "\t.bss\n"
    "\t.balign 8192\n"
    "A:\t.zero 4096\n"
    "B:\t.zero 4096\n"
    "C:\t.zero 4096\n"
    "\t.text\n");

__attribute__((section(".text.driver"), aligned(4096), noreturn)) void _start(void) {
    TLBSCOPE_MARK(1);
    __asm__ volatile(
        "\tjmp 1f\n"
        "1:\tmov A(%rip), %rax\n"
        "\tmov B(%rip), %rax\n"
        "\tmov A(%rip), %rax\n"
        "\tmov C(%rip), %rax\n"
        "\tmov A(%rip), %rax\n"
        "\tmov B(%rip), %rax\n");
    TLBSCOPE_MARK(2);
    __asm__ volatile(
        "\tjmp 1f\n"
        "1:\tmov $231, %eax\n" /* exit_group */
        "\txor %edi, %edi\n"
        "\tsyscall\n");
    __builtin_unreachable();
}
