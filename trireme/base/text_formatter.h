// A formatter of fmt for what is printed as a text, by "{}" alone. Fmt's own formatter of texts reads a width and a
// precision as well, and takes a third of a second to compile in each source.
#pragma once

#include <fmt/format.h>

#include <string_view>

namespace trireme {

struct TextFormatter {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }

 protected:
  static fmt::appender put(std::string_view text, fmt::format_context& context) {
    fmt::appender out = context.out();
    for (const char c : text) *out++ = c;
    return out;
  }
};

}  // namespace trireme
