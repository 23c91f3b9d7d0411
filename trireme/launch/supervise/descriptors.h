// How many files, sockets and pipes a launcher and its ranks may have open.
#pragma once

#include <cstddef>

namespace trireme::launch {

// Raises this process's limit, which its ranks inherit, as far as so many ranks need and the system lets it.
// kInvalidArgument with both numbers when that is not enough.
void make_room_for_descriptors(int ranks);
// Raises it to so many and some for other things, as far as the system lets it.
void raise_descriptor_limit(size_t more);

}  // namespace trireme::launch
