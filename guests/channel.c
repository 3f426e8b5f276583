#include "channel.h"

static unsigned char table[kChannelUnits] __attribute__((aligned(kChannelUnits)));

/* Written once, so that no load of the channel faults. */
void channel_open(void) {
    volatile unsigned char* p = table;
    for (size_t i = 0; i < sizeof table; i += 1024) p[i] = 1;
}

static void unit(unsigned value) { channel_unit(table + (value & 0xffff)); }

void channel_header(unsigned type, size_t length) {
    unit(kChannelMagic);
    unit(type);
    unit((unsigned)(length & 0xffff));
    unit((unsigned)(length >> 16 & 0xffff));
}

void channel_bytes(const void* data, size_t length) {
    const unsigned char* p = data;
    for (; length >= 2; length -= 2, p += 2) unit(p[0] | (unsigned)p[1] << 8);
    if (length) unit(p[0]);
}

void channel_message(unsigned type, const void* data, size_t length) {
    channel_header(type, length);
    channel_bytes(data, length);
}
