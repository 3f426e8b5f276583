/* Closes everything it can, as daemons do, and goes on working: the recorder's own files must not be among
 * it. */
#include <unistd.h>

static volatile char pages[64][4096];

int main(void) {
    for (int fd = 0; fd < 1024; ++fd) close(fd);
    for (int round = 0; round < 1000; ++round)
        for (int page = 0; page < 64; ++page) pages[page][0]++;
    return 7; /* no output is left to tell that it came this far */
}
