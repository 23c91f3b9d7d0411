// Numbers in the arguments of test programs.
#pragma once

#include <charconv>
#include <string_view>

namespace trireme {

// Whether `arg` is `name` and a number, like "--seed=7", which `value` then is.
bool number_after(std::string_view arg, std::string_view name, auto& value) {
  if (!arg.starts_with(name)) return false;
  const std::string_view digits = arg.substr(name.size());
  return std::from_chars(digits.data(), digits.data() + digits.size(), value).ec == std::errc();
}

}  // namespace trireme
