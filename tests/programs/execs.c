/* Becomes another program: what it did before is recorded, /bin/true is not or is named. */
#include <unistd.h>

static volatile char pages[64][4096];

int main(void) {
    for (int page = 0; page < 64; ++page) pages[page][0]++;
    execl("/bin/true", "true", (char*)NULL);
    return 127;
}
