// Lifetime: how large a buffer is, and when its bytes are in use.
#pragma once

#include <cstdint>

namespace trireme {

// A buffer's size and the steps (positions in the plan's order) from its first write to its last use, inclusive.
struct Lifetime {
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
};

// Steps from the first to the last.
struct Period {
  int first = 0;
  int last = 0;
};

}  // namespace trireme
