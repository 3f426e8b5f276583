/* Works, then dies of a store to address 0. */
static volatile char pages[64][4096];

int main(void) {
    for (int round = 0; round < 100; ++round)
        for (int page = 0; page < 64; ++page) pages[page][0]++;
    *(volatile int*)0 = 1;
    return 0;
}
