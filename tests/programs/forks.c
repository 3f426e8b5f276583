/* A child that works and one that runs another program; the parent waits for both. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile char pages[64][4096];

static void work(int rounds) {
    for (int round = 0; round < rounds; ++round)
        for (int page = 0; page < 64; ++page) pages[page][0]++;
}

int main(void) {
    const pid_t worker = fork();
    if (worker == 0) {
        work(500);
        _exit(3);
    }
    const pid_t runner = fork();
    if (runner == 0) {
        execl("/bin/true", "true", (char*)NULL);
        _exit(127);
    }
    work(100);
    int first = 0, second = 0;
    waitpid(worker, &first, 0);
    waitpid(runner, &second, 0);
    printf("worker %d, true %d\n", WEXITSTATUS(first), WEXITSTATUS(second));
    return 0;
}
