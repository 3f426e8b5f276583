#include "core/error.h"

#include <cerrno>
#include <cstring>
#include <utility>

namespace tlbscope {

std::string Error::message() const {
    std::string text;
    if (!where.empty()) text = where + ": ";
    text += what;
    if (!hint.empty()) text += "; " + hint;
    return text;
}

namespace {
const char* remedy(int error_number) {
    switch (error_number) {
        case ENOSPC:
        case EDQUOT:
            return "free some space or choose another place with -o";
        case EROFS:
        case EACCES:
        case EPERM:
            return "choose a place you may use";
        case ENOENT:
            return "check the name";
        case EISDIR:
            return "name a file, not a folder";
        default:
            return "";
    }
}
}  // namespace

std::unexpected<Error> system_error(const std::string& where, const std::string& doing, int error_number) {
    return fail(where, doing + ": " + std::strerror(error_number), remedy(error_number));
}

std::unexpected<Error> fail(std::string where, std::string what, std::string hint) {
    return std::unexpected(
        Error{.where = std::move(where), .what = std::move(what), .hint = std::move(hint)});
}

}  // namespace tlbscope
