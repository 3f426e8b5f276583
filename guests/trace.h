/* The kernel's own account of what happens to address spaces and translations: tracepoints and kprobe events,
 * kept in the kernel's ring buffers while the command runs and sent home as they are. */
#ifndef TLBSCOPE_GUESTS_TRACE_H
#define TLBSCOPE_GUESTS_TRACE_H

/* Mounts tracefs and prepares everything; what the kernel does not have becomes a warning. `warn` gets what
 * was tried and on what; errno says why it failed. */
void trace_prepare(int cpus, void (*warn)(const char* doing, const char* what));
/* From the first call on events are kept; what lies between begin and end belongs to the command. Both put a
 * marker into the trace, which the caller's own mark should follow at once. */
void trace_start(void);
void trace_begin(void);
void trace_end(void);
/* Sends formats, pages and counts of lost events. */
void trace_send(int cpus);

#endif
