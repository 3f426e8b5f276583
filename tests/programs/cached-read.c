/* What `hdparm -T` does: reads the same 2 MB again and again, so that they come from the page cache, and
 * after each read writes to every sector of the buffer.
 *
 *     cached-read FILE ROUNDS
 *
 * FILE is written first. Between marks 1 and 2 each round is one lseek, one read of 2 MB and 4,096 accesses,
 * 512 bytes apart: with 4K pages the buffer has 512 of them, as it starts at one, and a round goes through
 * these twice, once in the kernel's copy and once in the loop. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tlbscope/mark.h"

enum { kBytes = 2 << 20, kSector = 512, kPage = 4096 };

int main(int argc, char** argv) {
    const long rounds = argc == 3 ? strtol(argv[2], NULL, 10) : 0;
    if (rounds < 1) {
        fprintf(stderr, "usage: cached-read FILE ROUNDS\n");
        return 2;
    }
    volatile char* buffer = aligned_alloc(kPage, kBytes);
    const int file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (buffer == NULL || file < 0) {
        perror(argv[1]);
        return 1;
    }
    memset((char*)buffer, 1, kBytes);
    if (write(file, (char*)buffer, kBytes) != kBytes) {
        perror(argv[1]);
        return 1;
    }
    TLBSCOPE_MARK(1);
    for (long n = 0; n < rounds; ++n) {
        if (lseek(file, 0, SEEK_SET) != 0 || read(file, (char*)buffer, kBytes) != kBytes) {
            perror(argv[1]);
            return 1;
        }
        for (long i = 0; i < kBytes; i += kSector) buffer[i] &= 1;
    }
    TLBSCOPE_MARK(2);
    return 0;
}
