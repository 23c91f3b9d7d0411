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

}  // namespace trireme
