#include "capture/guest/libraries.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "capture/process.h"
#include "core/files.h"

namespace tlbscope::capture {
namespace {

namespace fs = std::filesystem;

// What the dynamic linker itself says about a trusted program (its own list, not ours).
std::set<std::string> linker_says(const fs::path& program) {
    std::set<std::string> files;
    const auto elf = read_elf(program);
    const auto listed = run({elf->interpreter, "--list", program.string()});
    if (!listed || !listed->ok) return files;
    std::size_t at = 0;
    while ((at = listed->output.find("=> ", at)) != std::string::npos) {
        at += 3;
        files.insert(fs::canonical(listed->output.substr(at, listed->output.find(' ', at) - at)).string());
    }
    return files;
}

std::set<std::string> found(const LibraryFinder& finder, const fs::path& program) {
    std::set<std::string> files;
    for (const Library& library : finder.needed_by(program)) {
        if (library.name.starts_with("ld-linux")) continue;  // --list shows it without an arrow
        files.insert(library.path.empty() ? "missing " + library.name : fs::canonical(library.path).string());
    }
    return files;
}

TEST(Libraries, AgreesWithTheDynamicLinker) {
    const LibraryFinder finder = LibraryFinder::of_system();
    int compared = 0;
    for (const char* name :
         {"dd", "sh", "bash", "tar", "gcc", "cmake", "git", "python3", "perl", "qemu-system-x86_64"}) {
        const auto program = find_program(name);
        const auto elf = program ? read_elf(*program) : std::nullopt;
        if (!elf || elf->interpreter.empty()) continue;
        const std::set<std::string> expected = linker_says(*program);
        if (expected.empty()) continue;
        EXPECT_EQ(found(finder, *program), expected) << name;
        ++compared;
    }
    EXPECT_GE(compared, 4);
}

TEST(Libraries, StaticProgramsAndOtherFilesNeedNothing) {
    const LibraryFinder finder = LibraryFinder::of_system();
    EXPECT_TRUE(finder.needed_by("/etc/passwd").empty());
    EXPECT_TRUE(finder.needed_by("/no/such").empty());
    EXPECT_FALSE(read_elf("/etc/passwd"));
}

class BuiltLibraries : public ::testing::Test {
  protected:
    void SetUp() override {
        auto made = WorkFolder::create();
        ASSERT_TRUE(made);
        folder_.emplace(std::move(*made));
        for (const char* name : {"a", "b", "c"}) fs::create_directory(folder_->path() / name);
    }
    [[nodiscard]] fs::path path(const std::string& name) const {
        return fs::canonical(folder_->path()) / name;
    }
    void build(const std::string& what) {
        const auto done = run({"sh", "-c", "cc -x c /dev/null -x none -nostdlib -shared " + what}, path("."));
        ASSERT_TRUE(done && done->ok) << done->errors;
    }

    std::optional<WorkFolder> folder_;
};

TEST_F(BuiltLibraries, RpathIsInheritedAndRunpathIsNot) {
    build("-o c/liblast.so");
    build("-o b/libmiddle.so -Wl,--no-as-needed c/liblast.so -Wl,--disable-new-dtags");
    // DT_NEEDED holds the path given on the command line where a library has no name of its own.
    build("-o c/liblast.so -Wl,-soname,liblast.so");
    build("-o b/libmiddle.so -Wl,-soname,libmiddle.so -Wl,--no-as-needed c/liblast.so");
    build(
        "-o with_rpath.so -Wl,--no-as-needed b/libmiddle.so -Wl,--allow-shlib-undefined "
        "-Wl,--disable-new-dtags "
        "'-Wl,-rpath,$ORIGIN/b:${ORIGIN}/c'");
    build(
        "-o with_runpath.so -Wl,--no-as-needed b/libmiddle.so -Wl,--enable-new-dtags "
        "'-Wl,-rpath,$ORIGIN/b:$ORIGIN/c'");

    const LibraryFinder nothing_cached({});
    const auto inherited = nothing_cached.needed_by(path("with_rpath.so"));
    ASSERT_EQ(inherited.size(), 2U);
    EXPECT_EQ(inherited[0].path, path("b/libmiddle.so"));
    EXPECT_EQ(inherited[1].path, path("c/liblast.so"));
    const auto own = nothing_cached.needed_by(path("with_runpath.so"));
    ASSERT_EQ(own.size(), 2U);
    EXPECT_EQ(own[0].path, path("b/libmiddle.so"));
    EXPECT_EQ(own[1].path, "") << "DT_RUNPATH is for the object's own needs only";
    EXPECT_EQ(own[1].wanted_by, path("b/libmiddle.so"));

    const LibraryFinder cached({{"liblast.so", {path("nowhere/liblast.so"), path("c/liblast.so")}}});
    const auto by_cache = cached.needed_by(path("with_runpath.so"));
    EXPECT_EQ(by_cache[1].path, path("c/liblast.so"));
    EXPECT_FALSE(by_cache[1].by_default);
}

TEST_F(BuiltLibraries, BuildIdsAreRead) {
    build("-o a/lib.so -Wl,--build-id=0x0123456789abcdef");
    EXPECT_EQ(read_elf(path("a/lib.so"))->build_id, "0123456789abcdef");
    build("-o a/lib.so -Wl,--build-id=none");
    EXPECT_EQ(read_elf(path("a/lib.so"))->build_id, "");
}

// Cut and damaged files: any answer, no crash.
TEST_F(BuiltLibraries, DamagedFilesAreSurvived) {
    build("-o b/libmiddle.so -Wl,-soname,libmiddle.so");
    build("-o a/lib.so -Wl,--no-as-needed b/libmiddle.so '-Wl,-rpath,$ORIGIN'");
    const std::string whole = read_text(path("a/lib.so")).value();
    for (std::size_t size = 0; size < std::min<std::size_t>(whole.size(), 1500); size += 7) {
        ASSERT_TRUE(write_text(path("a/cut"), whole.substr(0, size)));
        (void)read_elf(path("a/cut"));
    }
    for (std::size_t at = 0; at < std::min<std::size_t>(whole.size(), 1024); ++at) {
        std::string flipped = whole;
        flipped[at] = static_cast<char>(flipped[at] ^ 0xff);
        ASSERT_TRUE(write_text(path("a/flipped"), flipped));
        (void)read_elf(path("a/flipped"));
    }
}

TEST(BuildIdInNotes, SkipsOtherNotesAndRefusesNonsense) {
    std::vector<std::uint8_t> notes{4,   0,   0,   0, 6,   0,   0,   0,   6,   0, 0, 0,
                                    'X', 'e', 'n', 0, 'l', 'i', 'n', 'u', 'x', 0, 0, 0};
    const std::vector<std::uint8_t> id{4, 0, 0,   0,   3,   0, 0,    0,    3,    0,
                                       0, 0, 'G', 'N', 'U', 0, 0xab, 0xcd, 0xef, 0};
    EXPECT_EQ(build_id_in_notes(notes, false), "");
    notes.insert(notes.end(), id.begin(), id.end());
    EXPECT_EQ(build_id_in_notes(notes, false), "abcdef");
    EXPECT_EQ(build_id_in_notes(notes, true), "");
    const std::vector<std::uint8_t> big{0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 3, 'G', 'N', 'U', 0, 0x5a, 0, 0, 0};
    EXPECT_EQ(build_id_in_notes(big, true), "5a");
    for (std::size_t n = 0; n + 1 < notes.size(); ++n)
        EXPECT_EQ(build_id_in_notes(std::span(notes).first(n), false), "");
}

}  // namespace
}  // namespace tlbscope::capture
