#include "trireme/base/toml_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>

namespace trireme {
namespace {

bool is_ascii(char c) {
  return static_cast<unsigned char>(c) < 0x80;
}

// The place after the string that begins at `at`. One that is not closed ends with its line, or with the text; a long
// one before a character that is not ASCII and the first after a line that ends with a backslash.
size_t end_of_string(std::string_view toml, size_t at) {
  const char quote = toml[at];
  const size_t opened = std::min(toml.find_first_not_of(quote, at), toml.size()) - at;
  if (opened == 2 || opened >= 6) return at + (opened == 2 ? 2 : 6);  // an empty one
  const bool is_long = opened >= 3;
  for (size_t i = at + (is_long ? 3 : 1); i < toml.size(); ++i) {
    if (toml[i] == '\\' && quote == '"') {
      const size_t next = std::min(toml.find_first_not_of(" \t\r\n", i + 1), toml.size());
      if (is_long && next > i + 1 && next < toml.size() && !is_ascii(toml[next])) return next;
      ++i;
    } else if (toml[i] == '\n' && !is_long) {
      return i;
    } else if (toml[i] == quote && !is_long) {
      return i + 1;
    } else if (toml[i] == quote && toml.substr(i, 3) == std::string_view(toml.data() + at, 3)) {
      const size_t run = std::min(toml.find_first_not_of(quote, i), toml.size()) - i;
      return i + std::min<size_t>(run, 5);  // two quotes may precede the three that close
    }
  }
  return toml.size();
}

}  // namespace

int line_of_bare_character(std::string_view toml) {
  for (size_t i = 0; i < toml.size();) {
    if (toml[i] == '#') {
      i = std::min(toml.find('\n', i), toml.size());
    } else if (toml[i] == '"' || toml[i] == '\'') {
      i = end_of_string(toml, i);
    } else if (!is_ascii(toml[i])) {
      return 1 + static_cast<int>(std::count(toml.begin(), toml.begin() + static_cast<std::ptrdiff_t>(i), '\n'));
    } else {
      ++i;
    }
  }
  return 0;
}

std::string in_ascii(std::string_view toml) {
  std::string out;
  if (std::ranges::all_of(toml, is_ascii)) return out;
  for (const char c : toml) {
    if (is_ascii(c)) {
      out += c;
    } else {
      out += fmt::format("?{:02x}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace trireme
