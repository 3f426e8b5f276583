// What a user reads when a guest does not do what it should, and when a guest cannot be prepared.
#include "capture/guest/failure.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "capture/guest/guest.h"
#include "capture/guest/kernel.h"
#include "core/files.h"

namespace tlbscope::capture {
namespace {

std::string said(const std::string& console, const GuestState& state, const GuestFacts& facts = {}) {
    return guest_failure(console, facts, state).message();
}

TEST(GuestFailure, EachHasAWordAndARemedy) {
    const GuestState booting{.memory_mib = 512};
    EXPECT_EQ(
        said("[    0.5] Initramfs unpacking failed: write error\r\n[    0.6] Kernel panic - not syncing: x",
             booting),
        "the guest has no room for its files (Initramfs unpacking failed: write error); give the guest more "
        "memory with --memory 1024, or pack less with --with");
    EXPECT_EQ(said("\033c\033[?7lfoo\r\n[    1.2] Kernel panic - not syncing: VFS: Unable to mount root fs "
                   "on unknown\n",
                   booting),
              "the guest's kernel found no agent to start (Kernel panic - not syncing: VFS: Unable to mount "
              "root fs on "
              "unknown); choose a kernel for x86_64 that unpacks an initramfs, or leave out --kernel");
    EXPECT_EQ(said("[    1.2] Kernel panic - not syncing: Fatal exception\n", booting),
              "the guest's kernel stopped: Kernel panic - not syncing: Fatal exception; try another kernel "
              "with --kernel");
    EXPECT_EQ(said("[  1.2] Kernel panic - not syncing: System is deadlocked on memory\n", booting),
              "the guest ran out of memory; give the guest more memory with --memory 1024");
    EXPECT_EQ(
        said("", {.qemu_status = 256, .qemu_errors = "warning\nqemu-system-x86_64: could not load kernel\n"}),
        "QEMU stopped: qemu-system-x86_64: could not load kernel; check the installation of qemu-system-x86");
    EXPECT_EQ(said("", {.qemu_status = 9}),
              "QEMU was killed by signal 9 (Killed); the host may be short of memory");
    EXPECT_EQ(said("[ 1.0] last words\n", {.timed_out = true, .seconds = 60, .qemu_status = 9}),
              "the guest did not boot in 60 s; its console ends with: last words; check the kernel given "
              "with --kernel, "
              "or leave it out");
    EXPECT_EQ(said("", {.report_started = true, .began = true, .timed_out = true, .seconds = 600}),
              "the command was still running after 600 s; record a shorter run, or a part of it with --to or "
              "--max-refs");
    EXPECT_EQ(said("", {.report_started = true, .began = true}),
              "the guest ended while the command ran; a command that powers off or kills process 1 cannot be "
              "recorded "
              "to its end");
    EXPECT_EQ(said("", {}),
              "the guest ended before its agent reported anything; check the kernel given with --kernel, or "
              "leave it out");
    EXPECT_EQ(said("", {.report_started = true}),
              "the guest ended before it started the command; please report this");
    EXPECT_EQ(said("", {.report_started = true, .began = true, .ended = true}),
              "the guest's report is not complete; programs and maps may be missing from the recording");
    GuestFacts facts;
    facts.exec_error = 2;
    EXPECT_EQ(said("", {.began = true}, facts),
              "the guest could not execute the command: No such file or directory; its interpreter or "
              "dynamic linker is "
              "missing there: add it with --with");
    EXPECT_EQ(
        said("[    0.5] Initramfs unpacking failed: write error\n", booting, facts),
        "the guest has no room for its files (Initramfs unpacking failed: write error); give the guest more "
        "memory with --memory 1024, or pack less with --with");
    facts.failure = "cannot enter /x: No such file or directory";
    EXPECT_EQ(said("", {}, facts),
              "the guest could not start the command: cannot enter /x: No such file or directory; pack what "
              "it needs "
              "with --with");
}

class Environment : public ::testing::Test {
  protected:
    void SetUp() override {
        auto made = WorkFolder::create();
        ASSERT_TRUE(made);
        folder_.emplace(std::move(*made));
        path_ = std::getenv("PATH");
        if (const char* cache = std::getenv("XDG_CACHE_HOME")) cache_ = cache;
        setenv("XDG_CACHE_HOME", folder_->path().c_str(), 1);
    }
    void TearDown() override {
        setenv("PATH", path_.c_str(), 1);
        if (cache_)
            setenv("XDG_CACHE_HOME", cache_->c_str(), 1);
        else
            unsetenv("XDG_CACHE_HOME");
    }
    // A stand-in for one of the distribution's tools, before all others.
    void tool(const std::string& name, const std::string& script) {
        const auto file = folder_->path() / "tools" / name;
        std::filesystem::create_directories(file.parent_path());
        ASSERT_TRUE(write_text(file, "#!/bin/sh\n" + script));
        std::filesystem::permissions(file, std::filesystem::perms::owner_all);
        setenv("PATH", (file.parent_path().string() + ":" + path_).c_str(), 1);
    }
    [[nodiscard]] std::filesystem::path file(const std::string& name) const { return folder_->path() / name; }

    std::optional<WorkFolder> folder_;
    std::string path_;
    std::optional<std::string> cache_;
};

TEST_F(Environment, BadRequestsAreUsageErrors) {
    EXPECT_EQ(prepare_guest({}).error().error_class, ErrorClass::kUsage);
    EXPECT_EQ(prepare_guest({.command = {"true"}, .cpus = 0}).error().message(),
              "a guest cannot have 0 CPUs; use 1 to 64");
    EXPECT_EQ(prepare_guest({.command = {"true"}, .memory_mib = 16}).error().message(),
              "16 MiB of memory are too few to boot; use at least --memory 128");
    EXPECT_EQ(prepare_guest({.command = {"no-such-program"}}).error().message(),
              "no-such-program: no such program, or it may not be executed; check the name and PATH");
}

TEST_F(Environment, NoQemu) {
    setenv("PATH", "/nowhere", 1);
    EXPECT_EQ(prepare_guest({.command = {"/bin/true"}}).error().message(),
              "qemu-system-x86_64: this QEMU is not installed; install it: apt install qemu-system-x86");
}

TEST_F(Environment, NotAKernel) {
    ASSERT_TRUE(write_text(file("text"), std::string(5000, 'x')));
    EXPECT_EQ(find_kernel(file("text"), {}).error().message(),
              file("text").string() +
                  ": is not a Linux kernel for x86 (neither bzImage nor ELF); name a kernel such as "
                  "/boot/vmlinuz-*");
    EXPECT_FALSE(find_kernel(file("missing"), {}));
    ASSERT_TRUE(write_text(file("empty"), ""));
    EXPECT_FALSE(find_kernel(file("empty"), {}));
}

// A made-up package stands for the distribution's: the steps of the download, without a network.
class Download : public Environment {
  protected:
    void SetUp() override {
        Environment::SetUp();
        std::error_code code;
        for (const auto& entry : std::filesystem::directory_iterator("/boot", code))
            if (entry.path().filename().string().ends_with("-cloud-amd64"))
                GTEST_SKIP() << "a kernel is installed here";
        std::string kernel(0x1000, '\0');
        kernel.replace(0x202, 4, "HdrS");
        kernel[0x20e] = 0x00;
        kernel[0x20f] = 0x04;
        kernel.replace(0x600, 30, "9.9.9-cloud-amd64 (someone) #1");
        std::filesystem::create_directories(file("package/boot"));
        std::filesystem::create_directories(file("package/DEBIAN"));
        ASSERT_TRUE(write_text(file("package/boot/vmlinuz-9.9.9-cloud-amd64"), kernel));
        ASSERT_TRUE(write_text(file("package/boot/config-9.9.9-cloud-amd64"), "x"));
        ASSERT_TRUE(write_text(file("package/DEBIAN/control"),
                               "Package: linux-image-9.9.9-cloud-amd64\nVersion: 1\nArchitecture: amd64\n"
                               "Maintainer: nobody\nDescription: x\n"));
        const auto built = run({"dpkg-deb", "--root-owner-group", "-b", file("package"), file("built.deb")});
        ASSERT_TRUE(built && built->ok) << built->errors;
        tool("apt-cache", "echo linux-image-cloud-amd64; echo '  Depends: linux-image-9.9.9-cloud-amd64'\n");
        tool("apt-get",
             "echo \"$@\" >> " + file("calls").string() + "; cp " + file("built.deb").string() + " x.deb\n");
    }
};

TEST_F(Download, OnceThenKept) {
    std::vector<std::string> steps;
    const Progress note = [&](const std::string& text) { steps.push_back(text); };
    const auto kernel = find_kernel({}, note);
    ASSERT_TRUE(kernel) << kernel.error().message();
    EXPECT_EQ(kernel->release, "9.9.9-cloud-amd64");
    EXPECT_EQ(kernel->path, file("tlbscope/kernels/9.9.9-cloud-amd64/vmlinuz"));
    EXPECT_EQ(kernel->hash.size(), 16U);
    ASSERT_EQ(steps.size(), 2U);
    EXPECT_EQ(steps[0], "downloading the guest's kernel, linux-image-9.9.9-cloud-amd64 (once; about 27 MB)");
    const auto again = find_kernel({}, note);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->path, kernel->path);
    EXPECT_EQ(steps.size(), 2U);
    EXPECT_NE(read_text(file("calls")).value().find("download linux-image-9.9.9-cloud-amd64"),
              std::string::npos);
    // Nothing else is left behind.
    const std::filesystem::directory_iterator entries(file("tlbscope/kernels"));
    EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

TEST_F(Download, OfflineSaysWhatToDo) {
    tool("apt-get", "echo 'E: Failed to fetch http://x  Could not resolve x' >&2; exit 100\n");
    EXPECT_EQ(
        find_kernel({}, {}).error().message(),
        "linux-image-9.9.9-cloud-amd64: cannot download the guest's kernel: E: Failed to fetch http://x  "
        "Could not "
        "resolve x; check the network and run `apt-get update` as root, or give a kernel file with --kernel");
    tool("apt-cache", "exit 100\n");
    EXPECT_EQ(find_kernel({}, {}).error().message(),
              "linux-image-cloud-amd64: apt does not know this package, so the guest has no kernel; run "
              "`apt-get update` "
              "as root, or give a kernel file with --kernel");
}

TEST_F(Download, NewestOfThoseKept) {
    ASSERT_TRUE(find_kernel({}, {}));
    const auto kernels = file("tlbscope/kernels");
    std::filesystem::create_directory(kernels / "9.9.10-cloud-amd64");
    std::filesystem::copy_file(kernels / "9.9.9-cloud-amd64/vmlinuz", kernels / "9.9.10-cloud-amd64/vmlinuz");
    EXPECT_EQ(find_kernel({}, {})->path, kernels / "9.9.10-cloud-amd64/vmlinuz");
}

}  // namespace
}  // namespace tlbscope::capture
