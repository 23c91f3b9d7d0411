// Splitting text into words, and matching it with patterns.
#pragma once

#include <concepts>
#include <string_view>

namespace trireme {

// What a value with a text form can be made of in a program: a literal, a string, a view of one.
template <class T>
concept Text = std::convertible_to<const T&, std::string_view>;

// Without the spaces at both ends.
constexpr std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// Whether the pattern names it; `*` stands for any characters. Of several stars only the last one that was reached is
// tried with more characters: what an earlier one could take is of no more use to what follows.
constexpr bool matches(std::string_view pattern, std::string_view name) {
  size_t at = 0, star = std::string_view::npos,
         taken = 0;  // in the pattern; the last star, and where in the name it ends
  for (size_t i = 0; i < name.size();) {
    if (at < pattern.size() && pattern[at] == '*') {
      star = at++;
      taken = i;
    } else if (at < pattern.size() && pattern[at] == name[i]) {
      ++at, ++i;
    } else if (star != std::string_view::npos) {
      at = star + 1;
      i = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', at) == std::string_view::npos;
}

}  // namespace trireme
