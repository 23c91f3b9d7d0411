// How many files, sockets and pipes a launcher and its ranks may have open.
#pragma once

namespace trireme::launch {

// Raises this process's limit, which its ranks inherit, as far as so many ranks need and the system lets it. kInvalidArgument with
// both numbers when that is not enough.
void make_room_for_descriptors(int ranks);

}  // namespace trireme::launch
