/* Which events, and why these (Linux 6.1, which has no tracepoint for most of memory management):
 *
 *   what a process asks for     raw_syscalls, of mmap, munmap, mprotect, mremap, brk and madvise only
 *   processes and threads       sched_process_fork, _exec, _exit, sched_switch; kernel_clone's flags tell a
 * thread, or a child that borrows the space until its exec, from a process faults                      x86:
 * exceptions:page_fault_user and _kernel; elsewhere handle_mm_fault what is asked of the flush code, which
 * decides from this how to flush its entry points: radix__* on POWER, flush_tlb_mm_range and its kin on x86
 *   what it then did            powerpc:tlbie, one instruction each; tlb:tlb_flush
 *   paths without a flush       unmap_region, change_protection, exit_mmap
 *
 * A probe's arguments are read where the calling convention puts them: ARG1 and so on are those registers.
 * The offsets are those of struct vm_area_struct (vm_mm at 16) and struct mmu_gather (mm 0, start 16, end 24,
 * bits 32: fullmm, need_flush_all, freed_tables; page_size 128 with POWER's configuration).
 *
 * The buffers do not wrap: what does not fit is lost at the end and counted, and everything before it is
 * whole. */
#define _GNU_SOURCE
#include "trace.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "capture/guest/messages.h"
#include "channel.h"

#define TRACEFS "/sys/kernel/tracing"

static void (*complain)(const char* doing, const char* what);
static int marker = -1, switch_on = -1;

static int put(const char* name, const char* text) {
    char path[256];
    snprintf(path, sizeof path, TRACEFS "/%s", name);
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    const ssize_t n = write(fd, text, strlen(text));
    const int code = errno;
    close(fd);
    errno = code;
    return n < 0 ? -1 : 0;
}

#if defined(__x86_64__)
#define ARG1 "%di"
#define ARG2 "%si"
#define ARG3 "%dx"
#define ARG4 "%cx"
#define ARG5 "%r8"
#define ARG6 "%r9"
#define ARG7 "$stack1" /* behind the return address */
#define CALLS "id==9||id==10||id==11||id==12||id==25||id==28"
static const char* const probes[] = {
    "flush_mm flush_tlb_mm_range mm=" ARG1 ":x64 start=" ARG2 ":x64 end=" ARG3 ":x64 shift=" ARG4
    ":u32 freed=" ARG5 ":u8",
    "flush_kernel flush_tlb_kernel_range start=" ARG1 ":x64 end=" ARG2 ":x64",
    "flush_everything flush_tlb_all",
};
static const char* const events[] = {
    "exceptions/page_fault_user",
    "exceptions/page_fault_kernel",
    "tlb/tlb_flush",
};
#else /* POWER; a ppc32 guest has no tracing */
#define ARG1 "%gpr3"
#define ARG2 "%gpr4"
#define ARG3 "%gpr5"
#define ARG4 "%gpr6"
#define ARG5 "%gpr7"
#define ARG6 "%gpr8"
#define ARG7 "%gpr9"
#define CALLS "id==90||id==125||id==91||id==45||id==163||id==205"
static const char* const probes[] = {
    "flush_gather radix__tlb_flush mm=+0(" ARG1 "):x64 start=+16(" ARG1 "):x64 end=+24(" ARG1
    "):x64 bits=+32(" ARG1 "):u16 page=+128(" ARG1 "):u32",
    "flush_range radix__flush_tlb_range mm=+16(" ARG1 "):x64 start=" ARG2 ":x64 end=" ARG3 ":x64",
    "flush_page radix__flush_tlb_page_psize mm=" ARG1 ":x64 start=" ARG2 ":x64",
    "flush_huge radix__flush_pmd_tlb_range mm=+16(" ARG1 "):x64 start=" ARG2 ":x64 end=" ARG3 ":x64",
    "flush_collapsed radix__flush_tlb_collapsed_pmd mm=" ARG1 ":x64 start=" ARG2 ":x64",
    "flush_mm radix__flush_tlb_mm mm=" ARG1 ":x64",
    "flush_all_mm radix__flush_all_mm mm=" ARG1 ":x64",
    "flush_kernel radix__flush_tlb_kernel_range start=" ARG1 ":x64 end=" ARG2 ":x64",
    "fault handle_mm_fault mm=+16(" ARG1 "):x64 address=" ARG2 ":x64 flags=" ARG3 ":u32",
};
static const char* const events[] = {"powerpc/tlbie"};
#endif

static const char* const common_probes[] = {
    "clone kernel_clone flags=+0(" ARG1 "):x64",
    "exit_space exit_mmap mm=" ARG1 ":x64",
    "protect change_protection mm=+16(" ARG2 "):x64 start=" ARG3 ":x64 end=" ARG4 ":x64",
    "unmap unmap_region mm=" ARG1 ":x64 start=" ARG6 ":x64 end=" ARG7 ":x64",
};
static const char* const common_events[] = {"raw_syscalls/sys_enter",   "raw_syscalls/sys_exit",
                                            "sched/sched_switch",       "sched/sched_process_fork",
                                            "sched/sched_process_exec", "sched/sched_process_exit"};

static void send_format(const char* event) {
    static char text[1 << 14];
    char path[256];
    snprintf(path, sizeof path, TRACEFS "/events/%s/format", event);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        complain("cannot read", path);
        return;
    }
    size_t have = 0;
    ssize_t n;
    while (have < sizeof text && (n = read(fd, text + have, sizeof text - have)) > 0) have += (size_t)n;
    close(fd);
    channel_message(kMessageTraceFormat, text, have);
}

static void enable(const char* event) {
    char path[256];
    snprintf(path, sizeof path, "events/%s/enable", event);
    if (put(path, "1") != 0)
        complain("cannot enable the event", event);
    else
        send_format(event);
}

static void probe(const char* definition) {
    char text[512], event[128];
    snprintf(text, sizeof text, "p:tlbscope/%s", definition);
    const int fd = open(TRACEFS "/kprobe_events", O_WRONLY | O_APPEND | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : write(fd, text, strlen(text));
    if (n < 0) {
        complain("cannot set the probe", definition);
        if (fd >= 0) close(fd);
        return;
    }
    close(fd);
    snprintf(event, sizeof event, "tlbscope/%.*s", (int)strcspn(definition, " "), definition);
    enable(event);
}

void trace_prepare(int cpus, void (*warn)(const char* doing, const char* what)) {
    complain = warn;
    if (mount("tracefs", TRACEFS, "tracefs", 0, NULL) != 0 && errno != EBUSY) {
        complain("cannot mount", "tracefs");
        return;
    }
    put("tracing_on", "0");
    /* One clock for all CPUs, in nanoseconds. */
    if (put("trace_clock", "mono") != 0) complain("cannot set", "the clock of the trace");
    put("options/overwrite", "0");
    struct sysinfo info;
    sysinfo(&info);
    char size[32];
    snprintf(size, sizeof size, "%llu",
             (unsigned long long)info.totalram * info.mem_unit / 3 / (unsigned)cpus >> 10);
    if (put("buffer_size_kb", size) != 0) complain("cannot enlarge", "the buffers of the trace");

    for (unsigned i = 0; i < sizeof probes / sizeof *probes; ++i) probe(probes[i]);
    for (unsigned i = 0; i < sizeof common_probes / sizeof *common_probes; ++i) probe(common_probes[i]);
    put("events/raw_syscalls/filter", CALLS);
    for (unsigned i = 0; i < sizeof events / sizeof *events; ++i) enable(events[i]);
    for (unsigned i = 0; i < sizeof common_events / sizeof *common_events; ++i) enable(common_events[i]);
    send_format("ftrace/print");
    marker = open(TRACEFS "/trace_marker", O_WRONLY | O_CLOEXEC);
    switch_on = open(TRACEFS "/tracing_on", O_WRONLY | O_CLOEXEC);
    if (marker < 0 || switch_on < 0) complain("cannot start", "the trace");
}

static void mark(const char* text) {
    if (marker >= 0 && write(marker, text, strlen(text)) < 0) complain("cannot mark", "the trace");
}

void trace_start(void) {
    if (switch_on >= 0 && write(switch_on, "1", 1) < 0) complain("cannot start", "the trace");
}
void trace_begin(void) { mark(kTraceBegin); }
void trace_end(void) {
    mark(kTraceEnd);
    if (switch_on >= 0 && write(switch_on, "0", 1) < 0) complain("cannot stop", "the trace");
}

/* Lines "overrun: N" and "dropped events: N" of the buffer's statistics. */
static uint64_t lost_events(int cpu) {
    char path[128], line[256];
    snprintf(path, sizeof path, TRACEFS "/per_cpu/cpu%d/stats", cpu);
    FILE* f = fopen(path, "re");
    uint64_t lost = 0;
    while (f && fgets(line, sizeof line, f)) {
        unsigned long long n;
        if (sscanf(line, "overrun: %llu", &n) == 1 || sscanf(line, "commit overrun: %llu", &n) == 1 ||
            sscanf(line, "dropped events: %llu", &n) == 1)
            lost += n;
    }
    if (f) fclose(f);
    return lost;
}

void trace_send(int cpus) {
    static unsigned char page[1 << 16];
    const size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    for (int cpu = 0; cpu < cpus; ++cpu) {
        const uint64_t lost = lost_events(cpu);
        unsigned char number[12];
        for (int i = 0; i < 4; ++i) number[i] = (unsigned char)(cpu >> 8 * i);
        for (int i = 0; i < 8; ++i) number[4 + i] = (unsigned char)(lost >> 8 * i);
        channel_message(kMessageTraceLost, number, sizeof number);
        char path[128];
        snprintf(path, sizeof path, TRACEFS "/per_cpu/cpu%d/trace_pipe_raw", cpu);
        const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
        if (fd < 0) {
            complain("cannot read", path);
            continue;
        }
        ssize_t n;
        while ((n = read(fd, page, page_bytes < sizeof page ? page_bytes : sizeof page)) > 0) {
            /* The header's second word holds how many bytes of events follow it (header_page's "commit"). */
            uint64_t commit = 0;
            memcpy(&commit, page + 8, sizeof(long));
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
            commit >>= 64 - 8 * sizeof(long);
#endif
            size_t used = 8 + sizeof(long) + (commit & 0xfffff);
            if (used > (size_t)n) used = (size_t)n;
            channel_header(kMessageTrace, 4 + used);
            channel_bytes(number, 4);
            channel_bytes(page, used);
        }
        close(fd);
    }
}
