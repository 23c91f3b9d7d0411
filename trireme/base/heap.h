// What the C library keeps of freed memory.
#pragma once

#include <cstddef>

namespace trireme {

// Gives freed memory back to the system where the heap keeps more than this. Aligned blocks that live for one product,
// as oneDNN makes them, leave holes that the next ones do not fit; what was in use at once may be a tenth of what is
// kept.
void trim_heap(size_t most_kept_bytes);

}  // namespace trireme
