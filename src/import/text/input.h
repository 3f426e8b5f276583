// Input that may be compressed: plain, gzip, xz or zstd, told apart by its first bytes and never by its name;
// `-` is standard input. Bytes come as a stream, so that a log of any size takes the memory of a line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"

namespace tlbscope::import {

class Input {
  public:
    // Opens a file, or standard input for "-".
    static Result<Input> open(const std::string& name);
    // Bytes that are in memory already; they must outlive the input. `name` is for messages.
    static Result<Input> of_bytes(std::string name, std::span<const std::uint8_t> bytes);
    Input(Input&&) noexcept;
    Input& operator=(Input&&) noexcept;
    Input(const Input&) = delete;
    Input& operator=(const Input&) = delete;
    ~Input();

    // Fills as much of `into` as there is: fewer bytes only at the end, none when it was reached. A
    // compressed stream that is damaged or cut short is an error once everything before that was handed out.
    Result<std::size_t> read(std::span<std::uint8_t> into);
    [[nodiscard]] const std::string& name() const;  // "-" reads as "standard input"

  private:
    struct State;
    explicit Input(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

// The lines of an input.
class Lines {
  public:
    // Longer lines are cut there: no text that is understood has any.
    static constexpr std::size_t kLongest = std::size_t{1} << 20;

    explicit Lines(Input input) : input_(std::move(input)), buffer_(std::size_t{64} << 10) {}

    // The next line without its end ("\n" or "\r\n"), valid until the following call; nothing at the end.
    // After an error there are no further lines.
    Result<std::optional<std::string_view>> next();
    // Number of the line handed out last, from 1.
    [[nodiscard]] std::uint64_t number() const { return number_; }
    [[nodiscard]] const Input& input() const { return input_; }

  private:
    Input input_;
    std::vector<std::uint8_t> buffer_;
    std::size_t at_ = 0;
    std::size_t size_ = 0;
    std::string line_;
    std::uint64_t number_ = 0;
    bool ended_ = false;
    std::optional<Error> error_;
};

}  // namespace tlbscope::import
