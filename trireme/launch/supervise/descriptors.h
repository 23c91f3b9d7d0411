// The limits of open files, sockets and pipes of a launcher and its ranks.
#pragma once

#include <cstddef>

namespace trireme::launch {

// Raises this process's limit, which its ranks inherit, as far as this many ranks need and the system allows.
// kInvalidArgument with both numbers when that is not enough.
void make_room_for_descriptors(int ranks);
// Raises it to this number and some more for other things, as far as the system allows.
void raise_descriptor_limit(size_t more);

}  // namespace trireme::launch
