/* Faults in the middle of blocks and handles it: what did not run must not be counted. Built like pages.c,
 * with a handler for SIGSEGV. Between marks 1 and 2, R times: 3 instructions, a store to address 0 as the
 * fourth, then 4 that the handler skips by adding to the saved program counter. The handler has 4
 * instructions, and returns through 2 more (the restorer); of data, each round makes
 *
 *   nothing before the fault; the store that faults is not an access
 *   handler   1 load, 1 store (the saved program counter; add to memory), 1 load (its ret)
 *
 * What the kernel writes for the signal frame is not the program's. Instructions: R*(3 + 1 (began, faulted) +
 * handler 4 + restorer 2 + loop 2) + 2 = 602 for R = 50; loads 2*R = 100, stores R = 50.
 */
#include "tlbscope/mark.h"

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define R 50

__asm__(
    "\t.data\n"
    "\t.balign 8\n"
    /* struct kernel_sigaction: handler, flags SA_SIGINFO | SA_RESTORER, restorer, mask */
    "action:\t.quad handler, 0x04000004, restorer, 0\n"
    "\t.text\n"
    /* The third argument is the ucontext; its saved rip lies at 168 (uc_mcontext at 40, register 16). */
    "handler:\tnop\n"
    "\tnop\n"
    "\taddq $after - faulting, 168(%rdx)\n"
    "\tret\n"
    "restorer:\tmov $15, %eax\n" /* rt_sigreturn */
    "\tsyscall\n");

__attribute__((section(".text.driver"), aligned(4096), noreturn)) void _start(void) {
    __asm__ volatile(
        "\tmov $13, %eax\n" /* rt_sigaction(SIGSEGV, &action, 0, 8) */
        "\tmov $11, %edi\n"
        "\tlea action(%rip), %rsi\n"
        "\txor %edx, %edx\n"
        "\tmov $8, %r10d\n"
        "\tsyscall\n"
        "\tmov $" TEXT(R) ", %r12d\n");
    TLBSCOPE_MARK(1);
    __asm__ volatile(
        "\tjmp 2f\n"
        "2:\tnop\n"
        "\tnop\n"
        "\txor %r8d, %r8d\n"
        "faulting:\tmov %r8, (%r8)\n"
        "\tmov 8(%r8), %r9\n"
        "\tmov %r9, 8(%r8)\n"
        "\tnop\n"
        "\tnop\n"
        "after:\tdec %r12d\n"
        "\tjnz 2b\n");
    TLBSCOPE_MARK(2);
    __asm__ volatile(
        "\tjmp 1f\n"
        "1:\tmov $231, %eax\n" /* exit_group */
        "\txor %edi, %edi\n"
        "\tsyscall\n");
    __builtin_unreachable();
}
