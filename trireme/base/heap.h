// How much freed memory the C library keeps.
#pragma once

#include <cstddef>

namespace trireme {

// Gives freed memory back to the system when the heap keeps more than this. oneDNN allocates aligned blocks that live
// for one product; they leave holes that the next ones do not fit, so that ten times as much may be kept as was ever in
// use at once.
void trim_heap(size_t most_kept_bytes);

}  // namespace trireme
