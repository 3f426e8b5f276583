/* The first program of a recorded guest (/init of its initramfs).
 *
 * It prepares the file systems, tells the recorder what machine and kernel it finds itself in, starts the
 * command between two marks, and sends home what the command wrote, how it ended and which programs ran
 * where. Between kMarkBegin and kMarkEnd it sleeps in wait(): nothing of it runs that the command did not
 * cause, except that the kernel fills the buffers of one software perf event per CPU, which nobody reads
 * before the command has ended. Those records (mappings, names, forks, exits, context switches) are how the
 * recorder learns what a plugin cannot see. The alternatives, ptrace and reading /proc while the command
 * runs, would put their own misses in the account.
 *
 * Configuration, from the folder /.tlbscope of the initramfs: argv and environment (each string ended by a
 * zero), program (path to execute), cwd; events, if the kernel's tracing is wanted (trace.h).
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dirent.h>

#include "capture/guest/messages.h"
#include "channel.h"
#include "tlbscope/mark.h"
#include "trace.h"

#define FOLDER "/.tlbscope"
/* A file system of its own, where messages fit when the command has filled the root. */
#define OUTPUT FOLDER "/output"
enum { kMaxCpus = 64, kMaxStrings = 4096 };

static void put32(unsigned char* to, uint32_t v) {
    for (int i = 0; i < 4; ++i) to[i] = (unsigned char)(v >> 8 * i);
}

static void send32(unsigned type, uint32_t v) {
    unsigned char bytes[4];
    put32(bytes, v);
    channel_message(type, bytes, sizeof bytes);
}

static void send_text(unsigned type, const char* text) { channel_message(type, text, strlen(text)); }

/* The end of every run, good or bad. The recorder stops QEMU when it sees kMessageDone; power-off is for a
 * guest that runs without one. */
static _Noreturn void finish(void) {
    channel_message(kMessageDone, "", 0);
    sync();
    reboot(RB_POWER_OFF);
    for (;;) pause();
}

static _Noreturn void give_up(const char* doing, const char* what) {
    char text[512];
    snprintf(text, sizeof text, "%s %s: %s", doing, what, strerror(errno));
    send_text(kMessageFailure, text);
    finish();
}

static void warn(const char* doing, const char* what) {
    char text[512];
    snprintf(text, sizeof text, "%s %s: %s", doing, what, strerror(errno));
    send_text(kMessageWarning, text);
}

/* The first `limit` bytes of a file (in whole buffers) as messages of at most 64 KiB each; at least one, so
 * that an empty file is told from a missing one. */
static void send_start(unsigned type, const char* path, uint64_t limit) {
    static char buffer[1 << 16];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        warn("cannot read", path);
        return;
    }
    for (int first = 1;; first = 0) {
        if (limit < sizeof buffer) break;
        limit -= sizeof buffer;
        size_t have = 0;
        ssize_t n = 1;
        while (have < sizeof buffer && (n = read(fd, buffer + have, sizeof buffer - have)) > 0)
            have += (size_t)n;
        if (n < 0) warn("cannot read", path);
        if (have > 0 || first) channel_message(type, buffer, have);
        if (n <= 0) break;
    }
    close(fd);
}

static void send_file(unsigned type, const char* path) { send_start(type, path, UINT64_MAX); }

/* What the command wrote, up to kMostOutput bytes, and how much more there is. */
static void send_output(unsigned type, const char* path) {
    send_start(type, path, kMostOutput);
    struct stat st;
    if (stat(path, &st) != 0 || st.st_size <= kMostOutput) return;
    const uint64_t more = (uint64_t)st.st_size - kMostOutput;
    unsigned char bytes[12];
    put32(bytes, type);
    put32(bytes + 4, (uint32_t)more);
    put32(bytes + 8, (uint32_t)(more >> 32));
    channel_message(kMessageDropped, bytes, sizeof bytes);
}

static char* read_whole(const char* path, size_t* size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0) give_up("cannot read", path);
    char* text = malloc((size_t)st.st_size + 1);
    if (!text) give_up("no memory for", path);
    ssize_t n = read(fd, text, (size_t)st.st_size);
    if (n != (ssize_t)st.st_size) give_up("cannot read", path);
    text[n] = 0;
    *size = (size_t)n;
    close(fd);
    return text;
}

/* Strings, each ended by a zero, as argv or environ. */
static char** read_strings(const char* path) {
    static char* strings[2][kMaxStrings + 1];
    static int used;
    char** list = strings[used++];
    size_t size = 0;
    char* text = read_whole(path, &size);
    int count = 0;
    for (size_t at = 0; at < size && count < kMaxStrings; at += strlen(text + at) + 1)
        list[count++] = text + at;
    list[count] = NULL;
    return list;
}

/* A line of a /proc file that starts with `key`, without key and colon. */
static int proc_value(const char* path, const char* key, char* value, size_t size) {
    static char line[4096];
    FILE* f = fopen(path, "re");
    int found = 0;
    while (f && !found && fgets(line, sizeof line, f)) {
        if (strncmp(line, key, strlen(key)) != 0) continue;
        char* at = strchr(line, ':');
        if (!at) continue;
        for (++at; *at == ' ' || *at == '\t'; ++at) {
        }
        at[strcspn(at, "\n")] = 0;
        snprintf(value, size, "%s", at);
        found = 1;
    }
    if (f) fclose(f);
    return found;
}

static void mount_all(void) {
    static const struct {
        const char *type, *at;
    } mounts[] = {
        {"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/dev/shm"}, {"tmpfs", OUTPUT}};
    for (unsigned i = 0; i < sizeof mounts / sizeof *mounts; ++i) {
        mkdir(mounts[i].at, 0755);
        if (mount(mounts[i].type, mounts[i].at, mounts[i].type, 0, NULL) != 0 && errno != EBUSY)
            warn("cannot mount", mounts[i].at);
    }
    chmod("/dev/shm", 01777);
    symlink("/proc/self/fd", "/dev/fd");
    symlink("/proc/self/fd/0", "/dev/stdin");
    symlink("/proc/self/fd/1", "/dev/stdout");
    symlink("/proc/self/fd/2", "/dev/stderr");
    /* The root of an initramfs, and so the command's folder, is a tmpfs. It may fill half the memory unless
     * told: give it four fifths of what is free, so that a command that writes too much is told so before
     * memory runs out. */
    struct statfs fs;
    struct sysinfo info;
    char size[64];
    if (statfs("/", &fs) == 0 && sysinfo(&info) == 0) {
        const uint64_t used = (uint64_t)(fs.f_blocks - fs.f_bfree) * (uint64_t)fs.f_bsize;
        snprintf(size, sizeof size, "size=%lluk",
                 (unsigned long long)((used + (uint64_t)info.freeram * info.mem_unit / 5 * 4) >> 10));
        if (mount("rootfs", "/", "rootfs", MS_REMOUNT, size) != 0) warn("cannot enlarge", "/");
    }
}

/* Distributions do not package the image with its symbols, but every process has it. */
static void send_vdso(void) {
    char line[512];
    FILE* f = fopen("/proc/self/maps", "re");
    while (f && fgets(line, sizeof line, f)) {
        unsigned long start, end;
        if (!strstr(line, "[vdso]") || sscanf(line, "%lx-%lx", &start, &end) != 2) continue;
        channel_message(kMessageVdso, (const void*)start, end - start);
    }
    if (f) fclose(f);
}

static void send_machine(int cpus) {
    unsigned char hello[16];
    put32(hello, kProtocolVersion);
    put32(hello + 4, (uint32_t)sysconf(_SC_PAGESIZE));
    put32(hello + 8, (uint32_t)cpus);
    put32(hello + 12, __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__);
    channel_message(kMessageHello, hello, sizeof hello);

    struct utsname u;
    char text[1024];
    uname(&u);
    int n = snprintf(text, sizeof text, "%s%c%s%c%s", u.release, 0, u.version, 0, u.machine);
    channel_message(kMessageKernel, text, (size_t)n + 1);
    send_file(kMessageCommandLine, "/proc/cmdline");
    if (proc_value("/proc/cpuinfo", "model name", text, sizeof text) ||
        proc_value("/proc/cpuinfo", "cpu", text, sizeof text))
        send_text(kMessageCpu, text);
    send_file(kMessageNotes, "/sys/kernel/notes");
    if (access("/proc/modules", F_OK) == 0) send_file(kMessageModules, "/proc/modules");
    send_vdso();
}

/* Which tasks exist already: perf names only those that start, or change their name, while it watches. */
static void send_tasks(void) {
    static char text[1 << 16];
    size_t used = 0;
    DIR* d = opendir("/proc");
    struct dirent* e;
    while (d && (e = readdir(d)) != NULL) {
        char path[300], stat[1024];
        if (e->d_name[0] < '1' || e->d_name[0] > '9') continue;
        snprintf(path, sizeof path, "/proc/%s/stat", e->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) continue;
        ssize_t n = read(fd, stat, sizeof stat - 1);
        close(fd);
        if (n <= 0) continue;
        stat[n] = 0;
        /* proc(5): pid (comm) state ppid pgrp session tty_nr tpgid flags; comm may hold any character. */
        char *open_bracket = strchr(stat, '('), *close_bracket = strrchr(stat, ')');
        unsigned flags = 0;
        if (!open_bracket || !close_bracket ||
            sscanf(close_bracket + 1, " %*c %*d %*d %*d %*d %*d %u", &flags) != 1)
            continue;
        *close_bracket = 0;
        if (used + 256 > sizeof text) {
            channel_message(kMessageTasks, text, used);
            used = 0;
        }
        used += (size_t)snprintf(text + used, 256, "%s %s %x %s\n", e->d_name, e->d_name, flags,
                                 open_bracket + 1);
    }
    if (d) closedir(d);
    channel_message(kMessageTasks, text, used);
}

struct ring {
    int fd;
    struct perf_event_mmap_page* page;
    size_t size;
};
static struct ring rings[kMaxCpus];

static void perf_open(int cpus) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct sysinfo info;
    sysinfo(&info);
    /* A context switch takes 128 bytes, a mapping about 120: the ring holds over 100,000 of them in a guest
     * with 512 MiB. */
    const uint64_t share = (uint64_t)info.totalram * info.mem_unit / 32 / (unsigned)cpus;
    size_t size = 64 * page;
    while (size * 2 <= share && size < (size_t)64 << 20) size *= 2;

    for (int cpu = 0; cpu < cpus; ++cpu) {
        struct perf_event_attr a;
        memset(&a, 0, sizeof a);
        a.type = PERF_TYPE_SOFTWARE;
        a.config = PERF_COUNT_SW_DUMMY;
        a.size = sizeof a;
        a.disabled = 1;
        a.mmap = a.mmap2 = a.mmap_data = a.comm = a.comm_exec = a.task = a.context_switch = a.sample_id_all =
            1;
        a.sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU;
        a.read_format = 1 << 4; /* PERF_FORMAT_LOST, Linux 6.0 */
        rings[cpu].fd = (int)syscall(SYS_perf_event_open, &a, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
        if (rings[cpu].fd < 0 && errno == EINVAL) {
            a.read_format = 0;
            rings[cpu].fd = (int)syscall(SYS_perf_event_open, &a, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);
        }
        if (rings[cpu].fd < 0) {
            warn("cannot open", "the perf event that names programs and mappings");
            return;
        }
        for (rings[cpu].size = size; rings[cpu].size >= page; rings[cpu].size /= 2) {
            void* at =
                mmap(NULL, page + rings[cpu].size, PROT_READ | PROT_WRITE, MAP_SHARED, rings[cpu].fd, 0);
            if (at != MAP_FAILED) {
                rings[cpu].page = at;
                break;
            }
        }
        if (!rings[cpu].page) warn("cannot map", "the perf buffer");
    }
}

static void perf_switch(int cpus, unsigned long request) {
    for (int cpu = 0; cpu < cpus; ++cpu)
        if (rings[cpu].page) ioctl(rings[cpu].fd, request, 0);
}

static void perf_send(int cpus) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (int cpu = 0; cpu < cpus; ++cpu) {
        const struct ring* r = &rings[cpu];
        if (!r->page) continue;
        const uint64_t head =
            r->page->data_head; /* from offset 0: nobody has read it before, so it did not wrap */
        __sync_synchronize();
        const unsigned char* data = (const unsigned char*)r->page + page;
        for (uint64_t at = 0; at < head;) {
            const size_t n = head - at < 32768 ? (size_t)(head - at) : 32768;
            unsigned char number[4];
            put32(number, (uint32_t)cpu);
            channel_header(kMessagePerf, sizeof number + n);
            channel_bytes(number, sizeof number);
            channel_bytes(data + at, n);
            at += n;
        }
        uint64_t values[2] = {0, 0}; /* value, lost (perf_event_open(2), PERF_FORMAT_LOST) */
        const ssize_t n = read(r->fd, values, sizeof values);
        unsigned char lost[16];
        put32(lost, (uint32_t)cpu);
        put32(lost + 4, n != sizeof values || values[1] != 0);
        put32(lost + 8, (uint32_t)values[1]);
        put32(lost + 12, (uint32_t)(values[1] >> 32));
        channel_message(kMessagePerfLost, lost, sizeof lost);
    }
}

/* Gives the plugin time to switch to full recording: it takes effect at a block boundary some blocks later.
 */
static void arm(void) {
    TLBSCOPE_MARK(kMarkArm);
    for (volatile int i = 0; i < 4096; ++i) {
    }
    for (int i = 0; i < 64; ++i) sched_yield();
}

static void child(const char* program, char** argv, char** environment, volatile int* exec_error,
                  int events) {
    int in = open("/dev/null", O_RDONLY);
    int out = open(OUTPUT "/stdout", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    int err = open(OUTPUT "/stderr", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    if (in < 0 || out < 0 || err < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) {
        *exec_error = errno;
        _exit(127);
    }
    for (int fd = 3; fd < 64; ++fd)
        if (fcntl(fd, F_GETFD) == 0) close(fd); /* others close with exec */
    if (events) {
        /* Trace and recording are to begin at the same point, so nobody else may run there: the parent's
         * faults on pages it shares with this child are over when it sleeps. */
        usleep(20000);
        trace_begin();
    }
    TLBSCOPE_MARK(kMarkBegin);
    execve(program, argv, environment);
    *exec_error = errno;
    _exit(127);
}

int main(void) {
    channel_open();
    umask(022);
    mount_all();
    int console = open("/dev/console", O_RDWR);
    for (int fd = 0; console >= 0 && fd < 3; ++fd)
        if (fd != console) dup2(console, fd);

    size_t size = 0;
    const char* program = read_whole(FOLDER "/program", &size);
    const char* cwd = read_whole(FOLDER "/cwd", &size);
    char** argv = read_strings(FOLDER "/argv");
    char** environment = read_strings(FOLDER "/environment");
    int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (cpus < 1) cpus = 1;
    if (cpus > kMaxCpus) cpus = kMaxCpus;

    send_machine(cpus);
    /* Before the command and in every run: the recorder needs the symbols to know where its window opens, and
     * a run that left them out would not be the same run. */
    send_file(kMessageKallsyms, "/proc/kallsyms");
    if (chdir(cwd) != 0) give_up("cannot enter", cwd);
    volatile int* exec_error =
        mmap(NULL, sizeof(int), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (exec_error == MAP_FAILED) give_up("no memory for", "the command");
    *exec_error = 0;
    const int events = access(FOLDER "/events", F_OK) == 0;
    perf_open(cpus);
    if (events) trace_prepare(cpus, warn);
    send_tasks();
    arm();
    perf_switch(cpus, PERF_EVENT_IOC_ENABLE);
    if (events) trace_start();

    pid_t pid = fork();
    if (pid < 0) give_up("cannot fork for", program);
    if (pid == 0) child(program, argv, environment, exec_error, events);
    int status = 0;
    for (;;) {
        int one = 0;
        pid_t ended = waitpid(-1, &one, 0);
        if (ended != pid) continue; /* an orphan, which only init can reap */
        status = one;
        break;
    }
    if (events) trace_end();
    TLBSCOPE_MARK(kMarkEnd);
    perf_switch(cpus, PERF_EVENT_IOC_DISABLE);
    kill(-1, SIGKILL);

    send32(kMessageCommand, (uint32_t)pid);
    if (*exec_error)
        send32(kMessageExecFailed, (uint32_t)*exec_error);
    else
        send32(kMessageStatus, (uint32_t)status);
    perf_send(cpus);
    if (events) trace_send(cpus);
    send_output(kMessageStdout, OUTPUT "/stdout");
    send_output(kMessageStderr, OUTPUT "/stderr");
    finish();
}
