// Expected failures are values. An error says where, what is wrong and what to do, and only the command line
// prints it; no library code exits or throws across a stage's edge.
#pragma once

#include <expected>
#include <string>

namespace tlbscope {

// Which exit status the failure deserves.
enum class ErrorClass {
    kFailure,      // exit 1: the input or the environment is at fault
    kUsage,        // exit 2: the command line is at fault
    kInterrupted,  // exit 130: the user stopped it
};

struct Error {
    std::string where;  // "FILE" or "FILE:POSITION"; empty when no file is involved
    std::string what;   // what is wrong
    std::string hint;   // what to do; may be empty
    ErrorClass error_class = ErrorClass::kFailure;

    // "FILE:POSITION: what is wrong; what to do", without the program's name.
    [[nodiscard]] std::string message() const;
};

template <class T>
using Result = std::expected<T, Error>;

// The error for a system call that failed on `where`: `doing` and the text of `error_number`, with a remedy
// for the common ones (no space, read-only, permission, missing).
[[nodiscard]] std::unexpected<Error> system_error(const std::string& where, const std::string& doing,
                                                  int error_number);
[[nodiscard]] std::unexpected<Error> fail(std::string where, std::string what, std::string hint);

}  // namespace tlbscope
