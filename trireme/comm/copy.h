// Copying of large pieces. On some processors the C library's memcpy of 2 KiB to 1 MiB falls to a
// tenth of its speed when source and destination are not equally aligned (measured: 2.5 instead of
// 35 GB/s on a Zen 5), and it does not bypass the cache for pieces of something larger than the
// cache.
#pragma once

#include <cstddef>

namespace trireme::comm {

// Copies bytes that do not overlap. `of_bytes` is the size of the whole that they are a piece of:
// what does not fit into the cache is written past it.
void copy_bytes(std::byte* to, const std::byte* from, size_t bytes, size_t of_bytes);

// The same for bytes that another core reads next: they are written past the cache, because a core
// reads what another has changed in its cache several times slower than what is in memory
// (measured: 2 and 10 GB/s).
void hand_over(std::byte* to, const std::byte* from, size_t bytes);

}  // namespace trireme::comm
