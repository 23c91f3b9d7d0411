// How much the tests of this program do, as its arguments say (main.cpp); otherwise what CTest has time for.
#pragma once

#include <cstdint>

namespace trireme::cli {

struct Sizes {
  int kills = 10;         // soak_test.cpp
  int64_t hellos = 3000;  // hellos_test.cpp
  int nodes = 200;        // registration_test.cpp
  int on_node = 1;        // workers of each of these nodes
  uint32_t seed = 1;
};
inline Sizes sizes;

}  // namespace trireme::cli
