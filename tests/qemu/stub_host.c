/* A QEMU that is none: exports the plugin interface as version INTERFACE had it, loads a plugin the way QEMU
 * does and plays it a guest of three blocks. Only interface 1 can be had from Debian 12's QEMU, so this is
 * how the plugin meets versions 2 to 5 (and is seen to refuse others): a missing symbol fails the load, a
 * changed signature gives garbage.
 *
 * Built once per version under the name of a real QEMU, so that `tlbscope record` finds it on PATH and the
 * whole way from plugin to recording is tested:   qemu-x86_64 [options] -plugin FILE[,argument...] [options]
 * PROGRAM
 *
 * What the versions changed (QEMU's include/qemu/qemu-plugin.h and qemu-plugins.symbols over time):
 *   1 (6.0)   the base; 2 (9.0) drops n_vcpus, n_max_vcpus and the *_inline calls, adds scoreboards,
 * *_inline_per_vcpu, num_vcpus, registers; minimum version rises to 2; 3 (9.1) insn_data copies, conditional
 * callbacks, time control; 4 (9.2) mem_get_value, read_memory_vaddr; 5 (10.1) memory and register writes,
 * translate_vaddr. 0 (4.2) has no minimum and no plugin of ours can load; 6 and 7 (11.x) change callback
 * signatures.
 *
 * The guest (kPlay says in which order): addresses and accesses follow from the number of the execution, so
 * that the test can state what a recording must hold.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef INTERFACE
#error "compile with -DINTERFACE=0..7"
#endif

#define EXPORT __attribute__((visibility("default")))
typedef uint64_t Id;
typedef uint32_t MemInfo;
typedef void (*UdataCallback)(unsigned, void*);
typedef void (*MemCallback)(unsigned, MemInfo, uint64_t, void*);
typedef void (*SimpleCallback)(Id);
typedef void (*IdUdataCallback)(Id, void*);
typedef void (*VcpuCallback)(Id, unsigned);
typedef void (*SyscallCallback)(Id, unsigned, int64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
                                uint64_t, uint64_t, uint64_t);
typedef void (*SyscallRetCallback)(Id, unsigned, int64_t, int64_t);

enum { kMostCallbacks = 8, kMostInstructions = 4 };

struct ExecHook {
    UdataCallback call;
    void* data;
};
struct MemHook {
    MemCallback call;
    void* data;
    int rw;
};
struct qemu_plugin_insn {
    uint64_t address;
    unsigned char bytes[15];
    unsigned char size;
    struct ExecHook exec[kMostCallbacks];
    struct MemHook mem[kMostCallbacks];
    int exec_count, mem_count;
};
struct qemu_plugin_tb {
    size_t n;
    struct qemu_plugin_insn insns[kMostInstructions];
    struct ExecHook exec[kMostCallbacks];
    int exec_count;
};
typedef struct {
    const char* target_name;
    struct {
        int min, cur;
    } version;
    bool system_emulation;
    union {
        struct {
            int smp_vcpus, max_vcpus;
        } system;
    };
} Info;

static void die(const char* what, const char* detail) {
    fprintf(stderr, "stub host (interface %d): %s %s\n", INTERFACE, what, detail);
    exit(99);
}

/* --- what plugins register --- */

#if INTERFACE >= 7
typedef void (*TranslationCallback)(struct qemu_plugin_tb*, void*);
#else
typedef void (*TranslationCallback)(Id, struct qemu_plugin_tb*);
#endif

static struct {
    TranslationCallback translation;
    void* translation_data;
    VcpuCallback vcpu_init, vcpu_exit, vcpu_idle, vcpu_resume;
    SimpleCallback flush;
    IdUdataCallback at_exit;
    void* at_exit_data;
    SyscallCallback syscall;
    SyscallRetCallback syscall_ret;
} hooks;

#if INTERFACE >= 7
EXPORT void qemu_plugin_register_vcpu_tb_trans_cb(Id id, TranslationCallback call, void* data) {
    (void)id;
    hooks.translation = call;
    hooks.translation_data = data;
}
#else
EXPORT void qemu_plugin_register_vcpu_tb_trans_cb(Id id, TranslationCallback call) {
    (void)id;
    hooks.translation = call;
}
#endif
EXPORT void qemu_plugin_register_vcpu_init_cb(Id id, VcpuCallback call) {
    (void)id;
    hooks.vcpu_init = call;
}
EXPORT void qemu_plugin_register_vcpu_exit_cb(Id id, VcpuCallback call) {
    (void)id;
    hooks.vcpu_exit = call;
}
EXPORT void qemu_plugin_register_vcpu_idle_cb(Id id, VcpuCallback call) {
    (void)id;
    hooks.vcpu_idle = call;
}
EXPORT void qemu_plugin_register_vcpu_resume_cb(Id id, VcpuCallback call) {
    (void)id;
    hooks.vcpu_resume = call;
}
EXPORT void qemu_plugin_register_flush_cb(Id id, SimpleCallback call) {
    (void)id;
    hooks.flush = call;
}
EXPORT void qemu_plugin_register_atexit_cb(Id id, IdUdataCallback call, void* data) {
    (void)id;
    hooks.at_exit = call;
    hooks.at_exit_data = data;
}
EXPORT void qemu_plugin_register_vcpu_syscall_cb(Id id, SyscallCallback call) {
    (void)id;
    hooks.syscall = call;
}
EXPORT void qemu_plugin_register_vcpu_syscall_ret_cb(Id id, SyscallRetCallback call) {
    (void)id;
    hooks.syscall_ret = call;
}
EXPORT void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb* tb, UdataCallback call, int flags,
                                                 void* data) {
    (void)flags;
    if (tb->exec_count == kMostCallbacks) die("too many", "block callbacks");
    tb->exec[tb->exec_count++] = (struct ExecHook){call, data};
}
EXPORT void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn* insn, UdataCallback call,
                                                   int flags, void* data) {
    (void)flags;
    if (insn->exec_count == kMostCallbacks) die("too many", "instruction callbacks");
    insn->exec[insn->exec_count++] = (struct ExecHook){call, data};
}
EXPORT void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn* insn, MemCallback call, int flags,
                                             int rw, void* data) {
    (void)flags;
    if (insn->mem_count == kMostCallbacks) die("too many", "memory callbacks");
    insn->mem[insn->mem_count++] = (struct MemHook){call, data, rw};
}

/* --- what plugins ask --- */

EXPORT size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb* tb) { return tb->n; }
EXPORT uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb* tb) { return tb->insns[0].address; }
EXPORT struct qemu_plugin_insn* qemu_plugin_tb_get_insn(struct qemu_plugin_tb* tb, size_t i) {
    return i < tb->n ? &tb->insns[i] : NULL;
}
#if INTERFACE >= 3
EXPORT size_t qemu_plugin_insn_data(const struct qemu_plugin_insn* insn, void* to, size_t room) {
    const size_t n = room < insn->size ? room : insn->size;
    memcpy(to, insn->bytes, n);
    return n;
}
#else
EXPORT const void* qemu_plugin_insn_data(const struct qemu_plugin_insn* insn) { return insn->bytes; }
#endif
EXPORT size_t qemu_plugin_insn_size(const struct qemu_plugin_insn* insn) { return insn->size; }
EXPORT uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn* insn) { return insn->address; }
EXPORT void* qemu_plugin_insn_haddr(const struct qemu_plugin_insn* insn) { return (void*)insn->bytes; }
EXPORT char* qemu_plugin_insn_disas(const struct qemu_plugin_insn* insn) {
    (void)insn;
    return strdup("stub");
}
EXPORT const char* qemu_plugin_insn_symbol(const struct qemu_plugin_insn* insn) {
    (void)insn;
    return NULL;
}
/* As QEMU packs it: memop << 4 with the size's logarithm in its low bits, and 1 << 16 load, 2 << 16 store. */
EXPORT unsigned qemu_plugin_mem_size_shift(MemInfo info) { return info >> 4 & 7; }
EXPORT bool qemu_plugin_mem_is_store(MemInfo info) { return info >> 16 & 2; }
EXPORT bool qemu_plugin_mem_is_sign_extended(MemInfo info) { return info >> 4 & 8; }
EXPORT bool qemu_plugin_mem_is_big_endian(MemInfo info) { return info >> 4 & 16; }
/* User mode has no physical addresses. */
EXPORT void* qemu_plugin_get_hwaddr(MemInfo info, uint64_t address) {
    (void)info, (void)address;
    return NULL;
}
EXPORT bool qemu_plugin_hwaddr_is_io(const void* haddr) {
    (void)haddr;
    return false;
}
EXPORT uint64_t qemu_plugin_hwaddr_phys_addr(const void* haddr) {
    (void)haddr;
    return 0;
}
EXPORT const char* qemu_plugin_hwaddr_device_name(const void* haddr) {
    (void)haddr;
    return "RAM";
}
static char* program;
EXPORT const char* qemu_plugin_path_to_binary(void) { return strdup(program ? program : ""); }
EXPORT uint64_t qemu_plugin_start_code(void) { return 0x400000; }
EXPORT uint64_t qemu_plugin_end_code(void) { return 0x404000; }
EXPORT uint64_t qemu_plugin_entry_code(void) { return 0x401000; }
EXPORT void qemu_plugin_outs(const char* text) { fputs(text, stderr); }
EXPORT bool qemu_plugin_bool_parse(const char* name, const char* value, bool* to) {
    (void)name;
    *to = strcmp(value, "on") == 0;
    return true;
}
EXPORT void qemu_plugin_vcpu_for_each(Id id, VcpuCallback call) { call(id, 0); }

static bool uninstalled;
EXPORT void qemu_plugin_uninstall(Id id, SimpleCallback call) {
    uninstalled = true;
    if (call) call(id);
}

/* --- exported so that they resolve, but not played: a plugin that calls one must hear of it --- */

#define UNPLAYED(name) \
    EXPORT void name(void) { die("does not play", #name); }
UNPLAYED(qemu_plugin_reset)
#if INTERFACE <= 1
EXPORT int qemu_plugin_n_vcpus(void) { return -1; } /* user mode */
EXPORT int qemu_plugin_n_max_vcpus(void) { return -1; }
UNPLAYED(qemu_plugin_register_vcpu_tb_exec_inline)
UNPLAYED(qemu_plugin_register_vcpu_insn_exec_inline)
UNPLAYED(qemu_plugin_register_vcpu_mem_inline)
#endif
#if INTERFACE >= 2
EXPORT int qemu_plugin_num_vcpus(void) { return 1; }
UNPLAYED(qemu_plugin_scoreboard_new)
UNPLAYED(qemu_plugin_scoreboard_free)
UNPLAYED(qemu_plugin_scoreboard_find)
UNPLAYED(qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu)
UNPLAYED(qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu)
UNPLAYED(qemu_plugin_register_vcpu_mem_inline_per_vcpu)
UNPLAYED(qemu_plugin_u64_add)
UNPLAYED(qemu_plugin_u64_get)
UNPLAYED(qemu_plugin_u64_set)
UNPLAYED(qemu_plugin_u64_sum)
UNPLAYED(qemu_plugin_get_registers)
UNPLAYED(qemu_plugin_read_register)
#endif
#if INTERFACE >= 3
UNPLAYED(qemu_plugin_register_vcpu_tb_exec_cond_cb)
UNPLAYED(qemu_plugin_register_vcpu_insn_exec_cond_cb)
UNPLAYED(qemu_plugin_request_time_control)
UNPLAYED(qemu_plugin_update_ns)
#endif
#if INTERFACE >= 4
UNPLAYED(qemu_plugin_mem_get_value)
UNPLAYED(qemu_plugin_read_memory_vaddr)
#endif
#if INTERFACE >= 5
UNPLAYED(qemu_plugin_write_register)
UNPLAYED(qemu_plugin_write_memory_vaddr)
UNPLAYED(qemu_plugin_read_memory_hwaddr)
UNPLAYED(qemu_plugin_write_memory_hwaddr)
UNPLAYED(qemu_plugin_translate_vaddr)
#endif

/* --- the guest --- */

enum { kBlockA, kBlockB, kBlockC, kBlockExit, kBlocks };

struct Instruction {
    unsigned char size;
    const char* bytes;
};
struct Script {
    uint64_t address;
    int n;
    struct Instruction insns[kMostInstructions];
};

static const struct Script kScripts[kBlocks] = {
    /* nop; mov (%rdi),%rax; jmp: an eight-byte load from 0x10000000 + 64 per execution */
    [kBlockA] = {0x401000, 3, {{1, "\x90"}, {3, "\x48\x8b\x07"}, {2, "\xeb\xfe"}}},
    /* mov %eax,(%rsi), whose four-byte store starts two bytes before a page's end; jmp, which straddles two
       pages */
    [kBlockB] = {0x401ffd, 2, {{2, "\x89\x06"}, {2, "\xeb\xfe"}}},
    /* rep movsb: a one-byte load and a one-byte store each time */
    [kBlockC] = {0x403000, 1, {{2, "\xf3\xa4"}}},
    /* syscall */
    [kBlockExit] = {0x403002, 1, {{2, "\x0f\x05"}}},
};

/* 40 rounds of A A B, then C five times, a flush of all translations, and all of it again. */
enum { kRounds = 40, kIterations = 5, kPasses = 2 };

static struct qemu_plugin_tb* translations[kBlocks];
static uint64_t executions[kBlocks];
static const Id kId = 77;

static void translate(int which) {
    /* A real QEMU reuses its translation structures, so a plugin that keeps pointers into them sees garbage.
     */
    static struct qemu_plugin_tb scratch;
    memset(&scratch, 0xdd, sizeof scratch);
    scratch.exec_count = 0;
    const struct Script* script = &kScripts[which];
    scratch.n = (size_t)script->n;
    uint64_t at = script->address;
    for (int i = 0; i < script->n; ++i) {
        struct qemu_plugin_insn* insn = &scratch.insns[i];
        insn->address = at;
        insn->size = script->insns[i].size;
        memcpy(insn->bytes, script->insns[i].bytes, insn->size);
        insn->exec_count = insn->mem_count = 0;
        at += insn->size;
    }
#if INTERFACE >= 7
    hooks.translation(&scratch, hooks.translation_data);
#else
    hooks.translation(kId, &scratch);
#endif
    translations[which] = malloc(sizeof scratch);
    if (!translations[which]) die("out of", "memory");
    memcpy(translations[which], &scratch, sizeof scratch);
}

static void flush(void) {
    for (int i = 0; i < kBlocks; ++i) {
        free(translations[i]);
        translations[i] = NULL;
    }
    if (hooks.flush) hooks.flush(kId);
}

enum { kRead = 1, kWrite = 2 };

static void access_memory(const struct qemu_plugin_insn* insn, uint64_t address, unsigned size_log2, int rw) {
    const MemInfo info = size_log2 << 4 | (MemInfo)rw << 16;
    for (int i = 0; i < insn->mem_count; ++i)
        if (insn->mem[i].rw & rw) insn->mem[i].call(0, info, address, insn->mem[i].data);
}

static void execute(int which) {
    if (!translations[which]) translate(which);
    const struct qemu_plugin_tb* tb = translations[which];
    const uint64_t n = executions[which]++;
    for (int i = 0; i < tb->exec_count; ++i) tb->exec[i].call(0, tb->exec[i].data);
    for (size_t k = 0; k < tb->n; ++k) {
        const struct qemu_plugin_insn* insn = &tb->insns[k];
        for (int i = 0; i < insn->exec_count; ++i) insn->exec[i].call(0, insn->exec[i].data);
        if (which == kBlockA && k == 1) access_memory(insn, 0x10000000 + n * 64, 3, kRead);
        if (which == kBlockB && k == 0) access_memory(insn, 0x20000ffe + n * 0x1000, 2, kWrite);
        if (which == kBlockC && k == 0) {
            access_memory(insn, 0x30000000 + n, 0, kRead);
            access_memory(insn, 0x30010000 + n, 0, kWrite);
        }
    }
}

static void play(void) {
    if (hooks.vcpu_init) hooks.vcpu_init(kId, 0);
    for (int pass = 0; pass < kPasses; ++pass) {
        if (pass) flush();
        for (int round = 0; round < kRounds; ++round) {
            execute(kBlockA);
            execute(kBlockA);
            execute(kBlockB);
        }
        for (int i = 0; i < kIterations; ++i) execute(kBlockC);
    }
    execute(kBlockExit);
    if (hooks.syscall) hooks.syscall(kId, 0, 231, 0, 0, 0, 0, 0, 0, 0, 0); /* exit_group(0) */
    if (hooks.vcpu_exit) hooks.vcpu_exit(kId, 0);
    if (hooks.at_exit) hooks.at_exit(kId, hooks.at_exit_data);
}

/* --- QEMU's plugins/loader.c, in short --- */

static void load(char* specification) {
    char* arguments[64];
    int count = 0;
    char* file = strtok(specification, ",");
    for (char* a; count < 64 && (a = strtok(NULL, ","));) arguments[count++] = a;
    if (strncmp(file, "file=", 5) == 0) file += 5;

    void* handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!handle) die("could not load plugin:", dlerror());
    const int* version = dlsym(handle, "qemu_plugin_version");
    if (!version) die("could not load plugin: no", "qemu_plugin_version");
    const Info info = {.target_name = "x86_64",
                       .version = {.min = INTERFACE >= 2 ? 2 : 0, .cur = INTERFACE},
                       .system_emulation = false};
    if (*version < info.version.min) die("could not load plugin:", "it wants an older interface");
    if (*version > info.version.cur) die("could not load plugin:", "it wants a newer interface");
    int (*install)(Id, const Info*, int, char**) =
        (int (*)(Id, const Info*, int, char**))dlsym(handle, "qemu_plugin_install");
    if (!install) die("could not load plugin: no", "qemu_plugin_install");
    const int status = install(kId, &info, count, arguments);
    if (status != 0) die("could not load plugin:", "qemu_plugin_install returned an error");
}

int main(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
        if (strcmp(argv[i], "--version") == 0 || strcmp(argv[i], "-version") == 0) {
            printf("qemu-x86_64 version %d.99 (stub host)\n", INTERFACE);
            return 0;
        }
        if (strcmp(argv[i], "-plugin") == 0 && i + 1 < argc)
            load(argv[++i]);
        else if (argv[i][0] == '-' && i + 1 < argc)
            ++i; /* every other option of qemu-user that tlbscope uses takes a value */
        else {
            program = argv[i];
            break;
        }
    }
    if (!hooks.translation || uninstalled) return 0;
    play();
    return 0;
}
