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

// Whether the pattern names it; `*` stands for any characters.
constexpr bool matches(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t from = star; from <= name.size(); ++from) {
    if (matches(rest, name.substr(from))) return true;
  }
  return false;
}

}  // namespace trireme
