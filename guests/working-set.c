/* A program whose working set is known: working-set PAGES ROUNDS [sequential|random] [remap].
 *
 * Between marks 1 and 2 it loads one word from each of PAGES pages, PAGES times in each of ROUNDS rounds:
 * one after the other, or at random (xorshift32 from a fixed seed). The pages were written before mark 1, so
 * no access faults. With `remap`, each round also maps two pages, writes both and unmaps them, so that page
 * faults happen and the kernel flushes the process's translations. Besides them the loop touches one page of
 * code and none of data. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tlbscope/mark.h"

int main(int argc, char** argv) {
    const unsigned long pages = argc > 2 ? strtoul(argv[1], NULL, 10) : 0;
    const unsigned long rounds = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    const int random = argc > 3 && strcmp(argv[3], "random") == 0;
    const int remap = argc > 4 && strcmp(argv[4], "remap") == 0;
    if (pages == 0 || rounds == 0 || (argc > 4 && !remap) ||
        (argc > 3 && !random && strcmp(argv[3], "sequential") != 0)) {
        fprintf(stderr, "usage: working-set PAGES ROUNDS [sequential|random] [remap]\n");
        return 2;
    }
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    volatile uint32_t* at =
        mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) {
        perror("working-set: mmap");
        return 1;
    }
    const size_t words = page / sizeof *at;
    for (unsigned long i = 0; i < pages; ++i) at[i * words] = (uint32_t)i;
    uint32_t sum = 0, state = 2463534242U;
    TLBSCOPE_MARK(1);
    for (unsigned long n = 0; n < rounds; ++n) {
        if (remap) {
            volatile uint32_t* extra =
                mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (extra == MAP_FAILED) {
                perror("working-set: mmap");
                return 1;
            }
            extra[0] = extra[words] = 1;
            munmap((void*)extra, 2 * page);
        }
        for (unsigned long i = 0; i < pages; ++i) {
            unsigned long which = i;
            if (random) {
                state ^= state << 13;
                state ^= state >> 17;
                state ^= state << 5;
                which = state % pages;
            }
            sum += at[which * words];
        }
    }
    TLBSCOPE_MARK(2);
    printf("%u\n", (unsigned)sum);
    return 0;
}
