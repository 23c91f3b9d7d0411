// Memory of commands that make and drop millions of small objects, as planning and compiling do.
#pragma once

namespace trireme::cli {

// From here on small blocks come from spans of one size each, and those that are freed are kept for what is made next:
// with the C library's lists of them a plan takes a quarter longer. The program keeps as much of each size as it once
// had. Not for commands that train, whose memory is what their plan says. To be called while there is one thread.
void keep_freed_blocks();

}  // namespace trireme::cli
