/* How bytes leave a guest that has no device: through the addresses of loads.
 *
 * The recorder's plugin sees every address the guest loads from, so a load at `table + value`, with a table
 * aligned to its size of 64 KiB, tells it the 16 bits of `value`. The own mark 0xff03 right before the load
 * says that the address is data. That is millions of units a second, on every architecture, without a driver
 * or an interrupt. A serial line was the alternative: about 0.5 MB/s, thousands of interrupts and exits, and
 * a driver in the kernel.
 *
 * Mark and load are one asm statement, because the plugin takes the load to be the instruction after the
 * mark.
 */
#ifndef TLBSCOPE_GUESTS_CHANNEL_H
#define TLBSCOPE_GUESTS_CHANNEL_H

#include <stddef.h>

enum {
    kMarkArm = 0xff00,     /* full recording on */
    kMarkBegin = 0xff01,   /* the command starts */
    kMarkEnd = 0xff02,     /* the command has ended */
    kMarkChannel = 0xff03, /* the next load's address is data */
};

enum { kChannelUnits = 1 << 16 };

#if defined(__x86_64__) || defined(__i386__)
static inline void channel_unit(const unsigned char* address) {
    unsigned sink;
    __asm__ volatile(
        ".byte 0x0f, 0x1f, 0x84, 0x00; .short 0xff03; .short 0x746c\n\t"
        "movzbl (%1), %0"
        : "=r"(sink)
        : "r"(address)
        : "memory");
}
#elif defined(__powerpc__)
static inline void channel_unit(const unsigned char* address) {
    unsigned long sink;
    __asm__ volatile(
        "xori 0,0,0xff03\n\t"
        "xori 0,0,0xff03\n\t"
        "lbz %0,0(%1)"
        : "=r"(sink)
        : "b"(address)
        : "memory");
}
#elif defined(__aarch64__)
static inline void channel_unit(const unsigned char* address) {
    unsigned long sink;
    __asm__ volatile(
        "movz xzr, #0x746c\n\t"
        "movz xzr, #0xff03\n\t"
        "ldrb %w0, [%1]"
        : "=r"(sink)
        : "r"(address)
        : "memory");
}
#elif defined(__riscv)
static inline void channel_unit(const unsigned char* address) {
    unsigned long sink;
    __asm__ volatile(
        ".option push\n.option norvc\n\t"
        "lui x0, 0x746c\n\t"
        "lui x0, 0xff03\n\t"
        "lbu %0, 0(%1)\n\t"
        ".option pop"
        : "=r"(sink)
        : "r"(address)
        : "memory");
}
#else
#error "channel.h: no mark is defined for this architecture yet"
#endif

/* A message: 0x7463 ("ct"), type, length in bytes (low unit, high unit), then the bytes two to a unit, the
 * first in the low half whatever the architecture. The types are listed in src/capture/guest/messages.h. */
enum { kChannelMagic = 0x7463 };

void channel_open(void);
void channel_header(unsigned type, size_t length);
/* Part of a message's bytes; every part but the last has an even length. */
void channel_bytes(const void* data, size_t length);
void channel_message(unsigned type, const void* data, size_t length);

#endif
