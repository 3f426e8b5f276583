// Running one of the distribution's tools and reading what it prints.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"

namespace tlbscope::capture {

struct Finished {
    bool ok = false;     // it ran and exited with 0
    std::string output;  // standard output
    std::string errors;  // standard error
};

// Runs argv[0], found in PATH, with LC_ALL=C and an empty standard input, in `folder` unless empty. An error
// only when it cannot be started.
[[nodiscard]] Result<Finished> run(const std::vector<std::string>& argv,
                                   const std::filesystem::path& folder = {});

// Where a shell would find the program; a name with a slash is taken relative to the current folder. Nothing
// when it is missing or not executable.
[[nodiscard]] std::optional<std::filesystem::path> find_program(const std::string& name);

// A folder of its own that disappears with the object.
class WorkFolder {
  public:
    // In `parent`, or in the folder for temporary files when that is empty.
    static Result<WorkFolder> create(const std::filesystem::path& parent = {});
    WorkFolder(WorkFolder&& other) noexcept;
    WorkFolder& operator=(WorkFolder&& other) noexcept;
    WorkFolder(const WorkFolder&) = delete;
    WorkFolder& operator=(const WorkFolder&) = delete;
    ~WorkFolder();
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  private:
    explicit WorkFolder(std::filesystem::path path) : path_(std::move(path)) {}
    std::filesystem::path path_;
};

}  // namespace tlbscope::capture
