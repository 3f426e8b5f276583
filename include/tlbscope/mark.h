/* tlbscope/mark.h - numbered points in a program's run.
 *
 *     #include <tlbscope/mark.h>
 *     TLBSCOPE_MARK(1);  work();  TLBSCOPE_MARK(2);
 *
 *     tlbscope record --from mark:1 --to mark:2 -- ./program
 *
 * A mark is eight bytes of instructions that change nothing and carry a number from 0 to 65279 (0xfeff); the
 * numbers above belong to tlbscope. On hardware it costs an instruction or two; under `tlbscope record` it is
 * written into the recording. C or C++, kernel or user code, no library. The number must be a constant
 * expression.
 *
 * A recording that starts at a mark starts with the first block after the one that holds the mark, and one
 * that ends at a mark ends with the block that holds it.
 */
#ifndef TLBSCOPE_MARK_H
#define TLBSCOPE_MARK_H

#if defined(__x86_64__) || defined(__i386__)
/* A no-op with an address operand whose displacement is 0x746cNNNN ("tl" and the number). Intel SDM volume 2,
 * NOP: the multi-byte form reads no memory. */
#define TLBSCOPE_MARK(number)                                                  \
    __asm__ volatile(".byte 0x0f, 0x1f, 0x84, 0x00; .short %c0; .short 0x746c" \
                     :                                                         \
                     : "i"((number) & 0xffff)                                  \
                     : "memory")
#elif defined(__powerpc__)
/* The same exclusive-or twice leaves the register as it was. */
#define TLBSCOPE_MARK(number) \
    __asm__ volatile("xori 0,0,%0\n\txori 0,0,%0" : : "i"((number) & 0xffff) : "memory")
#elif defined(__aarch64__)
/* Moves into the zero register: the first says "tl", the second carries the number. */
#define TLBSCOPE_MARK(number) \
    __asm__ volatile("movz xzr, #0x746c\n\tmovz xzr, #%0" : : "i"((number) & 0xffff) : "memory")
#elif defined(__riscv)
/* Loads into x0 are hints. */
#define TLBSCOPE_MARK(number)                                                                   \
    __asm__ volatile(".option push\n.option norvc\n\tlui x0, 0x746c\n\tlui x0, %0\n.option pop" \
                     :                                                                          \
                     : "i"((number) & 0xffff)                                                   \
                     : "memory")
#else
#error "tlbscope/mark.h: no mark is defined for this architecture yet"
#endif

#endif
