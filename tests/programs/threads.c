/* Four threads, each walking pages of its own: what is recorded is the sum of all. */
#include <pthread.h>
#include <stdio.h>

enum { kThreads = 4, kPages = 64, kRounds = 200 };
static char arrays[kThreads][kPages][4096];
static long sums[kThreads];

static void* walk(void* argument) {
    const long me = (long)argument;
    for (int round = 0; round < kRounds; ++round)
        for (int page = 0; page < kPages; ++page) sums[me] += ++arrays[me][page][0] & 1;
    return NULL;
}

int main(void) {
    pthread_t threads[kThreads];
    for (long i = 0; i < kThreads; ++i)
        if (pthread_create(&threads[i], NULL, walk, (void*)i) != 0) return 1;
    long sum = 0;
    for (int i = 0; i < kThreads; ++i) {
        pthread_join(threads[i], NULL);
        sum += sums[i];
    }
    printf("%ld\n", sum);
    return sum == (long)kThreads * kPages * kRounds / 2 ? 0 : 1;
}
