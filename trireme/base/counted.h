// Numbers of things in messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

// "1 row", "2 rows", "3 batches".
inline std::string counted(int64_t count, std::string_view word) {
  std::string out = std::to_string(count) + " " + std::string(word);
  if (count != 1) out += word.ends_with("ch") ? "es" : "s";
  return out;
}

}  // namespace trireme
