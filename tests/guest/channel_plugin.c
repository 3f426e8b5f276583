/* The smallest recorder: writes the channel's units to one file and a line per own mark to another. It lets
 * the boot, the agent and the channel be tested without the real plugin. Plugin interface 1 (QEMU 6.0
 * to 8.2), declared here from its documentation.
 *
 *     -plugin libchannel_plugin.so,channel=FILE,marks=FILE[,switches=FILE][,reset=on]
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef struct {
    const char* target_name;
    struct {
        int min, cur;
    } version;
    bool system_emulation;
    struct {
        int smp_vcpus, max_vcpus;
    } system;
} qemu_info_t;
typedef void (*tb_trans_cb)(qemu_plugin_id_t, struct qemu_plugin_tb*);
typedef void (*simple_cb)(qemu_plugin_id_t);
typedef void (*udata_cb)(unsigned, void*);
typedef void (*exit_cb)(qemu_plugin_id_t, void*);
typedef void (*mem_cb)(unsigned, qemu_plugin_meminfo_t, uint64_t, void*);
void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, tb_trans_cb);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb*, udata_cb, int, void*);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn*, udata_cb, int, void*);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn*, mem_cb, int, int, void*);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, exit_cb, void*);
void qemu_plugin_reset(qemu_plugin_id_t, simple_cb);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb*);
struct qemu_plugin_insn* qemu_plugin_tb_get_insn(const struct qemu_plugin_tb*, size_t);
const void* qemu_plugin_insn_data(const struct qemu_plugin_insn*);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn*);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn*);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static qemu_plugin_id_t self;
static FILE *channel, *marks, *switches;
static bool reset_wanted, counting;
static bool expecting[64]; /* per CPU: the last instruction seen was the channel's mark */
/* Addresses that follow a channel mark: a block may end between the two, at a page's end or, with -icount,
 * where the instruction budget runs out. */
static uint64_t after_mark[16];
static uint64_t blocks, accesses, translations;

static int own_mark(struct qemu_plugin_insn* insn) {
    if (qemu_plugin_insn_size(insn) != 8) return -1;
    const unsigned char* b = qemu_plugin_insn_data(insn);
    if (memcmp(b, "\x0f\x1f\x84\x00", 4) != 0 || b[6] != 0x6c || b[7] != 0x74 || b[5] != 0xff) return -1;
    return b[4] | b[5] << 8;
}

static void on_channel_mark(unsigned cpu, void* data) {
    (void)data;
    expecting[cpu & 63] = true;
}

static void on_channel_load(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void* data) {
    (void)info, (void)data;
    if (!expecting[cpu & 63]) return;
    expecting[cpu & 63] = false;
    const unsigned char unit[2] = {address & 0xff, address >> 8 & 0xff};
    fwrite(unit, 1, 2, channel);
}

/* In __switch_to_asm: mov disp32(%rsi),%rsp, with the next task in rsi. */
static void on_switch(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void* data) {
    (void)info;
    fprintf(switches, "%u %" PRIx64 "\n", cpu, address - (uint64_t)(uintptr_t)data);
}

static void on_block(unsigned cpu, void* data) {
    (void)cpu, (void)data;
    ++blocks;
}

static void on_access(unsigned cpu, qemu_plugin_meminfo_t info, uint64_t address, void* data) {
    (void)cpu, (void)info, (void)address, (void)data;
    ++accesses;
}

static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb* tb);

static void at_exit(qemu_plugin_id_t id, void* data) {
    (void)id, (void)data;
    fprintf(marks, "exit blocks %" PRIu64 " accesses %" PRIu64 " translations %" PRIu64 "\n", blocks,
            accesses, translations);
    fclose(marks);
    fclose(channel);
    if (switches) fclose(switches);
}

/* Runs with all CPUs stopped, after QEMU has flushed its translations and dropped every registration of this
 * plugin, the one for the end of QEMU included. Seen on 7.2: it runs before the next block of the CPU that
 * asked. */
static void on_reset(qemu_plugin_id_t id) {
    fprintf(marks, "reset after %" PRIu64 " blocks, %" PRIu64 " translations\n", blocks, translations);
    counting = true;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
}

static void on_mark(unsigned cpu, void* data) {
    fprintf(marks, "%04x cpu %u blocks %" PRIu64 " accesses %" PRIu64 " translations %" PRIu64 "\n",
            (unsigned)(uintptr_t)data, cpu, blocks, accesses, translations);
    fflush(marks);
    if (switches) fprintf(switches, "%u mark %04x\n", cpu, (unsigned)(uintptr_t)data);
    if ((uintptr_t)data == 0xff00 && reset_wanted) {
        qemu_plugin_reset(self, on_reset);
    }
}

/* QEMU 7.2 calls a memory callback registered for loads only (1) never, and one for stores only at loads (it
 * adds one to a value that is already the mask): everything asks for both (3). */
static void on_translation(qemu_plugin_id_t id, struct qemu_plugin_tb* tb) {
    (void)id;
    ++translations;
    if (counting) qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, 0, NULL);
    const size_t n = qemu_plugin_tb_n_insns(tb);
    for (size_t i = 0; i < n; ++i) {
        struct qemu_plugin_insn* insn = qemu_plugin_tb_get_insn(tb, i);
        const uint64_t at = qemu_plugin_insn_vaddr(insn);
        if (counting) qemu_plugin_register_vcpu_mem_cb(insn, on_access, 0, 3, NULL);
        if (after_mark[at >> 4 & 15] == at)
            qemu_plugin_register_vcpu_mem_cb(insn, on_channel_load, 0, 3, NULL);
        const unsigned char* b = qemu_plugin_insn_data(insn);
        if (switches && qemu_plugin_insn_size(insn) == 7 && b[0] == 0x48 && b[1] == 0x8b && b[2] == 0xa6) {
            const uint64_t displacement = b[3] | b[4] << 8 | b[5] << 16 | (uint64_t)b[6] << 24;
            qemu_plugin_register_vcpu_mem_cb(insn, on_switch, 0, 3, (void*)(uintptr_t)displacement);
        }
        const int mark = own_mark(insn);
        if (mark < 0) continue;
        if (mark == 0xff03) {
            after_mark[(at + 8) >> 4 & 15] = at + 8;
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_channel_mark, 0, NULL);
        } else {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, 0, (void*)(uintptr_t)mark);
        }
    }
}

__attribute__((visibility("default"))) int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info,
                                                               int argc, char** argv) {
    (void)info;
    self = id;
    for (int i = 0; i < argc; ++i) {
        if (strncmp(argv[i], "channel=", 8) == 0) channel = fopen(argv[i] + 8, "wb");
        if (strncmp(argv[i], "marks=", 6) == 0) marks = fopen(argv[i] + 6, "w");
        if (strncmp(argv[i], "switches=", 9) == 0) switches = fopen(argv[i] + 9, "w");
        if (strncmp(argv[i], "reset=", 6) == 0) reset_wanted = strcmp(argv[i] + 6, "on") == 0;
    }
    if (!channel || !marks) return 1;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
