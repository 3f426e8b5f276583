/* The second opinion on what a recording holds: counts instructions, loads and stores one callback at a time,
 * with nothing in common with tlbscope's own plugin, and writes the sums to a file. QEMU's plugin interface
 * 1, declared here from its documentation.
 *
 *     -plugin libcounting_plugin.so,totals=FILE[,begin=MARK,end=MARK][,base=ADDRESS][,pages=FILE]
 *
 * Counted is every instruction that begins and every access it makes, from the first block that begins after
 * the one holding mark `begin` up to the end of the block holding mark `end`; everything without them. `base`
 * is where the kernel's half of the addresses starts. `pages` gets the page stream in program order, eight
 * bytes a touch: the page number << 1, plus 1 for data; a touch of the same kind and page as the one before
 * it is left out, which changes no miss of any TLB that does not prefetch.
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t Id;
typedef uint32_t MemInfo;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info;
void qemu_plugin_register_vcpu_tb_trans_cb(Id, void (*)(Id, struct qemu_plugin_tb*));
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb*, void (*)(unsigned, void*), int, void*);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn*, void (*)(unsigned, void*), int, void*);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn*, void (*)(unsigned, MemInfo, uint64_t, void*),
                                      int, int, void*);
void qemu_plugin_register_atexit_cb(Id, void (*)(Id, void*), void*);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb*);
struct qemu_plugin_insn* qemu_plugin_tb_get_insn(const struct qemu_plugin_tb*, size_t);
const unsigned char* qemu_plugin_insn_data(const struct qemu_plugin_insn*);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn*);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn*);
unsigned qemu_plugin_mem_size_shift(MemInfo);
bool qemu_plugin_mem_is_store(MemInfo);

__attribute__((visibility("default"))) int qemu_plugin_version = 1;

static const char *totals_name, *pages_name;
static FILE* pages;
static uint64_t kernel_base = UINT64_MAX;
static long begin_mark = -1, end_mark = -1;
static bool counting = true, begin_seen, end_seen;
static uint64_t instructions[2], loads[2], stores[2]; /* by side: user, kernel */
static uint64_t last_page[2] = {UINT64_MAX, UINT64_MAX};

static void touch(uint64_t address, uint64_t size, int kind) {
    for (uint64_t page = address >> 12; page <= (address + size - 1) >> 12; ++page) {
        if (page == last_page[kind]) continue;
        last_page[kind] = page;
        const uint64_t word = page << 1 | kind;
        if (pages) fwrite(&word, sizeof word, 1, pages);
    }
}

static void on_block(unsigned cpu, void* data) {
    (void)cpu, (void)data;
    if (end_seen) counting = false;
    if (begin_seen) counting = true;
    begin_seen = end_seen = false;
}

static void on_instruction(unsigned cpu, void* data) {
    (void)cpu;
    const uint64_t* at = data; /* address, length */
    if (!counting) return;
    ++instructions[at[0] >= kernel_base];
    touch(at[0], at[1], 0);
}

static void on_access(unsigned cpu, MemInfo info, uint64_t address, void* data) {
    (void)cpu, (void)data;
    if (!counting) return;
    ++(qemu_plugin_mem_is_store(info) ? stores : loads)[address >= kernel_base];
    touch(address, UINT64_C(1) << qemu_plugin_mem_size_shift(info), 1);
}

static void on_mark(unsigned cpu, void* data) {
    (void)cpu;
    if ((long)(intptr_t)data == begin_mark) begin_seen = true;
    if ((long)(intptr_t)data == end_mark) end_seen = true;
}

/* x86: 0f 1f 84 00 NN NN 6c 74; big-endian Power: xori r0,r0,N (a mark has two of them; one would do). */
static long mark_number(const unsigned char* b, size_t size) {
    if (size == 8 && memcmp(b, "\x0f\x1f\x84\x00", 4) == 0 && b[6] == 0x6c && b[7] == 0x74)
        return b[4] | b[5] << 8;
    if (size == 4 && b[0] == 0x68 && b[1] == 0x00) return b[2] << 8 | b[3];
    return -1;
}

static void on_translation(Id id, struct qemu_plugin_tb* block) {
    (void)id;
    const size_t n = qemu_plugin_tb_n_insns(block);
    uint64_t* places = malloc(n * 2 * sizeof *places); /* lives as long as the translation, so never freed */
    if (!places) abort();
    qemu_plugin_register_vcpu_tb_exec_cb(block, on_block, 0, NULL);
    for (size_t i = 0; i < n; ++i) {
        struct qemu_plugin_insn* insn = qemu_plugin_tb_get_insn(block, i);
        places[2 * i] = qemu_plugin_insn_vaddr(insn);
        places[2 * i + 1] = qemu_plugin_insn_size(insn);
        qemu_plugin_register_vcpu_insn_exec_cb(insn, on_instruction, 0, &places[2 * i]);
        qemu_plugin_register_vcpu_mem_cb(insn, on_access, 0, 3, NULL);
        const long mark = mark_number(qemu_plugin_insn_data(insn), qemu_plugin_insn_size(insn));
        if (mark >= 0) qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, 0, (void*)(intptr_t)mark);
    }
}

static void at_exit(Id id, void* data) {
    (void)id, (void)data;
    FILE* totals = fopen(totals_name, "w");
    if (!totals) abort();
    static const char* const kSide[] = {"user", "kernel"};
    for (int side = 0; side < 2; ++side)
        fprintf(totals, "%s instructions %" PRIu64 " loads %" PRIu64 " stores %" PRIu64 "\n", kSide[side],
                instructions[side], loads[side], stores[side]);
    fclose(totals);
    if (pages) fclose(pages);
}

__attribute__((visibility("default"))) int qemu_plugin_install(Id id, const struct qemu_info* info, int argc,
                                                               char** argv) {
    (void)info;
    for (int i = 0; i < argc; ++i) {
        if (strncmp(argv[i], "totals=", 7) == 0) totals_name = argv[i] + 7;
        if (strncmp(argv[i], "pages=", 6) == 0) pages_name = argv[i] + 6;
        if (strncmp(argv[i], "base=", 5) == 0) kernel_base = strtoull(argv[i] + 5, NULL, 0);
        if (strncmp(argv[i], "begin=", 6) == 0) begin_mark = strtol(argv[i] + 6, NULL, 0);
        if (strncmp(argv[i], "end=", 4) == 0) end_mark = strtol(argv[i] + 4, NULL, 0);
    }
    if (pages_name) pages = fopen(pages_name, "wb");
    if (!totals_name || (pages_name && !pages)) return 1;
    counting = begin_mark < 0;
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    qemu_plugin_register_atexit_cb(id, at_exit, NULL);
    return 0;
}
