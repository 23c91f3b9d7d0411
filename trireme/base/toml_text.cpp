#include "trireme/base/toml_text.h"

#include <algorithm>
#include <cstddef>

namespace trireme {
namespace {

// The place after the string that begins at `at`. One that is not closed ends with its line, or with the text.
size_t end_of_string(std::string_view toml, size_t at) {
  const char quote = toml[at];
  const size_t opened = std::min(toml.find_first_not_of(quote, at), toml.size()) - at;
  if (opened == 2 || opened >= 6) return at + (opened == 2 ? 2 : 6);  // an empty one
  const bool is_long = opened >= 3;
  for (size_t i = at + (is_long ? 3 : 1); i < toml.size(); ++i) {
    if (toml[i] == '\\' && quote == '"') {
      ++i;
    } else if (toml[i] == '\n' && !is_long) {
      return i;
    } else if (toml[i] == quote && !is_long) {
      return i + 1;
    } else if (toml[i] == quote && toml.substr(i, 3) == std::string_view(toml.data() + at, 3)) {
      const size_t run = std::min(toml.find_first_not_of(quote, i), toml.size()) - i;
      return i + std::min<size_t>(run, 5);  // two quotes may stand before the three that close
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
    } else if (static_cast<unsigned char>(toml[i]) >= 0x80) {
      return 1 + static_cast<int>(std::count(toml.begin(), toml.begin() + static_cast<std::ptrdiff_t>(i), '\n'));
    } else {
      ++i;
    }
  }
  return 0;
}

}  // namespace trireme
