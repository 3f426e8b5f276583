#include "cli/layout_options.h"

#include <elf.h>
#include <fmt/format.h>

#include <csignal>

#include "layout/places.h"

namespace tlbscope::cli {

namespace {

volatile std::sig_atomic_t interrupted = 0;
void note_interrupt(int) { interrupted = 1; }
void (*before)(int) = SIG_DFL;

}  // namespace

void add_image_options(CLI::App& app, const std::shared_ptr<ImageChoice>& choice) {
    app.add_option("--image", choice->image,
                   "the program, library or vmlinux to order; by default the program that ran, or the kernel")
        ->type_name("FILE");
    app.add_option("--map", choice->map, "its link map (-Wl,-Map=FILE), which says what its sections are")
        ->type_name("FILE");
    app.add_option("--objects", choice->objects,
                   "object files and archives it was linked from, instead of a map")
        ->type_name("FILE")
        ->expected(1, 1 << 20);
    app.add_flag("--data", choice->data,
                 "order data objects (-fdata-sections) for the data TLB instead of functions");
}

Result<layout::Image> image_of(const recording::Recording& recording, const ImageChoice& choice,
                               layout::Linker linker) {
    layout::ImageOptions options;
    options.map = choice.map;
    options.objects.assign(choice.objects.begin(), choice.objects.end());
    options.what = choice.data ? layout::What::kData : layout::What::kText;
    options.whole_functions = linker == layout::Linker::kBolt;
    if (!choice.image.empty()) return layout::load_image(choice.image, options);
    if (recording.metadata().system) {
        if (choice.data || !choice.map.empty() || !choice.objects.empty())
            return usage_error("which file is the map (or are the objects or data) of?",
                               "name the kernel's vmlinux or a program with --image");
        const auto symbols = recording.kernel_symbols();
        if (!symbols) return std::unexpected(symbols.error());
        if (symbols->empty())
            return fail(recording.path().string(), "it has no kernel symbols, so what to order is not known",
                        "name the kernel's vmlinux or a program with --image");
        return layout::image_of_symbols(*symbols, recording.path().string());
    }
    const auto program = layout::program_of(recording.metadata());
    if (!program)
        return fail(recording.path().string(), "it does not say which program ran",
                    "name the program with --image");
    return layout::load_image(*program, options);
}

StopOnInterrupt::StopOnInterrupt() {
    interrupted = 0;
    before = std::signal(SIGINT, note_interrupt);
}
StopOnInterrupt::~StopOnInterrupt() { std::signal(SIGINT, before); }
bool StopOnInterrupt::asked() { return interrupted != 0; }

std::optional<PageShift> text_page_of(const layout::Image& image) {
    // x86-64 maps the kernel's text with 2 MiB pages (QEMU's "info tlb" shows the P flag).
    if (!image.kernel) return std::nullopt;
    const bool by_address =
        image.elf_machine == 0 && !image.outputs.empty() && image.outputs.front().start >= 0xffffffff80000000;
    if (image.elf_machine == EM_X86_64 || by_address) return PageShift(21);
    return std::nullopt;
}

}  // namespace tlbscope::cli
