/* References that lie on two pages: each touches both, the lower first. Built like pages.c; between marks 1
 * and 2:
 *
 *   code   R rounds through N functions, each starting two bytes before the end of page Cj with a six-byte
 * instruction and ending on page Cj+1 with a jump to the next:  D C0 C1 (C1) C2 (C2) ... CN D data   R rounds
 * of M eight-byte loads that start four bytes before the end of page Pj:  P0 P1 (P1) P2 ... PM
 *
 * In brackets: touched again right away, a hit. N and M are above 31, so in each round every page misses,
 * under LRU and under FIFO alike:
 *
 *   instruction misses   R*(N + 2) + 1 = 211     (the rounds and the last return to D; R = 5, N = 40)
 *   data misses          R*(M + 1) = 205         (M = 40)
 *   instructions         1 + R*(3 + 2*N) + 1 + R*(4 + 4*M) + 2 = 1239; loads R*M = 200
 *
 * A tool that allows a reference one miss at most (cachegrind) sees one less in each round: 206 and 200.
 */
#include "tlbscope/mark.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define R 5
#define N 40
#define M 40

__asm__(
    "\t.bss\n"
    "\t.balign 4096\n"
    "array:\t.zero 4096 * (" TEXT(M) " + 1)\n"

    "\t.section .text.chain, \"ax\", @progbits\n"
    "\t.balign 4096, 0xcc\n"
    "chain_page:\n"
    "\t.set function, 0\n"
    "\t.rept " TEXT(N) "\n"
    "\t.org 4096 * function + 4094, 0xcc\n"
    "\tmovl $0, %r8d\n" /* 41 b8 and four bytes of zero */
    "\t.if function + 1 < " TEXT(N) "\n"
    "\tjmp chain_page + 4096 * function + 8190\n"
    "\t.else\n"
    "\tjmp back\n"
    "\t.endif\n"
    "\t.set function, function + 1\n"
    "\t.endr\n"
    "\t.text\n");

__attribute__((section(".text.driver"), aligned(4096), noreturn)) void _start(void) {
    TLBSCOPE_MARK(1);
    __asm__ volatile(
        "\tjmp 1f\n"
        "1:\tmov $" TEXT(R) ", %ecx\n"
        "2:\tjmp chain_page + 4094\n"
        "back:\tdec %ecx\n"
        "\tjnz 2b\n"

        "\tmov $" TEXT(R) ", %ecx\n"
        "5:\tlea array + 4092(%rip), %rax\n"
        "\tmov $" TEXT(M) ", %edx\n"
        "6:\tmov (%rax), %rsi\n"
        "\tadd $4096, %rax\n"
        "\tdec %edx\n"
        "\tjnz 6b\n"
        "\tdec %ecx\n"
        "\tjnz 5b\n");
    TLBSCOPE_MARK(2);
    __asm__ volatile(
        "\tjmp 1f\n"
        "1:\tmov $231, %eax\n" /* exit_group */
        "\txor %edi, %edi\n"
        "\tsyscall\n");
    __builtin_unreachable();
}
