/* The messages of guests/agent. Numbers inside a message are little-endian whatever the guest. A long text is
 * sent as several messages of the same type, in order. The sender is guests/agent.c, the reader
 * report.h. Plain C. */
#ifndef TLBSCOPE_CAPTURE_GUEST_MESSAGES_H
#define TLBSCOPE_CAPTURE_GUEST_MESSAGES_H

enum {
    kMessageHello = 1,       /* u32 version of this protocol, u32 page size, u32 CPUs, u32 1 if big-endian */
    kMessageKernel = 2,      /* release, version, machine: each ended by a zero */
    kMessageCommandLine = 3, /* /proc/cmdline */
    kMessageCpu = 4,         /* the CPU's name */
    kMessageNotes = 5,       /* /sys/kernel/notes: ELF notes, the build-id among them */
    kMessageModules = 6,     /* /proc/modules */
    kMessageKallsyms = 7,    /* /proc/kallsyms */
    kMessageTasks = 8,       /* the tasks before the command starts: "TID PID FLAGS NAME\n" each, FLAGS hex */
    kMessagePerf = 9,        /* u32 CPU, then whole or cut perf records, in order */
    kMessagePerfLost = 10,   /* u32 CPU, u32 1 if some records may be lost, u64 number lost */
    kMessageStdout = 11,     /* what the command wrote */
    kMessageStderr = 12,
    kMessageCommand = 13,     /* u32 pid of the command */
    kMessageStatus = 14,      /* u32 status as wait() gives it */
    kMessageExecFailed = 15,  /* u32 errno of execve */
    kMessageWarning = 16,     /* text: something that is missing from the report */
    kMessageFailure = 17,     /* text: why the command could not be started */
    kMessageDone = 18,        /* nothing follows */
    kMessageDropped = 19,     /* u32 type of an output, u64 bytes of it that were not sent */
    kMessageVdso = 20,        /* the image that the kernel maps as [vdso] */
    kMessageTraceFormat = 21, /* text of one event's "format" file in tracefs */
    kMessageTrace = 22,       /* u32 CPU, then a page of the kernel's trace buffer up to its last event */
    kMessageTraceLost = 23,   /* u32 CPU, u64 events that found no room */
};

enum {
    kProtocolVersion = 2,
    kMostOutput = 16 << 20, /* bytes sent of what the command wrote to each of its outputs */
};

/* What the agent writes into the trace where the command starts and where it has ended. */
#define kTraceBegin "tlbscope: begin"
#define kTraceEnd "tlbscope: end"

#endif
