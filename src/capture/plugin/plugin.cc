// The part of the recorder that runs inside QEMU: it fills the buffers of transport.h and nothing else.
//
// Every callback here runs hundreds of millions of times, so each does a handful of loads and stores into its
// vCPU's buffer and leaves encoding to the other process. What must be exact:
//   - A block that faults midway did not run whole. In user mode a callback on the last instruction says that
//   all
//     began; in a whole machine, where page faults are everyday, each instruction says that it begins.
//   - A window opens with the first block after the mark that opens it and closes with the block of the mark
//   that
//     closes it; at an address, with and before the block that begins there.
//   - A forked child shares none of this: its copy of the mapping is replaced by private memory at once.
//
// The guest's own instructions tell what interface 1 cannot (it reads no registers): marks, invalidations and
// barriers by their bytes, the next task by the address of a load in the kernel's context switch, and data
// from the guest's agent by the addresses of loads behind a kChannel mark.
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "capture/plugin/qemu_interface.h"
#include "capture/transport.h"
#include "recording/isa.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

// The loader reads this after the constructors ran: QEMU 9 and later want 2 or more, earlier ones know
// only 1.
EXPORT int qemu_plugin_version;
int qemu_plugin_version = 1;

namespace {

using namespace tlbscope::capture;
namespace recording = tlbscope::recording;
using recording::EventType;

constexpr int kOldestInterface = 1;
constexpr int kNewestInterface = 5;  // 7 changed what a translation callback is called with

__attribute__((constructor)) void choose_interface() {
    qemu_plugin_version = qemu_plugin_scoreboard_new != nullptr ? 2 : 1;
}

Control* control = nullptr;
qemu_plugin_id_t plugin = 0;
recording::Isa isa = recording::Isa::kOther;
const char* target = "";
int interface_version = 0;
bool armed = false;     // instrument everything, not only marks
bool is_child = false;  // this process is a fork of the recorded one
std::uint64_t next_translation = 0;

std::uint64_t now_ns() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<std::uint64_t>(t.tv_sec) * 1000000000U + static_cast<std::uint64_t>(t.tv_nsec);
}

Vcpu& vcpu(unsigned index) { return control->vcpus[index % kMaxCpus]; }

void use_buffer(Vcpu& v, std::uint32_t index) {
    BufferBody* b = body(control, index);
    v.block_words = b->block_words;
    v.keys = b->keys;
    v.addresses = b->addresses;
    v.buffer = index;
}

void reset(Vcpu& v) { v.blocks = v.accesses = v.events = 0; }

void acquire(Vcpu& v, unsigned index) {
    while (control->full.load(std::memory_order_acquire) >= kMostFull && control->stop_requested == 0) {
        const std::uint32_t seen = control->room.load(std::memory_order_acquire);
        if (control->full.load(std::memory_order_acquire) >= kMostFull) futex_wait(&control->room, seen, 100);
    }
    for (std::uint32_t i = 0;; i = (i + 1) % kBufferCount) {
        BufferState expected = BufferState::kFree;
        if (!control->buffers[i].state.compare_exchange_strong(expected, BufferState::kFilling)) continue;
        control->buffers[i].cpu = index;
        control->buffers[i].time_ns = now_ns();
        use_buffer(v, i);
        reset(v);
        return;
    }
}

void publish(Vcpu& v) {
    BufferHeader& header = control->buffers[v.buffer];
    header.blocks = v.blocks;
    header.accesses = v.accesses;
    header.events = v.events;
    header.ticket = control->next_ticket.fetch_add(1, std::memory_order_acq_rel);
    v.buffer = kNoBuffer;
    reset(v);
    control->full.fetch_add(1, std::memory_order_acq_rel);
    header.state.store(BufferState::kFull, std::memory_order_release);
    futex_wake(&control->work);
}

// Between two blocks: the buffer is full, or another vCPU opened or closed the window.
__attribute__((noinline)) void slow(Vcpu& v, unsigned index) {
    if (is_child) {
        reset(v);
        v.limit.store(kBufferBlocks, std::memory_order_relaxed);
        return;
    }
    const std::uint32_t epoch = control->epoch.load(std::memory_order_acquire);
    if (v.in_window != 0 && v.buffer != kNoBuffer && v.blocks != 0) publish(v);
    if (v.buffer == kNoBuffer) acquire(v, index);
    reset(v);
    const bool recording = control->phase.load(std::memory_order_acquire) == Phase::kRecording &&
                           control->stop_requested.load(std::memory_order_relaxed) == 0;
    v.in_window = recording ? 1 : 0;
    v.epoch = epoch;
    v.limit.store(kBufferBlocks, std::memory_order_relaxed);
    // The window may have changed since the phase was read: then take this path again.
    if (control->epoch.load(std::memory_order_acquire) != epoch) v.limit.store(0, std::memory_order_relaxed);
}

void put_event(Vcpu& v, std::uint16_t type, std::uint64_t a, std::uint64_t b) {
    if (v.buffer == kNoBuffer || v.in_window == 0 || control->references == 0) return;
    if (v.events >= kBufferEvents + kEventSlack) {
        control->lost_events.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    body(control, v.buffer)->events[v.events++] = {.position = v.blocks, .type = type, .a = a, .b = b};
    if (v.events >= kBufferEvents) v.limit.store(0, std::memory_order_relaxed);
}

void change_phase(Phase from, Phase to, unsigned index) {
    Phase expected = from;
    if (is_child || !control->phase.compare_exchange_strong(expected, to)) return;
    control->epoch.fetch_add(1, std::memory_order_acq_rel);
    const std::uint32_t cpus = control->next_cpu.load(std::memory_order_acquire);
    for (std::uint32_t i = 0; i < cpus && i < kMaxCpus; ++i)
        if (i != index) control->vcpus[i].limit.store(0, std::memory_order_release);
}

void open_window(unsigned index) {
    if (control->phase.load(std::memory_order_acquire) != Phase::kWaiting) return;
    change_phase(Phase::kWaiting, Phase::kRecording, index);
    Vcpu& v = vcpu(index);
    if (v.buffer == kNoBuffer) acquire(v, index);
    reset(v);
    v.in_window = 1;
    v.limit.store(kBufferBlocks, std::memory_order_relaxed);
}

// The block that is running now still belongs to the window.
void close_window(unsigned index) {
    if (control->phase.load(std::memory_order_acquire) != Phase::kRecording) return;
    change_phase(Phase::kRecording, Phase::kStopped, index);
    vcpu(index).limit.store(0, std::memory_order_relaxed);
}

// In Vcpu::begun: if the block ends here, it is the one that the translation's second number stands for.
constexpr std::uint32_t kMayBeAll = 0x80000000;

__attribute__((noinline)) void early_end(Vcpu& v) {
    if (v.blocks == 0) return;
    if ((v.begun & kMayBeAll) != 0)
        ++v.block_words[v.blocks - 1];
    else
        put_event(v, recording::kEarlyEnd, v.begun, control->system);
}

inline void begin_block(unsigned index, void* number, std::uint32_t begun) {
    Vcpu& v = vcpu(index);
    if (v.begun != 0) early_end(v);
    if (v.blocks >= v.limit.load(std::memory_order_relaxed) || v.accesses >= kBufferAccesses) slow(v, index);
    v.block_words[v.blocks] = reinterpret_cast<std::uintptr_t>(number) | std::uint64_t{v.accesses} << 32;
    ++v.blocks;
    v.begun = begun;
}

// The only instruction of a block has begun when the block has.
void on_single(unsigned index, void* number) { begin_block(index, number, 0); }
void on_block(unsigned index, void* number) { begin_block(index, number, 1); }
void on_doubtful_pair(unsigned index, void* number) { begin_block(index, number, 1 | kMayBeAll); }
void on_last(unsigned index, void*) { vcpu(index).begun = 0; }
void on_step(unsigned index, void* begun) {
    vcpu(index).begun = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(begun));
}

inline void put_access(Vcpu& v, qemu_plugin_meminfo_t info, std::uint64_t address, void* instruction) {
    const std::uint32_t n = v.accesses;
    v.keys[n] = static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(instruction)) | info;
    v.addresses[n] = address;
    v.accesses = n + 1;
}

constexpr qemu_plugin_meminfo_t kInfoMask = (1U << recording::kKeyInfoBits) - 1;

void on_access(unsigned index, qemu_plugin_meminfo_t info, std::uint64_t address, void* instruction) {
    if (info > kInfoMask) {
        control->odd_access_descriptions.fetch_add(1, std::memory_order_relaxed);
        info &= kInfoMask;
    }
    put_access(vcpu(index), info, address, instruction);
}

// Which physical page a virtual page had when it was last touched. Asking QEMU costs a look-up in its own
// TLB, so a page is asked for at its first access after the vCPU last invalidated anything, and told when it
// has changed.
constexpr std::uint32_t kBindingCpus = 256;
constexpr std::uint32_t kRecentPages = 1024;
constexpr std::uint32_t kKnownPages = 1U << 16;
std::uint64_t (*recent_pages)[kRecentPages] = nullptr;  // per vCPU: page + 1
std::uint64_t (*known_bindings)[2] = nullptr;           // page + 1, physical address: last told

__attribute__((noinline)) void tell_binding(Vcpu& v, qemu_plugin_meminfo_t info, std::uint64_t address) {
    const qemu_plugin_hwaddr* hardware = qemu_plugin_get_hwaddr(info, address);
    if (hardware == nullptr || qemu_plugin_hwaddr_is_io(hardware)) return;
    const std::uint64_t physical = qemu_plugin_hwaddr_phys_addr(hardware) & ~std::uint64_t{0xfff};
    const std::uint64_t page = address >> 12;
    auto& known = known_bindings[(page * 0x9e3779b97f4a7c15U >> 40) % kKnownPages];
    if (known[0] == page + 1 && known[1] == physical) return;
    if (v.in_window == 0) return;
    known[0] = page + 1;
    known[1] = physical;
    put_event(v, static_cast<std::uint16_t>(EventType::kBinding), page << 12, physical);
}

void on_access_in_machine(unsigned index, qemu_plugin_meminfo_t info, std::uint64_t address,
                          void* instruction) {
    Vcpu& v = vcpu(index);
    on_access(index, info, address, instruction);
    std::uint64_t& recent = recent_pages[index % kBindingCpus][address >> 12 & (kRecentPages - 1)];
    if (recent == (address >> 12) + 1) return;
    recent = (address >> 12) + 1;
    tell_binding(v, info, address);
}

// What an instruction does besides its references: 16 bits of event type, 32 of value.
void on_event(unsigned index, void* what) {
    const auto packed = reinterpret_cast<std::uintptr_t>(what);
    const auto type = static_cast<std::uint16_t>(packed >> 32);
    if (control->references == 0) {
        if (is_child || control->phase.load(std::memory_order_acquire) != Phase::kRecording) return;
        if (type == static_cast<std::uint16_t>(EventType::kInvalidate))
            control->invalidations[packed & 31].fetch_add(1, std::memory_order_relaxed);
        else
            control->barriers[packed & 3].fetch_add(1, std::memory_order_relaxed);
        return;
    }
    put_event(vcpu(index), type, packed & 0xffffffffU, 0);
    if (type == static_cast<std::uint16_t>(EventType::kInvalidate) && recent_pages != nullptr)
        std::memset(recent_pages[index % kBindingCpus], 0, sizeof recent_pages[0]);
}

// The kernel saves the old task's stack pointer into its task structure and loads the new one's from there.
std::uint64_t previous_task[kBindingCpus];
std::uint64_t task_of(std::uint64_t address, void* offset) {
    return address - static_cast<std::uint64_t>(reinterpret_cast<std::intptr_t>(offset));
}
void on_switch_from(unsigned index, qemu_plugin_meminfo_t, std::uint64_t address, void* offset) {
    previous_task[index % kBindingCpus] = task_of(address, offset);
}
void on_switch_to(unsigned index, qemu_plugin_meminfo_t, std::uint64_t address, void* offset) {
    put_event(vcpu(index), recording::kSwitchTask, task_of(address, offset),
              previous_task[index % kBindingCpus]);
}

// A kernel built by scripts/build-ppc32-kernel tells which page it invalidates by the address of a load.
void on_flush_operand(unsigned index, qemu_plugin_meminfo_t, std::uint64_t address, void*) {
    Vcpu& v = vcpu(index);
    if (v.buffer == kNoBuffer || v.in_window == 0 || v.events == 0) return;
    recording::RawEvent& last = body(control, v.buffer)->events[v.events - 1];
    if (last.type == static_cast<std::uint16_t>(EventType::kInvalidate) &&
        last.a == static_cast<std::uint64_t>(recording::Invalidation::kTlbilVa))
        last.b = (address - control->kernel_base) << 12;
}

void on_channel(unsigned, qemu_plugin_meminfo_t, std::uint64_t address, void*) {
    const std::uint64_t at = control->channel_written.load(std::memory_order_relaxed);
    while (at - control->channel_read.load(std::memory_order_acquire) >= kChannelRingUnits) {
        futex_wake(&control->work);
        futex_wait(&control->room, control->room.load(), 10);
    }
    control->channel_ring[at % kChannelRingUnits] = static_cast<std::uint16_t>(address);
    control->channel_written.store(at + 1, std::memory_order_release);
    if (at % 4096 == 0) futex_wake(&control->work);
}

void on_translation(qemu_plugin_id_t id, qemu_plugin_tb* tb);
void register_callbacks();

void rearm(qemu_plugin_id_t) {
    armed = true;
    register_callbacks();
}

bool is_point(const WindowPoint& point, std::uint64_t mark) {
    return point.kind == WindowPoint::Kind::kMark && point.mark == mark;
}

void on_mark(unsigned index, void* number) {
    const auto mark = reinterpret_cast<std::uintptr_t>(number);
    if (is_child) return;
    if (mark < recording::kFirstOwnMark) {
        put_event(vcpu(index), static_cast<std::uint16_t>(EventType::kMark), mark, 0);
        if (is_point(control->to, mark)) close_window(index);
        if (is_point(control->from, mark)) open_window(index);
        return;
    }
    if (control->system == 0) return;
    switch (static_cast<recording::OwnMark>(mark)) {
        case recording::OwnMark::kArm:
            if (armed) break;
            // The recorder decides by what the agent has told so far where the window opens.
            while (control->channel_read.load(std::memory_order_acquire) !=
                       control->channel_written.load(std::memory_order_relaxed) &&
                   control->stop_requested == 0) {
                futex_wake(&control->work);
                futex_wait(&control->room, control->room.load(), 10);
            }
            qemu_plugin_reset(plugin, rearm);
            break;
        case recording::OwnMark::kBegin:
            if (control->from.kind != WindowPoint::Kind::kNone) break;
            if (control->phase.load(std::memory_order_acquire) == Phase::kWaiting)
                control->begin_cpu.store(index + 1);
            open_window(index);
            break;
        case recording::OwnMark::kEnd:
            if (control->phase.load(std::memory_order_acquire) == Phase::kRecording)
                control->end_cpu.store(index + 1);
            control->ended.store(1);
            close_window(index);
            break;
        case recording::OwnMark::kChannel:
            break;
    }
}

// Before the block that begins at the window's address.
void on_from(unsigned index, void*) { open_window(index); }
void on_to(unsigned index, void*) {
    if (control->phase.load(std::memory_order_acquire) != Phase::kRecording) return;
    close_window(index);
    Vcpu& v = vcpu(index);
    if (v.begun != 0) early_end(v);
    v.begun = 0;
    slow(v, index);
}

constexpr std::size_t kMostInstructions = 0x3fff;  // what a key has room for; QEMU stops at 512
constexpr std::size_t kMostBytes = kMostInstructions * 16;

// A block's instructions while it is being translated. Translation is serialised by `translation_lock`.
struct Scratch {
    std::uint8_t lengths[kMostInstructions];
    std::uint8_t code[kMostBytes];
};
Scratch scratch;

std::size_t instruction_bytes(const qemu_plugin_insn* insn, std::uint8_t* out, std::size_t size) {
    if (interface_version >= 3) {
        using Copy = size_t (*)(const qemu_plugin_insn*, void*, size_t);
        return reinterpret_cast<Copy>(qemu_plugin_insn_data)(insn, out, size);
    }
    using Pointer = const void* (*)(const qemu_plugin_insn*);
    std::memcpy(out, reinterpret_cast<Pointer>(qemu_plugin_insn_data)(insn), size);
    return size;
}

void lock_translations() {
    std::uint32_t expected = 0;
    while (!control->translation_lock.compare_exchange_weak(expected, 1, std::memory_order_acquire)) {
        expected = 0;
        ::usleep(1);
    }
}
void unlock_translations() { control->translation_lock.store(0, std::memory_order_release); }

void ring_write(std::uint64_t& at, const void* bytes, std::size_t size) {
    const auto* from = static_cast<const std::uint8_t*>(bytes);
    while (size > 0) {
        const std::size_t place = at % kTranslationRingBytes;
        const std::size_t part = size < kTranslationRingBytes - place ? size : kTranslationRingBytes - place;
        std::memcpy(control->translation_ring + place, from, part);
        at += part;
        from += part;
        size -= part;
    }
}

// Numbers the translation and tells the recorder; the number is on its way before the block can run.
std::uint64_t tell_translation(std::uint64_t address, std::size_t count, std::size_t code_bytes,
                               bool repeat) {
    const std::uint64_t size = 8 + 8 + 4 + 4 + (count + code_bytes + 7) / 8 * 8;
    while (control->translation_written.load(std::memory_order_relaxed) + size -
               control->translation_read.load(std::memory_order_acquire) >
           kTranslationRingBytes) {
        futex_wake(&control->work);
        futex_wait(&control->room, control->room.load(), 10);
    }
    std::uint64_t at = control->translation_written.load(std::memory_order_relaxed);
    const std::uint64_t end = at + size;
    const std::uint32_t counts[2] = {static_cast<std::uint32_t>(count), repeat ? 1U : 0U};
    ring_write(at, &size, 8);
    ring_write(at, &address, 8);
    ring_write(at, counts, 8);
    ring_write(at, scratch.lengths, count);
    ring_write(at, scratch.code, code_bytes);
    control->translation_written.store(end, std::memory_order_release);
    return next_translation++;
}

void* packed(EventType type, std::uint64_t value) {
    return reinterpret_cast<void*>(static_cast<std::uint64_t>(type) << 32 | (value & 0xffffffffU));
}

std::uint32_t power_word(const std::uint8_t* code) {
    std::uint32_t word = 0;
    for (int i = 0; i < 4; ++i) word = word << 8 | code[isa == recording::Isa::kPowerBig ? i : 3 - i];
    return word;
}

// x86: `mov %rsp, disp(%rdi)` and `mov disp(%rsi), %rsp`, with a displacement of one or four bytes.
// Power: `stw r1, disp(r3)` and `lwz r1, disp(r4)`; with 64 bits std, and ld into r8, from where it gets to
// r1.
qemu_plugin_vcpu_mem_cb_t switch_callback(const std::uint8_t* code, std::size_t length,
                                          std::int32_t& offset) {
    if (isa == recording::Isa::kPowerBig || isa == recording::Isa::kPowerLittle) {
        if (length != 4) return nullptr;
        const std::uint32_t word = power_word(code);
        // The two low bits of a DS-form instruction's displacement are part of the opcode.
        const bool doubleword = (word >> 26 & 0x3b) == 0x3a;
        offset = static_cast<std::int16_t>(doubleword ? word & 0xfffc : word & 0xffff);
        const std::uint32_t form = doubleword ? (word & 0xffff0003) : word & 0xffff0000;
        if (form == 0x90230000 || form == 0xf8230000) return on_switch_from;
        if (form == 0x80240000 || form == 0xe9040000) return on_switch_to;
        return nullptr;
    }
    if (isa != recording::Isa::kX86 || (length != 7 && length != 4) || code[0] != 0x48) return nullptr;
    const int form = length == 7 ? 0x80 : 0x40;
    if (length == 7)
        std::memcpy(&offset, code + 3, 4);
    else
        offset = code[3] < 0x80 ? code[3] : code[3] - 0x100;
    if (code[1] == 0x89 && code[2] == (form | 0x27)) return on_switch_from;
    if (code[1] == 0x8b && code[2] == (form | 0x26)) return on_switch_to;
    return nullptr;
}

// The functions by which a 44x kernel writes TLB entries invalid.
void instrument_flush(qemu_plugin_insn* insn, std::uint64_t address, const std::uint8_t* code) {
    constexpr std::uint32_t kOperandLoad = 0x89290000;  // lbz r9, 0(r9)
    if (address == control->flush_page_start || address == control->flush_all) {
        const auto what = address == control->flush_all ? recording::Invalidation::kTlbilAll
                                                        : recording::Invalidation::kTlbilVa;
        qemu_plugin_register_vcpu_insn_exec_cb(
            insn, on_event, QEMU_PLUGIN_CB_NO_REGS,
            packed(EventType::kInvalidate, static_cast<std::uint64_t>(what)));
    } else if (address > control->flush_page_start && address < control->flush_page_end &&
               power_word(code) == kOperandLoad) {
        control->tells_flushed_page.store(1, std::memory_order_relaxed);
        qemu_plugin_register_vcpu_mem_cb(insn, on_flush_operand, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
                                         nullptr);
    }
}

// Callbacks ask for loads and stores alike: QEMU 7.2 never calls one that asks for loads only.
void instrument_marks(qemu_plugin_tb* tb, std::size_t count) {
    static std::uint64_t channel_loads[16];  // addresses behind kChannel marks
    static std::size_t channel_count = 0;
    const std::uint8_t* at = scratch.code;
    std::size_t skip = count;
    for (std::size_t i = 0; i < count; at += scratch.lengths[i], ++i) {
        qemu_plugin_insn* insn = qemu_plugin_tb_get_insn(tb, i);
        const std::uint64_t address = qemu_plugin_insn_vaddr(insn);
        for (std::size_t c = 0; c < channel_count; ++c)
            if (channel_loads[c] == address)
                qemu_plugin_register_vcpu_mem_cb(insn, on_channel, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
                                                 nullptr);
        if (i == skip) continue;  // the second half of a mark
        const std::size_t next = i + 1 < count ? scratch.lengths[i + 1] : 0;
        const auto found =
            recording::recognise(isa, {at, scratch.lengths[i]}, {at + scratch.lengths[i], next});
        if (found.what == recording::InstructionClass::kMark) {
            if (isa == recording::Isa::kPowerBig || isa == recording::Isa::kPowerLittle) skip = i + 1;
            if (found.value == static_cast<std::uint64_t>(recording::OwnMark::kChannel)) {
                const std::uint64_t load =
                    address + std::uint64_t{scratch.lengths[i]} * (skip == i + 1 ? 2 : 1);
                bool known = false;
                for (std::size_t c = 0; c < channel_count; ++c) known |= channel_loads[c] == load;
                if (!known && channel_count < 16 && control->system != 0)
                    channel_loads[channel_count++] = load;
                continue;
            }
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_mark, QEMU_PLUGIN_CB_NO_REGS,
                                                   reinterpret_cast<void*>(found.value));
        } else if (armed && found.what == recording::InstructionClass::kInvalidate) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_event, QEMU_PLUGIN_CB_NO_REGS,
                                                   packed(EventType::kInvalidate, found.value));
        } else if (armed && found.what == recording::InstructionClass::kBarrier) {
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_event, QEMU_PLUGIN_CB_NO_REGS,
                                                   packed(EventType::kBarrier, found.value));
        }
        if (armed && control->flush_all != 0 && scratch.lengths[i] == 4) instrument_flush(insn, address, at);
        if (!armed || address < control->switch_start || address >= control->switch_end) continue;
        std::int32_t offset = 0;
        if (const auto callback = switch_callback(at, scratch.lengths[i], offset); callback != nullptr)
            qemu_plugin_register_vcpu_mem_cb(insn, callback, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
                                             reinterpret_cast<void*>(static_cast<std::intptr_t>(offset)));
    }
}

// A program that may load anywhere names its points relative to its own first code byte.
bool is_at(const WindowPoint& point, std::uint64_t address) {
    if (point.kind == WindowPoint::Kind::kAddress) return point.address == address;
    return point.kind == WindowPoint::Kind::kFromStartOfCode &&
           control->start_code.load(std::memory_order_relaxed) + point.address == address;
}

void instrument_references(qemu_plugin_tb* tb, std::size_t count, std::uint64_t number, bool doubtful) {
    const auto begin = count == 1 ? on_single : doubtful && count == 2 ? on_doubtful_pair : on_block;
    const auto access = control->system != 0 ? on_access_in_machine : on_access;
    qemu_plugin_register_vcpu_tb_exec_cb(tb, begin, QEMU_PLUGIN_CB_NO_REGS, reinterpret_cast<void*>(number));
    for (std::size_t i = 0; i < count; ++i) {
        qemu_plugin_insn* insn = qemu_plugin_tb_get_insn(tb, i);
        if (i != 0 && i + 1 == count)
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_last, QEMU_PLUGIN_CB_NO_REGS, nullptr);
        else if (i != 0 && (control->system != 0 || (doubtful && i + 2 == count)))
            qemu_plugin_register_vcpu_insn_exec_cb(
                insn, on_step, QEMU_PLUGIN_CB_NO_REGS,
                reinterpret_cast<void*>((i + 1) | (doubtful && i + 2 == count ? kMayBeAll : 0)));
        qemu_plugin_register_vcpu_mem_cb(insn, access, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
                                         reinterpret_cast<void*>(i << recording::kKeyInfoBits));
    }
}

// QEMU ends an x86 block before an instruction that crosses into the next page, but up to 8.1 still lists
// some of its bytes as the block's last instruction. Whether a last instruction so near the page's end is
// whole shows when it runs, or never does: such a block has two numbers, the second without that instruction.
bool may_list_too_much(std::uint64_t address, std::size_t count, std::size_t bytes) {
    constexpr std::uint64_t kLongest = 15;  // bytes of an x86 instruction
    const std::uint64_t last = address + bytes - scratch.lengths[count - 1];
    return isa == recording::Isa::kX86 && count > 1 && last % 4096 + kLongest > 4096;
}

void on_translation(qemu_plugin_id_t, qemu_plugin_tb* tb) {
    if (is_child) return;
    const std::size_t count = qemu_plugin_tb_n_insns(tb);
    if (count == 0 || count > kMostInstructions) return;
    lock_translations();
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const qemu_plugin_insn* insn = qemu_plugin_tb_get_insn(tb, i);
        const std::size_t size = qemu_plugin_insn_size(insn);
        scratch.lengths[i] = static_cast<std::uint8_t>(size);
        instruction_bytes(insn, scratch.code + bytes, size);
        bytes += size;
    }
    const std::uint64_t address = qemu_plugin_tb_vaddr(tb);
    if (control->system == 0 && control->guest_base.load(std::memory_order_relaxed) == 0) {
        const void* host = qemu_plugin_insn_haddr(qemu_plugin_tb_get_insn(tb, 0));
        control->guest_base.store(reinterpret_cast<std::uintptr_t>(host) - address,
                                  std::memory_order_relaxed);
        if (qemu_plugin_start_code != nullptr) control->start_code.store(qemu_plugin_start_code());
    }
    if (armed) {
        std::uint64_t number = 0;
        const bool doubtful = may_list_too_much(address, count, bytes);
        if (control->references != 0) {
            const bool repeat = recording::is_repeated_string(isa, {scratch.code, scratch.lengths[0]});
            number = tell_translation(address, count, bytes, repeat);
            if (doubtful) tell_translation(address, count - 1, bytes - scratch.lengths[count - 1], repeat);
        }
        if (is_at(control->from, address))
            qemu_plugin_register_vcpu_tb_exec_cb(tb, on_from, QEMU_PLUGIN_CB_NO_REGS, nullptr);
        if (is_at(control->to, address))
            qemu_plugin_register_vcpu_tb_exec_cb(tb, on_to, QEMU_PLUGIN_CB_NO_REGS, nullptr);
        if (control->references != 0) instrument_references(tb, count, number, doubtful);
    }
    instrument_marks(tb, count);
    unlock_translations();
}

void on_vcpu_init(qemu_plugin_id_t, unsigned index) {
    if (is_child) return;
    if (index >= kMaxCpus) {
        control->lost_cpus.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    Vcpu& v = control->vcpus[index];
    if (v.buffer != kNoBuffer && v.in_window != 0 && v.blocks != 0) publish(v);
    v.buffer = kNoBuffer;
    v.begun = 0;
    v.in_window = 0;
    reset(v);
    v.limit.store(0, std::memory_order_relaxed);
    std::uint32_t seen = control->next_cpu.load();
    while (seen < index + 1 && !control->next_cpu.compare_exchange_weak(seen, index + 1)) {
    }
}

// A thread's end: hand over what it has and keep no buffer for it.
void on_vcpu_exit(qemu_plugin_id_t, unsigned index) {
    if (is_child || index >= kMaxCpus) return;
    Vcpu& v = control->vcpus[index];
    if (v.buffer == kNoBuffer) return;
    if (v.in_window != 0 && v.blocks != 0) {
        publish(v);
    } else {
        control->buffers[v.buffer].state.store(BufferState::kFree, std::memory_order_release);
        v.buffer = kNoBuffer;
    }
    v.in_window = 0;
    v.limit.store(0, std::memory_order_relaxed);
}

// System call numbers of exec, by QEMU's target name.
bool is_exec(std::int64_t number) {
    struct Numbers {
        const char* target;
        int execve;
        int execveat;
    };
    static constexpr Numbers kNumbers[] = {
        {"x86_64", 59, 322}, {"i386", 11, 358},    {"ppc", 11, 362},
        {"ppc64", 11, 362},  {"ppc64le", 11, 362}, {"arm", 11, 387},
        {"s390x", 11, 354},  {"mips", 4011, 4356}, {"mipsel", 4011, 4356},
    };
    for (const Numbers& known : kNumbers)
        if (std::strcmp(known.target, target) == 0) return number == known.execve || number == known.execveat;
    return number == 221 || number == 281;  // the numbers of every newer architecture
}

// What is mapped where, while there is still a process to ask.
void tell_maps() {
    const int fd = ::open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    std::uint32_t size = 0;
    for (ssize_t n = 0; size < kMapsBytes && (n = ::read(fd, control->maps + size, kMapsBytes - size)) > 0;)
        size += static_cast<std::uint32_t>(n);
    ::close(fd);
    control->maps_bytes.store(size, std::memory_order_release);
}

void on_syscall(qemu_plugin_id_t, unsigned index, std::int64_t number, std::uint64_t a1, std::uint64_t,
                std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t) {
    if (is_child) return;
    put_event(vcpu(index), static_cast<std::uint16_t>(EventType::kSystemCall),
              static_cast<std::uint64_t>(number), a1);
    if (!is_exec(number)) return;
    tell_maps();
    control->execs.fetch_add(1, std::memory_order_relaxed);
}

void on_exit(qemu_plugin_id_t, void*) {
    if (is_child) return;
    if (control->system == 0) tell_maps();
    control->exited.store(1, std::memory_order_release);
}

void after_fork_in_parent() { control->forks.fetch_add(1, std::memory_order_relaxed); }

// The child keeps running instrumented code. It must never touch the recorder's memory again, so private
// zeroes take that memory's place, and its blocks go round and round in the first buffer.
void after_fork_in_child() {
    is_child = true;
    void* same = ::mmap(control, kTransportBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    if (same == MAP_FAILED) ::_exit(127);
    for (Vcpu& v : control->vcpus) use_buffer(v, 0);
}

void register_callbacks() {
    qemu_plugin_register_vcpu_init_cb(plugin, on_vcpu_init);
    qemu_plugin_register_vcpu_tb_trans_cb(plugin, on_translation);
    qemu_plugin_register_atexit_cb(plugin, on_exit, nullptr);
    if (control->system == 0) {
        qemu_plugin_register_vcpu_exit_cb(plugin, on_vcpu_exit);
        qemu_plugin_register_vcpu_syscall_cb(plugin, on_syscall);
    }
}

Control* map_transport(const char* path) {
    const int fd = ::open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) return nullptr;
    void* memory = ::mmap(nullptr, kTransportBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    return memory == MAP_FAILED ? nullptr : static_cast<Control*>(memory);
}

}  // namespace

EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t* info, int argc, char** argv) {
    const char* path = nullptr;
    for (int i = 0; i < argc; ++i)
        if (std::strncmp(argv[i], "transport=", 10) == 0) path = argv[i] + 10;
    if (path == nullptr) {
        std::fprintf(stderr,
                     "tlbscope plugin: no transport=FILE argument; run it through 'tlbscope record'\n");
        return 1;
    }
    control = map_transport(path);
    if (control == nullptr || control->version != kTransportVersion) {
        std::fprintf(
            stderr,
            "tlbscope plugin: %s is not the transport of this tlbscope; run 'tlbscope record' of the "
            "same installation\n",
            path);
        return 1;
    }
    interface_version = info->version.cur;
    control->interface_version.store(static_cast<std::uint32_t>(interface_version));
    if (interface_version < kOldestInterface || interface_version > kNewestInterface) {
        control->refused.store(static_cast<std::uint32_t>(Refusal::kInterface));
        std::fprintf(stderr,
                     "tlbscope plugin: QEMU's plugin interface %d is not one of %d to %d that this tlbscope "
                     "knows; use QEMU 6.0 to 10.x\n",
                     interface_version, kOldestInterface, kNewestInterface);
        return 1;
    }
    plugin = id;
    target = strdup(info->target_name);
    isa = static_cast<recording::Isa>(control->isa);
    armed = control->start_armed != 0;
    for (std::uint32_t description = 0; description <= kInfoMask; ++description)
        control->access_table[description] =
            static_cast<std::uint8_t>((qemu_plugin_mem_size_shift(description) & 0xf) |
                                      (qemu_plugin_mem_is_store(description) ? 0x10 : 0));
    if (control->system != 0) {
        recent_pages =
            static_cast<std::uint64_t(*)[kRecentPages]>(calloc(kBindingCpus, sizeof recent_pages[0]));
        known_bindings = static_cast<std::uint64_t(*)[2]>(calloc(kKnownPages, sizeof known_bindings[0]));
    } else {
        pthread_atfork(nullptr, after_fork_in_parent, after_fork_in_child);
    }
    for (Vcpu& v : control->vcpus) v.buffer = kNoBuffer;
    register_callbacks();
    control->installed.store(1, std::memory_order_release);
    return 0;
}
