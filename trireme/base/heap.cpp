#include "trireme/base/heap.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>

namespace trireme {
namespace {

// Of this process; 0 where the system does not tell.
size_t resident_memory() {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::FILE* const file = std::fopen("/proc/self/statm", "re");
  if (file == nullptr) return 0;
  size_t resident = 0;
  if (std::fscanf(file, "%*s %zu", &resident) != 1) resident = 0;
  std::fclose(file);
  return resident * page;
}

std::atomic<size_t> at_last_look{0};  // resident memory

}  // namespace

// malloc counts as free also what it has given back, and to look at all that is free takes the longer the more there
// is: so only memory that has grown since is a reason to look again.
bool trim_heap(size_t most_kept_bytes) {
  const size_t resident = resident_memory();
  const size_t before = std::min(at_last_look.load(), resident);
  at_last_look.store(before);
  if (resident != 0 && resident - before <= most_kept_bytes) return false;
  const bool trims = mallinfo2().fordblks > most_kept_bytes;
  if (trims) malloc_trim(0);
  at_last_look.store(trims ? resident_memory() : resident);
  return trims;
}

}  // namespace trireme
