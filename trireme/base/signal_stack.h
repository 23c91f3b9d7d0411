// Stacks for signal handlers. A handler runs on the stack of the thread that the signal meets, below its stack pointer; oneDNN's
// JIT code for f32 products keeps that pointer in a workspace on the heap meanwhile, and the handler would write over what lies
// before it. So threads that compute have another stack for handlers, and handlers ask for it (SA_ONSTACK of sigaction(2)).
#pragma once

namespace trireme {

// Gives the calling thread a stack for handlers, until it ends; one that it has already stays.
void have_signal_stack();

}  // namespace trireme
