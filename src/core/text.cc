#include "core/text.h"

namespace tlbscope {

std::string wrapped(std::string_view text, std::string_view indent, std::size_t width,
                    std::string_view first) {
    std::string out;
    std::string line(first.empty() ? indent : first);
    bool empty = true;
    while (!text.empty()) {
        const std::size_t space = text.find(' ');
        const std::string_view word = text.substr(0, space);
        text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
        if (!empty && line.size() + 1 + word.size() > width) {
            out += line + "\n";
            line = indent;
            empty = true;
        }
        if (!empty) line += ' ';
        line += word;
        empty = false;
    }
    return out + line + "\n";
}

}  // namespace tlbscope
