// How much freed memory the C library keeps.
#pragma once

#include <cstddef>

namespace trireme {

// Gives freed memory back to the system when the heap keeps more than this and the process has grown by as much since
// the last call that looked; true when it did. oneDNN allocates aligned blocks that live for one product; they leave
// holes that the next ones do not fit, so that ten times as much may be kept as was ever in use at once.
bool trim_heap(size_t most_kept_bytes);

}  // namespace trireme
