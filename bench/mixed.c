/* Work for bench/compare: a hash table that outgrows a small TLB, a sort, and a walk by columns. Static, one
 * thread, no input, so that valgrind and QEMU run the same instructions of it. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { kSlots = 1 << 17, kKeys = 100000, kRows = 512, kColumns = 1024 };
static uint32_t table[kSlots];
static uint32_t keys[kKeys];
static uint32_t matrix[kRows][kColumns];

static uint32_t next(uint32_t* state) { return *state = *state * 1664525 + 1013904223; }

static int compare(const void* a, const void* b) {
    const uint32_t x = *(const uint32_t*)a, y = *(const uint32_t*)b;
    return (x > y) - (x < y);
}

int main(void) {
    uint32_t state = 1, found = 0;
    for (int round = 0; round < 12; ++round) {
        for (int i = 0; i < kKeys; ++i) {
            keys[i] = next(&state) | 1;
            uint32_t at = keys[i] >> 15;
            while (table[at] != 0 && table[at] != keys[i]) at = (at + 1) % kSlots;
            found += table[at] == keys[i];
            table[at] = keys[i];
        }
        qsort(keys, kKeys, sizeof keys[0], compare);
        for (int column = 0; column < kColumns; ++column)
            for (int row = 0; row < kRows; ++row) matrix[row][column] += keys[row] + (uint32_t)column;
        for (int i = 0; i < kSlots; ++i) table[i] = 0;
    }
    printf("%u %u\n", found, matrix[kRows - 1][kColumns - 1]);
    return 0;
}
