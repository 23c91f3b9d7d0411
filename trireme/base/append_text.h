// Formatted text at the end of a string. fmt::format_to with an iterator does the same, and compiles how numbers are
// written in every source that calls it.
#pragma once

#include <fmt/core.h>

#include <string>

namespace trireme {

template <class... Args>
void append_text(std::string& out, fmt::format_string<Args...> text, Args&&... args) {
  out += fmt::vformat(text, fmt::make_format_args(args...));
}

}  // namespace trireme
