/* A program whose TLB misses follow from how it is built: no libc, no stack, all code but the chain on one
 * page.
 *
 * Between marks 1 and 2 it does two things:
 *   code   R rounds over a chain of N code pages, returning to the driver's page D after each:  D C0 D C1 ...
 * D data   R rounds over M data pages, loading from a hot page H before each store:  H P0 H P1 ... H P(M-1) H
 * P0 ... With N and M above 32 no page of the chain or the array survives in 32 entries until it comes again,
 * whether LRU or FIFO. D and H tell the two apart: under LRU they always hit after their first miss; under
 * FIFO a hit does not renew them, so each 32nd other refill drops them (31 fill the rest of the TLB, the 32nd
 * evicts). So, from an empty TLB:
 *
 *                  instruction misses              data misses
 *   LRU 32         R*N + 1                         R*M + 1
 *   FIFO 32        R*N + 1 + floor(R*N / 32)       R*M + 1 + floor((R*M - 1) / 32)
 *
 * (D is visited once more after the last chain page, H is not visited after the last array page.) R = 7, N =
 * 40, M = 45 make that LRU 281 and 316, FIFO 289 and 325. Loads and stores: R*M = 315 of each.
 *
 * Instructions in the window, which ends with the block of mark 2 (the mark and the branch behind it):
 *   x86_64   1 + R*(4 + 6*N) + 1 + R*(4 + 5*M) + 2 = 3315        whole run: 2 before, 3 after = 3320
 *   ppc      1 + R*(5 + 6*N) + 1 + R*(6 + 5*M) + 3 = 3337        whole run: 3 before, 3 after = 3343
 * The rest of the program runs on D as well and touches no data, so the whole run has the window's misses,
 * which lets cachegrind, which cannot start at a mark, be compared.
 */
#include "tlbscope/mark.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define R 7
#define N 40
#define M 45

#define PAGES(count) "\t.balign 4096\n\t.zero 4096 * " TEXT(count) "\n"
__asm__(
    "\t.bss\n"
    "hot:\n" PAGES(1) "array:\n" PAGES(M) "\t.text\n");

#if defined(__x86_64__)
__asm__(
    "\t.section .text.chain, \"ax\", @progbits\n"
    "\t.balign 4096\n"
    "chain:\n"
    "\t.rept " TEXT(N) "\n"
    "\tjmp *%rsi\n"
    "\t.balign 4096, 0xcc\n"
    "\t.endr\n"
    "\t.text\n");

__attribute__((section(".text.driver"), aligned(4096), noreturn)) void _start(void) {
    TLBSCOPE_MARK(1);
    __asm__ volatile(
        "\tjmp 1f\n"
        "1:\tmov $" TEXT(R) ", %ecx\n"
        "2:\tlea chain(%rip), %rax\n"
        "\tmov $" TEXT(N) ", %edx\n"
        "3:\tlea 4f(%rip), %rsi\n"
        "\tjmp *%rax\n"
        "4:\tadd $4096, %rax\n"
        "\tdec %edx\n"
        "\tjnz 3b\n"
        "\tdec %ecx\n"
        "\tjnz 2b\n"

        "\tmov $" TEXT(R) ", %ecx\n"
        "5:\tlea array(%rip), %rax\n"
        "\tmov $" TEXT(M) ", %edx\n"
        "6:\tmov hot(%rip), %rsi\n"
        "\tmov %rsi, (%rax)\n"
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
#elif defined(__powerpc__)
__asm__(
    "\t.section .text.chain, \"ax\", @progbits\n"
    "\t.balign 4096\n"
    "chain:\n"
    "\t.rept " TEXT(N) "\n"
    "\tblr\n"
    "\t.balign 4096\n"
    "\t.endr\n"
    "\t.text\n");

__attribute__((section(".text.driver"), aligned(4096), noreturn)) void _start(void) {
    TLBSCOPE_MARK(1);
    __asm__ volatile(
        "\tb 1f\n"
        "1:\tli 3, " TEXT(R) "\n"
        "2:\tlis 4, chain@ha\n"
        "\taddi 4, 4, chain@l\n"
        "\tli 5, " TEXT(N) "\n"
        "3:\tmtctr 4\n"
        "\tbctrl\n"
        "\taddi 4, 4, 4096\n"
        "\taddic. 5, 5, -1\n"
        "\tbne 3b\n"
        "\taddic. 3, 3, -1\n"
        "\tbne 2b\n"

        "\tli 3, " TEXT(R) "\n"
        "5:\tlis 4, array@ha\n"
        "\taddi 4, 4, array@l\n"
        "\tlis 6, hot@ha\n"
        "\tli 5, " TEXT(M) "\n"
        "6:\tlwz 7, hot@l(6)\n"
        "\tstw 7, 0(4)\n"
        "\taddi 4, 4, 4096\n"
        "\taddic. 5, 5, -1\n"
        "\tbne 6b\n"
        "\taddic. 3, 3, -1\n"
        "\tbne 5b\n");
    TLBSCOPE_MARK(2);
    __asm__ volatile(
        "\tb 1f\n"
        "1:\tli 0, 234\n" /* exit_group */
        "\tli 3, 0\n"
        "\tsc\n");
    __builtin_unreachable();
}
#endif
