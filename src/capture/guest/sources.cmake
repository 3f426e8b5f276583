# Preparing a guest and reading its report: sources of the stage "capture", relative to src/capture.
set(capture_guest_sources
    guest/architecture.cc guest/archive.cc guest/elf_file.cc guest/failure.cc guest/guest.cc guest/kernel.cc guest/libraries.cc guest/packages.cc
    guest/packing.cc guest/perf_records.cc guest/places.cc guest/report.cc guest/tasks.cc guest/trace.cc)
