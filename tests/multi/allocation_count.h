// This program's malloc and operator new count when they are asked to.
#pragma once

#include <cstddef>
#include <cstdint>

namespace trireme::testing_support {

struct Allocations {
  int64_t mallocs = 0;  // with those of operator new; not those of posix_memalign
  int64_t news = 0;
  size_t largest = 0;  // bytes
};

// False under a sanitizer, which has an allocator of its own, and with another C library.
bool can_count_allocations();
// Of all threads, from zero.
void start_counting_allocations();
Allocations stop_counting_allocations();

}  // namespace trireme::testing_support
