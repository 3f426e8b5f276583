// Reading a TOML table key by key, with every complaint pointing at its line, or at the --set that caused it.
#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace tlbscope::machine {

// The document a table belongs to: its file, and the first complaint about it, after which the rest does not
// matter.
class TomlDocument {
  public:
    static Result<TomlDocument> parse(const std::string& text, const std::string& file);
    // Applies "dotted.key=value": a TOML value, or else a bare word as text.
    Result<void> set(const std::string& change);

    [[nodiscard]] const toml::table& root() const { return root_; }
    [[nodiscard]] const std::string& file() const { return file_; }
    [[nodiscard]] const std::optional<Error>& error() const { return error_; }

    // "FILE:LINE:COLUMN" of a region, or "--set KEY=VALUE" when `path` was set from the command line.
    [[nodiscard]] std::string where(const toml::source_region& region, const std::string& path) const;
    void complain(std::string where, std::string what, std::string hint);

  private:
    struct Change {
        std::string path;
        std::string text;
    };
    std::string file_;
    toml::table root_;
    std::vector<Change> changes_;
    std::optional<Error> error_;
};

class TomlTable {
  public:
    // Complains at once about a key that is not among `known`.
    TomlTable(TomlDocument& document, const toml::table& table, std::string path,
              std::vector<std::string> known);

    // The table under `key`; complains and gives nothing when there is none.
    [[nodiscard]] std::optional<TomlTable> table(const std::string& key, std::vector<std::string> known);
    // As above, but its keys are names the caller checks.
    [[nodiscard]] const toml::table* raw_table(const std::string& key);

    // Required: complain when the key is missing or of another type. Optional ones take the given value
    // instead.
    std::string text(const std::string& key);
    std::uint64_t whole(const std::string& key, std::uint64_t least, std::uint64_t most);
    std::uint64_t whole_or(const std::string& key, std::uint64_t least, std::uint64_t most,
                           std::uint64_t otherwise);
    bool truth_or(const std::string& key, bool otherwise);
    double positive(const std::string& key);
    std::vector<std::string> texts(const std::string& key);
    // `word`'s value stands for the given text: "full".
    std::uint64_t whole_or_word(const std::string& key, std::uint64_t least, std::uint64_t most,
                                const std::string& word, std::uint64_t meaning);

    // Complains about the value of `key`, which is there.
    void reject(const std::string& key, std::string what, std::string hint);
    [[nodiscard]] bool has(const std::string& key) const { return table_->contains(key); }
    [[nodiscard]] std::string path_of(const std::string& key) const {
        return path_.empty() ? key : path_ + "." + key;
    }

  private:
    const toml::node* require(const std::string& key);
    void wrong_type(const std::string& key, const toml::node& node, const std::string& wanted);

    TomlDocument* document_;
    const toml::table* table_;
    std::string path_;
};

}  // namespace tlbscope::machine
