// Finds where the threads of a hanging rank are. The rank itself writes down its stacks, in the handler of a signal
// that its launcher sends to each of its threads; the launcher finds the names. A process that does not listen (another
// program, a rank that has not joined) is left alone.
#pragma once

#include <string>

#include "trireme/launch/rank/rank_page.h"

namespace trireme::launch {

// In the rank: answers from now on. The handler allocates nothing and takes no lock.
void answer_trace_requests(RankPage& page);

// In the launcher: the stacks of the process's threads, each frame on a line of its own; "" when it
// does not answer, which is waited for a moment.
std::string stacks_of(int pid, RankPage& page);

}  // namespace trireme::launch
