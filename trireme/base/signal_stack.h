// Stacks for signal handlers. A handler runs on the stack of the thread that receives the signal, below its stack
// pointer. While oneDNN's JIT code computes f32 products, that pointer points into a workspace on the heap, and the
// handler would overwrite what lies before it. So threads that compute have another stack for handlers, and a handler
// must ask for it (SA_ONSTACK of sigaction(2)). The handlers of other libraries (UCX and MPI catch signals that end a
// program) and of the program itself do not ask; this file asks for them.
#pragma once

namespace trireme {

// Gives the calling thread a stack for handlers, until it ends; one that it has already stays. The first call of each
// thread moves the handlers that the process has by then.
void have_signal_stack();

// Every handler of this process runs on such a stack from now on, where its thread has one.
void move_handlers_to_signal_stacks();

}  // namespace trireme
