// Real boots of the distribution's kernel. Each takes two to four seconds; the first may download the kernel.
#include "boot.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>

#include "capture/guest/places.h"
#include "core/files.h"

namespace tlbscope::capture {
namespace {

const std::vector<std::string> kDd{"dd", "if=/dev/zero", "of=file", "bs=4k", "count=3840"};

// What was counted up to kEnd; the last line counts what was executed after it.
std::string to_end(const std::string& marks) { return marks.substr(0, marks.find("exit ")); }

const recording::Space* named(const GuestPlaces& places, const std::string& name) {
    const auto found = std::find_if(places.spaces.begin(), places.spaces.end(),
                                    [&](const recording::Space& s) { return s.name == name; });
    return found == places.spaces.end() ? nullptr : &*found;
}

TEST(Boot, RunsTheCommandAndBringsEverythingHome) {
    const Boot b = boot({.command = kDd});
    ASSERT_EQ(b.error, "");
    ASSERT_TRUE(b.facts.done) << b.console;
    EXPECT_EQ(outcome(b.facts), "exited with status 0");
    EXPECT_EQ(b.facts.out, "");
    EXPECT_TRUE(b.facts.err.starts_with("3840+0 records in\n3840+0 records out\n15728640 bytes"))
        << b.facts.err;
    EXPECT_EQ(b.facts.release, b.kernel.release);
    EXPECT_EQ(b.facts.machine, "x86_64");
    EXPECT_EQ(b.facts.cpus, 1U);
    EXPECT_EQ(b.facts.page_size, 4096U);
    EXPECT_NE(b.facts.command_line.find("nokaslr"), std::string::npos);
    EXPECT_NE(b.facts.cpu.find("QEMU"), std::string::npos);
    EXPECT_EQ(b.facts.build_id.size(), 40U) << b.facts.build_id;
    EXPECT_EQ(b.facts.perf_lost, 0U);
    EXPECT_TRUE(b.facts.warnings.empty()) << b.facts.warnings[0];
    // The marks in order, once each.
    std::vector<std::size_t> at;
    for (const char* mark : {"ff00 ", "reset ", "ff01 ", "ff02 ", "exit "}) at.push_back(b.marks.find(mark));
    EXPECT_TRUE(std::is_sorted(at.begin(), at.end()) && at.back() != std::string::npos) << b.marks;
    std::printf("boot, dd and power-off: %.2f s\n%s", b.seconds, b.marks.c_str());
}

TEST(Boot, NamesTasksAndMaps) {
    const Boot b = boot({.command = kDd});
    ASSERT_EQ(b.error, "");
    const GuestPlaces places = guest_places(b.facts, b.switches, b.host_files);
    EXPECT_TRUE(places.notes.empty()) << places.notes[0];
    const recording::Space* dd = named(places, "dd");
    ASSERT_NE(dd, nullptr);
    EXPECT_EQ(dd->pid, b.facts.pid);
    ASSERT_NE(named(places, "init"), nullptr);
    EXPECT_EQ(named(places, "init")->pid, 1U);
    EXPECT_NE(named(places, "[rcu_preempt]"), nullptr);

    bool text = false;
    bool libc = false;
    bool heap = false;
    for (const recording::MappedRange& m : places.maps) {
        EXPECT_EQ(m.space, dd->id);  // nothing else ran a program
        EXPECT_LT(m.start, m.end);
        text |= m.path == "/usr/bin/dd" && m.protection == "r-xp" && m.build_id.size() == 40;
        libc |= m.path.ends_with("/libc.so.6") && m.protection == "r-xp" && m.build_id.size() == 40;
        heap |= m.path == "[heap]" && m.protection == "rw-p";
    }
    EXPECT_TRUE(text && libc && heap) << text << libc << heap;
}

TEST(Boot, TwoRunsAreTheSame) {
    const Boot first = boot({.command = kDd});
    const Boot second = boot({.command = kDd});
    ASSERT_TRUE(first.facts.done && second.facts.done);
    EXPECT_TRUE(first.channel == second.channel);
    // After kEnd the host's clock decides when a power-off takes effect.
    EXPECT_EQ(to_end(first.marks), to_end(second.marks));
}

TEST(Boot, KallsymsComeHomeBeforeTheCommandStarts) {
    const Boot b = boot({.command = {"true"}});
    ASSERT_EQ(b.error, "");
    EXPECT_TRUE(b.facts.has_all_kallsyms);
    EXPECT_NE(b.facts.kallsyms.find(" T __x64_sys_read\n"), std::string::npos);
    EXPECT_NE(b.facts.kallsyms.find("ffffffff81000000 T _stext\n"), std::string::npos);
    std::printf("%zu bytes of kallsyms\n", b.facts.kallsyms.size());
}

TEST(Boot, SeveralCpus) {
    const Boot b =
        boot({.command = {"sh", "-c", "for i in 1 2 3 4 5 6; do /bin/busybox true & done; wait; echo fine"},
              .cpus = 2});
    ASSERT_EQ(b.error, "");
    ASSERT_TRUE(b.facts.done) << b.console;
    EXPECT_EQ(b.facts.out, "fine\n");
    EXPECT_EQ(b.facts.cpus, 2U);
    const GuestPlaces places = guest_places(b.facts, b.switches, b.host_files);
    EXPECT_NE(named(places, "sh"), nullptr);
    EXPECT_NE(named(places, "busybox"), nullptr);
    EXPECT_NE(named(places, "[swapper]"), nullptr);
}

TEST(Boot, StatusAndOutputOfACommandThatFails) {
    const Boot b = boot({.command = {"sh", "-c", "echo out; echo err >&2; pwd; exit 7"}});
    ASSERT_EQ(b.error, "");
    EXPECT_EQ(b.facts.out, "out\n" + std::filesystem::current_path().string() + "\n");
    EXPECT_EQ(b.facts.err, "err\n");
    EXPECT_EQ(outcome(b.facts), "exited with status 7");
}

TEST(Boot, CommandThatIsKilled) {
    const Boot b = boot({.command = {"sh", "-c", "kill -SEGV $$"}});
    ASSERT_EQ(b.error, "");
    EXPECT_EQ(outcome(b.facts), "was killed by signal 11 (Segmentation fault)");
}

TEST(Boot, CommandThatPowersOffIsNamed) {
    const Boot b = boot({.command = {"busybox", "poweroff", "-f"}});
    EXPECT_FALSE(b.facts.done);
    EXPECT_TRUE(b.state.began && !b.state.ended);
    const std::string message = guest_failure(b.console, b.facts, b.state).message();
    EXPECT_TRUE(message.starts_with("the guest ended while the command ran")) << message;
}

TEST(Boot, CommandThatWritesMoreThanThereIsRoomFor) {
    const Boot b =
        boot({.command = {"dd", "if=/dev/zero", "of=file", "bs=1M", "count=2000"}, .memory_mib = 256});
    ASSERT_EQ(b.error, "");
    ASSERT_TRUE(b.facts.done) << b.console;
    EXPECT_EQ(outcome(b.facts), "exited with status 1");
    EXPECT_NE(b.facts.err.find("No space left on device"), std::string::npos) << b.facts.err;
}

TEST(Boot, ScriptWithItsInterpreter) {
    const auto folder = WorkFolder::create();
    ASSERT_TRUE(folder);
    const std::filesystem::path script = folder->path() / "script";
    ASSERT_TRUE(write_text(script, "#!/usr/bin/env -S sh\necho script \"$@\"; cat \"$0\" | wc -l\n"));
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    const Boot b = boot({.command = {script.string(), "a", "b c"}});
    ASSERT_EQ(b.error, "");
    EXPECT_EQ(b.facts.out, "script a b c\n2\n") << b.facts.err;
}

TEST(Boot, KernelThatFindsNoAgent) {
    Boot b = boot({.command = kDd, .kernel_arguments = {"rdinit=/nothing", "root=/dev/nothing"}});
    EXPECT_FALSE(b.facts.done);
    const std::string message = guest_failure(b.console, b.facts, b.state).message();
    EXPECT_NE(message.find("the guest's kernel found no agent to start"), std::string::npos) << message;
    EXPECT_LT(b.seconds, 30) << "a panic must end QEMU";
}

// As much as the check lets pass must be unpacked whole.
TEST(Boot, FilesThatJustFit) {
    const auto folder = WorkFolder::create();
    ASSERT_TRUE(folder);
    const std::filesystem::path file = folder->path() / "zlast";
    ASSERT_TRUE(write_text(file, ""));
    for (const std::uint32_t memory : {256U, 512U}) {
        std::filesystem::resize_file(file, std::uintmax_t{(memory - 96) / 3 - 7} << 20);
        const Boot b = boot({.command = {"wc", "-c", file.string()}, .with = {file}, .memory_mib = memory});
        ASSERT_EQ(b.error, "");
        EXPECT_EQ(b.facts.out, std::to_string(std::filesystem::file_size(file)) + " " + file.string() + "\n")
            << guest_failure(b.console, b.facts, b.state).message();
    }
}

TEST(Boot, FilesThatDoNotFit) {
    const auto folder = WorkFolder::create();
    ASSERT_TRUE(folder);
    const std::filesystem::path file = folder->path() / "large";
    ASSERT_TRUE(write_text(file, ""));
    std::filesystem::resize_file(file, 400 << 20);
    const Boot b = boot({.command = kDd, .with = {file}});
    EXPECT_NE(
        b.error.find(
            " MiB of files do not fit in a guest with 512 MiB of memory; give it more with --memory 1536 "),
        std::string::npos)
        << b.error;
}

}  // namespace
}  // namespace tlbscope::capture
