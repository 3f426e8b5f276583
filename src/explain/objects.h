// The files behind a recording's maps, with their functions: found, checked against the recorded build, and
// completed from separate debug files. Every failure becomes a warning that names the remedy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "explain/elf_symbols.h"
#include "explain/symbols.h"
#include "recording/metadata.h"

namespace tlbscope::explain {

struct NameOptions;

struct Object {
    std::string path;  // as recorded
    SymbolTable named;
    SymbolTable unnamed;  // function boundaries without names; asked where `named` knows nothing
    ElfSymbols elf;       // segments, build-id; its symbols are in the tables
};

class Objects {
  public:
    // `vdso` is the recorded image; may be empty.
    Objects(const recording::Metadata& metadata, const NameOptions& options, std::string vdso);

    // The object of a recorded path; nothing when it cannot be had. Reads each file once.
    [[nodiscard]] const Object* of(const std::string& path);
    // One sentence per trouble.
    [[nodiscard]] std::vector<std::string> warnings() const;

  private:
    [[nodiscard]] std::optional<Object> load(const std::string& path);
    [[nodiscard]] std::optional<Object> load_vdso();
    [[nodiscard]] std::optional<ElfSymbols> debug_symbols(const std::filesystem::path& file,
                                                          const std::string& build_id,
                                                          const ElfSymbols* main);

    const recording::Metadata& metadata_;
    const NameOptions& options_;
    std::string vdso_;
    std::vector<std::filesystem::path> debug_folders_;
    std::map<std::string, std::string> build_ids_;  // recorded, by path
    std::map<std::string, bool> has_code_;          // by path: some recorded range is executable
    std::map<std::string, std::optional<Object>> known_;
    std::vector<std::string> warnings_;
    std::vector<std::string> stripped_;
};

}  // namespace tlbscope::explain
