// Texts or whole numbers in one text: "1, 2, 3". fmt::join does the same, and takes a second to compile in each source.
#pragma once

#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace trireme {

template <class Range>
std::string joined_text(const Range& values, std::string_view between) {
  std::string out;
  bool is_first = true;
  for (const auto& value : values) {
    if (!is_first) out += between;
    is_first = false;
    if constexpr (std::integral<std::remove_cvref_t<decltype(value)>>) {
      out += std::to_string(value);
    } else {
      out += value;
    }
  }
  return out;
}

}  // namespace trireme
