/* Repeated string instructions: each execution is a reference, the instruction is counted once. Built like
 * pages.c; between marks 1 and 2, R times: a copy of K bytes, a fill of 2*K eight-byte words (which crosses
 * pages), and a copy of nothing. A repetition of n executes n + 1 times under QEMU and valgrind alike: its n
 * iterations and the look at the counter that ends it; one of nothing executes once.
 *
 *   instruction references   1 + R*(5 + (K + 1) + 3 + (2*K + 1) + 2 + 1 + 2) + 2 = 2748
 *   instructions             1 + R*(5 + 1 + 3 + 1 + 2 + 1 + 2) + 2 = 48
 *   loads R*K = 900, stores R*(K + 2*K) = 2700     (R = 3, K = 300)
 *
 * Data pages: the source, the copy's target, and the two that 4800 bytes of fill cover: 4 misses in any TLB
 * of 4 entries and more. Instruction pages: 1. The whole run has 5 instructions more, all on that page.
 */
#include "tlbscope/mark.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define R 3
#define K 300

__asm__(
    "\t.bss\n"
    "\t.balign 4096\n"
    "from:\t.zero 4096\n"
    "to:\t.zero 4096\n"
    "filled:\t.zero 8192\n"
    "\t.text\n");

__attribute__((section(".text.driver"), aligned(4096), noreturn)) void _start(void) {
    TLBSCOPE_MARK(1);
    __asm__ volatile(
        "\tjmp 1f\n"
        "1:\tmov $" TEXT(R) ", %edx\n"
        "2:\tcld\n"
        "\txor %eax, %eax\n"
        "\tlea from(%rip), %rsi\n"
        "\tlea to(%rip), %rdi\n"
        "\tmov $" TEXT(K) ", %ecx\n"
        "\trep movsb\n"
        "\txor %eax, %eax\n"
        "\tlea filled(%rip), %rdi\n"
        "\tmov $2 * " TEXT(K) ", %ecx\n"
        "\trep stosq\n"
        "\txor %ecx, %ecx\n"
        "\tlea to(%rip), %rdi\n"
        "\trep movsb\n"
        "\tdec %edx\n"
        "\tjnz 2b\n");
    TLBSCOPE_MARK(2);
    __asm__ volatile(
        "\tjmp 1f\n"
        "1:\tmov $231, %eax\n" /* exit_group */
        "\txor %edi, %edi\n"
        "\tsyscall\n");
    __builtin_unreachable();
}
