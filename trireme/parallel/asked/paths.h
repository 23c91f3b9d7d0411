// Splits the paths of scopes, "model.layers.0.mlp", into their parts.
#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

namespace trireme {

// Takes the first part off the path.
inline std::string_view next_part(std::string_view& path) {
  const std::string_view part = path.substr(0, path.find('.'));
  path.remove_prefix(std::min(part.size() + 1, path.size()));
  return part;
}

// Of a part that is a whole number.
inline std::optional<int> number_of(std::string_view part) {
  int value = 0;
  const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
  if (part.empty() || error != std::errc() || end != part.data() + part.size()) return std::nullopt;
  return value;
}

// A module that is one of several alike: the path up to its first number, "model.layers.3" of "model.layers.3.mlp",
// and what is inside it, "mlp". Without a number none of it.
struct NumberedModule {
  std::string_view path;
  int number = -1;
  std::string_view inside;
};
inline NumberedModule numbered_module(std::string_view path) {
  for (std::string_view rest = path; !rest.empty();) {
    const std::string_view part = next_part(rest);
    const auto end = static_cast<size_t>(part.data() + part.size() - path.data());
    if (const auto number = number_of(part)) return {path.substr(0, end), *number, rest};
  }
  return {};
}

}  // namespace trireme
