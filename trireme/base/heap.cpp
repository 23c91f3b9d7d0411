#include "trireme/base/heap.h"

#include <malloc.h>

namespace trireme {

void trim_heap(size_t most_kept_bytes) {
  if (mallinfo2().fordblks > most_kept_bytes) malloc_trim(0);
}

}  // namespace trireme
