#include "capture/guest/archive.h"

#include <gtest/gtest.h>

#include <fstream>

#include "capture/guest/packing.h"
#include "capture/process.h"
#include "core/files.h"

namespace tlbscope::capture {
namespace {

namespace fs = std::filesystem;

class ArchiveTest : public ::testing::Test {
  protected:
    void SetUp() override {
        auto made = WorkFolder::create();
        ASSERT_TRUE(made);
        folder_.emplace(std::move(*made));
    }
    // A path whose folders hold no links.
    [[nodiscard]] fs::path path(const std::string& name) const {
        return fs::canonical(folder_->path()) / name;
    }
    // The archive unpacked by the cpio tool below path(name).
    fs::path unpacked(const Archive& archive, const std::string& name) {
        EXPECT_TRUE(archive.write(path(name + ".cpio")));
        EXPECT_EQ(fs::file_size(path(name + ".cpio")), archive.size());
        fs::create_directory(path(name));
        const auto done =
            run({"sh", "-c", "cpio -idm --no-absolute-filenames --quiet < \"$0\"", path(name + ".cpio")},
                path(name));
        EXPECT_TRUE(done && done->ok) << done->errors;
        return path(name);
    }

    std::optional<WorkFolder> folder_;
};

TEST_F(ArchiveTest, CpioUnpacksWhatWasPacked) {
    Archive archive;
    archive.add_folder("/a/b/c", 0700);
    for (int n = 0; n < 9; ++n)
        archive.add_text("/a/" + std::to_string(n), std::string(n, 'x'), 0600 + n % 8);
    archive.add_link("/a/link", "b/c");
    ASSERT_TRUE(write_text(path("host"), "from the host\n"));
    fs::permissions(path("host"), fs::perms(0751));
    fs::last_write_time(path("host"), fs::file_time_type::clock::now() - std::chrono::hours(9999));
    ASSERT_TRUE(archive.add_file("/from/host", path("host")));
    const fs::path top = unpacked(archive, "out");

    EXPECT_EQ(fs::status(top / "a/b/c").permissions(), fs::perms(0700));
    for (int n = 0; n < 9; ++n) {
        EXPECT_EQ(read_text(top / "a" / std::to_string(n)).value(), std::string(n, 'x'));
        EXPECT_EQ(fs::status(top / "a" / std::to_string(n)).permissions(), fs::perms(0600 + n % 8));
    }
    EXPECT_EQ(fs::read_symlink(top / "a/link"), "b/c");
    EXPECT_EQ(read_text(top / "from/host").value(), "from the host\n");
    EXPECT_EQ(fs::status(top / "from/host").permissions(), fs::perms(0751));
    EXPECT_EQ(std::chrono::floor<std::chrono::seconds>(fs::last_write_time(top / "from/host")),
              std::chrono::floor<std::chrono::seconds>(fs::last_write_time(path("host"))));
    EXPECT_EQ(archive.host_files().at("/from/host"), path("host"));
}

TEST_F(ArchiveTest, ListsDeviceNodes) {
    Archive archive;
    archive.add_character_device("/dev/console", 5, 1);
    ASSERT_TRUE(archive.write(path("a.cpio")));
    const auto list = run({"sh", "-c", "cpio -itv --quiet < \"$0\"", path("a.cpio")});
    ASSERT_TRUE(list && list->ok);
    EXPECT_NE(list->output.find("crw-rw-rw-"), std::string::npos) << list->output;
    EXPECT_NE(list->output.find("5,   1"), std::string::npos) << list->output;
}

TEST_F(ArchiveTest, HostNamesMeanInTheGuestWhatTheyMeanHere) {
    fs::create_directories(path("real/deep"));
    ASSERT_TRUE(write_text(path("real/deep/file.1"), "contents"));
    fs::create_symlink("file.1", path("real/deep/file"));
    fs::create_directory_symlink("real", path("alias"));
    fs::create_directory_symlink(path("alias"), path("second"));  // absolute, and through another link
    Archive archive;
    const auto real = archive.add_host(path("second/deep/file"));
    ASSERT_TRUE(real) << real.error().message();
    EXPECT_EQ(*real, path("real/deep/file.1").string());
    for (const char* name : {"second", "alias", "real/deep/file", "real/deep/file.1"})
        EXPECT_TRUE(archive.has(path(name).string())) << name;
    EXPECT_EQ(archive.host_files().size(), 1U);
    const fs::path top = unpacked(archive, "out");
    EXPECT_EQ(read_text(top / path("real/deep/file").relative_path()).value(), "contents");
}

TEST_F(ArchiveTest, LinksInACircleAndMissingFilesAreErrors) {
    fs::create_symlink("b", path("a"));
    fs::create_symlink("a", path("b"));
    Archive archive;
    const auto circle = archive.add_host(path("a"));
    ASSERT_FALSE(circle);
    EXPECT_EQ(circle.error().message(),
              path("a").string() + ": too many symbolic links; name the file itself");
    fs::create_directory_symlink("d", path("c"));
    fs::create_directory_symlink("c", path("d"));
    EXPECT_FALSE(archive.add_host(path("c/file")));
    EXPECT_FALSE(archive.add_host(path("missing")));
    EXPECT_FALSE(archive.add_file("/x", path("missing")));
}

TEST_F(ArchiveTest, TheSameContentsGiveTheSameBytes) {
    std::string texts[2];
    for (int i = 0; i < 2; ++i) {
        Archive archive;
        for (const char* name : {"/z", "/a"})
            archive.add_text(i == 0 ? name : name[1] == 'z' ? "/a" : "/z", "t", 0644);
        ASSERT_TRUE(archive.write(path("x.cpio")));
        texts[i] = read_text(path("x.cpio")).value();
    }
    EXPECT_EQ(texts[0], texts[1]);
}

class PackingTest : public ArchiveTest {
  protected:
    Result<Packing> packed(std::vector<std::string> command, std::vector<fs::path> with = {}) {
        static const LibraryFinder libraries = LibraryFinder::of_system();
        EXPECT_TRUE(write_text(path("agent"), "agent"));
        return pack({.command = std::move(command),
                     .with = std::move(with),
                     .folder = path("work"),
                     .agent = path("agent")},
                    libraries);
    }
    void script(const std::string& name, const std::string& text) {
        ASSERT_TRUE(write_text(path(name), text));
        fs::permissions(path(name), fs::perms::owner_all);
    }
};

TEST_F(PackingTest, ACommandWithItsLibrariesAndOrders) {
    const auto packing = packed({"dd", "if=/dev/zero", ""});
    ASSERT_TRUE(packing) << packing.error().message();
    const fs::path top = unpacked(packing->archive, "out");
    EXPECT_TRUE(fs::exists(top / "usr/bin/dd"));
    EXPECT_EQ(read_text(top / "init").value(), "agent");
    EXPECT_EQ(read_text(top / ".tlbscope/argv").value(), std::string("dd\0if=/dev/zero\0\0", 17));
    EXPECT_EQ(read_text(top / ".tlbscope/cwd").value(), path("work").string());
    EXPECT_TRUE(read_text(top / ".tlbscope/program").value().ends_with("bin/dd"));
    EXPECT_TRUE(fs::is_directory(top / path("work").relative_path()));
    EXPECT_TRUE(fs::is_directory(top / "proc"));
    // The dynamic linker under the name the program uses, links and all.
    EXPECT_TRUE(packing->archive.has(read_elf("/bin/dd")->interpreter) || fs::is_symlink("/lib64"));
    EXPECT_TRUE(packing->notes.empty());
}

TEST_F(PackingTest, FoldersComeWhole) {
    fs::create_directories(path("data/sub"));
    ASSERT_TRUE(write_text(path("data/sub/one"), "1"));
    fs::create_symlink("nowhere", path("data/broken"));
    fs::create_symlink("/usr/bin/dd", path("data/outside"));
    const auto packing = packed({"true"}, {path("data")});
    ASSERT_TRUE(packing) << packing.error().message();
    EXPECT_TRUE(packing->archive.has(path("data/sub/one").string()));
    EXPECT_TRUE(packing->archive.has(path("data/broken").string()));
    EXPECT_TRUE(packing->archive.has("/usr/bin/dd"));
}

TEST_F(PackingTest, ScriptsBringTheirInterpreters) {
    script("plain", "#!/bin/sh -e\n");
    script("by_env", "#!/usr/bin/env -S A=b sh -e\n");
    script("nested", "#!" + path("plain").string() + "\n");
    for (const char* name : {"plain", "by_env", "nested"}) {
        const auto packing = packed({path(name).string()});
        ASSERT_TRUE(packing) << packing.error().message();
        EXPECT_TRUE(packing->archive.has(fs::canonical("/bin/sh").string())) << name;
        EXPECT_TRUE(packing->archive.has(path(name).string())) << name;
    }
}

TEST_F(PackingTest, WhatCannotRunIsSaidBeforeBooting) {
    script("text", "hello\n");
    script("no_interpreter", "#!/nowhere/sh\n");
    script("circle", "#!" + path("circle").string() + "\n");
    const std::pair<std::vector<std::string>, std::string> cases[] = {
        {{"no-such-program"},
         "no-such-program: no such program, or it may not be executed; check the name and PATH"},
        {{path("text")},
         path("text").string() + ": is neither an ELF program nor a script that starts with #!; "
                                 "name a program, or its interpreter and the file with --with"},
        {{path("no_interpreter")},
         path("no_interpreter").string() +
             ": needs the interpreter /nowhere/sh, which is not here; install it or correct "
             "the script's first line"},
        {{path("circle")}, path("circle").string() + ": has too many interpreters; name a program"},
    };
    for (const auto& [command, message] : cases) {
        const auto packing = packed(command);
        ASSERT_FALSE(packing) << command[0];
        EXPECT_EQ(packing.error().message(), message);
    }
    EXPECT_EQ(packed({"true"}, {"/no/such"}).error().message(),
              "/no/such: --with names a file that does not exist; check the name");
    EXPECT_FALSE(packed({"true"}, {"/"}));
}

}  // namespace
}  // namespace tlbscope::capture
