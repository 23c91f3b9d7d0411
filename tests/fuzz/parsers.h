// The entries of entries/ by name, where they are one program without libFuzzer. Its build makes the list
// (CMakeLists.txt).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace trireme::fuzz {

struct Parser {
  std::string_view name;
  int (*run)(const uint8_t* data, size_t size);
};

std::span<const Parser> parsers();

}  // namespace trireme::fuzz
