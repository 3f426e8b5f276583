#include "machine/toml_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>

#include "core/nearest.h"

namespace tlbscope::machine {

namespace {

std::string type_name(const toml::node& node) {
    switch (node.type()) {
        case toml::node_type::table:
            return "a table";
        case toml::node_type::array:
            return "a list";
        case toml::node_type::string:
            return "text";
        case toml::node_type::integer:
            return "a whole number";
        case toml::node_type::floating_point:
            return "a number with a point";
        case toml::node_type::boolean:
            return "true or false";
        default:
            return "a date or time";
    }
}

std::string joined(const std::vector<std::string>& words) {
    return fmt::format("{}", fmt::join(words, ", "));
}

std::string position(const std::string& file, const toml::source_position& at) {
    return at ? fmt::format("{}:{}:{}", file, at.line, at.column) : file;
}

}  // namespace

Result<TomlDocument> TomlDocument::parse(const std::string& text, const std::string& file) {
    TomlDocument document;
    document.file_ = file;
    try {
        document.root_ = toml::parse(text, file);
    } catch (const toml::parse_error& problem) {
        return fail(position(file, problem.source().begin), std::string(problem.description()),
                    "machine files are TOML; see docs/machine-file.md");
    }
    return document;
}

Result<void> TomlDocument::set(const std::string& change) {
    const auto equals = change.find('=');
    const std::string path = change.substr(0, equals);
    if (equals == std::string::npos || path.empty() || equals + 1 == change.size())
        return std::unexpected(Error{.where = "--set " + change,
                                     .what = "this is not key=value",
                                     .hint = "for example --set tlb.data.entries=64",
                                     .error_class = ErrorClass::kUsage});
    const std::string value = change.substr(equals + 1);
    toml::table holder;
    try {
        holder = toml::parse("value = " + value);
    } catch (const toml::parse_error&) {
        holder.insert_or_assign("value", value);  // a bare word
    }
    if (holder.size() != 1) holder = toml::table{{"value", value}};

    toml::table* table = &root_;
    std::string walked;
    std::istringstream steps(path);
    std::string step;
    std::vector<std::string> names;
    while (std::getline(steps, step, '.')) names.push_back(step);
    for (std::size_t i = 0; i + 1 < names.size(); ++i) {
        const std::string prefix = walked.empty() ? "" : walked + ".";
        walked = prefix + names[i];
        toml::node* node = table->get(names[i]);
        if (node == nullptr) {
            std::vector<std::string> known;
            for (const auto& [name, child] : *table)
                if (child.is_table()) known.emplace_back(name.str());
            const std::string guess = nearest(names[i], known);
            return std::unexpected(Error{.where = "--set " + change,
                                         .what = fmt::format("unknown key {}", walked),
                                         .hint = guess.empty()
                                                     ? "there is " + joined(known)
                                                     : fmt::format("did you mean {}{}?", prefix, guess),
                                         .error_class = ErrorClass::kUsage});
        }
        table = node->as_table();
        if (table == nullptr)
            return std::unexpected(Error{.where = "--set " + change,
                                         .what = fmt::format("{} is a value and has no keys", walked),
                                         .hint = fmt::format("--set {}=VALUE", walked),
                                         .error_class = ErrorClass::kUsage});
    }
    table->insert_or_assign(names.back(), *holder.get("value"));
    changes_.push_back({path, "--set " + change});
    return {};
}

std::string TomlDocument::where(const toml::source_region& region, const std::string& path) const {
    for (auto change = changes_.rbegin(); change != changes_.rend(); ++change)
        if (change->path == path) return change->text;
    return position(file_, region.begin);
}

void TomlDocument::complain(std::string where, std::string what, std::string hint) {
    if (error_) return;
    const bool usage = where.starts_with("--set ");
    error_ = Error{.where = std::move(where),
                   .what = std::move(what),
                   .hint = std::move(hint),
                   .error_class = usage ? ErrorClass::kUsage : ErrorClass::kFailure};
}

TomlTable::TomlTable(TomlDocument& document, const toml::table& table, std::string path,
                     std::vector<std::string> known)
    : document_(&document), table_(&table), path_(std::move(path)) {
    if (known.empty()) return;
    for (const auto& [key, node] : table) {
        const std::string name(key.str());
        if (std::find(known.begin(), known.end(), name) != known.end()) continue;
        const std::string guess = nearest(name, known);
        document.complain(
            document.where(key.source(), path_of(name)), fmt::format("unknown key {}", path_of(name)),
            guess.empty() ? (path_.empty() ? "known keys are " : path_ + " has ") + joined(known)
                          : fmt::format("did you mean {}?", path_of(guess)));
    }
}

const toml::node* TomlTable::require(const std::string& key) {
    const toml::node* node = table_->get(key);
    if (node == nullptr) {
        const std::string where = document_->where(table_->source(), path_);
        if (key == "source")
            document_->complain(where, fmt::format("{} has no source", path_.empty() ? "the machine" : path_),
                                "say where these facts come from: source = \"manual, section\"");
        else
            document_->complain(where, fmt::format("{} is missing", path_of(key)),
                                "add it; see docs/machine-file.md");
    }
    return node;
}

void TomlTable::wrong_type(const std::string& key, const toml::node& node, const std::string& wanted) {
    document_->complain(document_->where(node.source(), path_of(key)),
                        fmt::format("{} is {}, not {}", path_of(key), type_name(node), wanted),
                        fmt::format("give {}", wanted));
}

std::optional<TomlTable> TomlTable::table(const std::string& key, std::vector<std::string> known) {
    const toml::table* inner = raw_table(key);
    if (inner == nullptr) return std::nullopt;
    return TomlTable(*document_, *inner, path_of(key), std::move(known));
}

const toml::table* TomlTable::raw_table(const std::string& key) {
    const toml::node* node = require(key);
    if (node == nullptr) return nullptr;
    if (!node->is_table()) wrong_type(key, *node, "a table");
    return node->as_table();
}

std::string TomlTable::text(const std::string& key) {
    const toml::node* node = require(key);
    if (node == nullptr) return {};
    const auto* value = node->as_string();
    if (value == nullptr) {
        wrong_type(key, *node, "text");
        return {};
    }
    if (value->get().find_first_not_of(" \t\n") == std::string::npos)
        reject(key, fmt::format("{} is empty", path_of(key)),
               key == "source" ? "say where these facts come from" : "fill it in");
    return value->get();
}

std::uint64_t TomlTable::whole(const std::string& key, std::uint64_t least, std::uint64_t most) {
    const toml::node* node = require(key);
    if (node == nullptr) return least;
    const auto* value = node->as_integer();
    if (value == nullptr) {
        wrong_type(key, *node, "a whole number");
        return least;
    }
    const std::int64_t number = value->get();
    if (number < 0 || static_cast<std::uint64_t>(number) < least ||
        static_cast<std::uint64_t>(number) > most) {
        reject(key, fmt::format("{} is {}", path_of(key), number),
               fmt::format("give a number from {} to {}", least, most));
        return least;
    }
    return static_cast<std::uint64_t>(number);
}

std::uint64_t TomlTable::whole_or(const std::string& key, std::uint64_t least, std::uint64_t most,
                                  std::uint64_t otherwise) {
    return has(key) ? whole(key, least, most) : otherwise;
}

std::uint64_t TomlTable::whole_or_word(const std::string& key, std::uint64_t least, std::uint64_t most,
                                       const std::string& word, std::uint64_t meaning) {
    const toml::node* node = table_->get(key);
    if (node != nullptr && node->is_string()) {
        if (node->as_string()->get() == word) return meaning;
        wrong_type(key, *node, fmt::format("a whole number or \"{}\"", word));
        return least;
    }
    return whole(key, least, most);
}

bool TomlTable::truth_or(const std::string& key, bool otherwise) {
    const toml::node* node = table_->get(key);
    if (node == nullptr) return otherwise;
    if (const auto* value = node->as_boolean()) return value->get();
    wrong_type(key, *node, "true or false");
    return otherwise;
}

double TomlTable::positive(const std::string& key) {
    const toml::node* node = require(key);
    if (node == nullptr) return 1;
    const auto value = node->is_number() ? node->value<double>() : std::nullopt;
    if (!value) {
        wrong_type(key, *node, "a number");
        return 1;
    }
    if (!(*value > 0) || !(*value < 1e15)) {
        reject(key, fmt::format("{} is {}", path_of(key), *value), "give a number above 0");
        return 1;
    }
    return *value;
}

std::vector<std::string> TomlTable::texts(const std::string& key) {
    const toml::node* node = require(key);
    if (node == nullptr) return {};
    const auto* list = node->as_array();
    if (list == nullptr) {
        wrong_type(key, *node, "a list of texts");
        return {};
    }
    std::vector<std::string> words;
    for (const toml::node& element : *list) {
        if (!element.is_string()) {
            wrong_type(key, element, "text");
            return {};
        }
        words.push_back(element.as_string()->get());
    }
    return words;
}

void TomlTable::reject(const std::string& key, std::string what, std::string hint) {
    const toml::node* node = table_->get(key);
    const toml::source_region& region = node != nullptr ? node->source() : table_->source();
    document_->complain(document_->where(region, path_of(key)), std::move(what), std::move(hint));
}

}  // namespace tlbscope::machine
