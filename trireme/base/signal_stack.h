// Stacks for signal handlers. A handler runs on the stack of the thread that the signal meets, below its stack pointer;
// oneDNN's JIT code for f32 products keeps that pointer in a workspace on the heap meanwhile, and the handler would
// write over what lies before it. So threads that compute have another stack for handlers, and handlers ask for it
// (SA_ONSTACK of sigaction(2)); for those of other libraries, which do not (UCX and MPI catch what ends a program), and
// of the program itself, it is asked here.
#pragma once

namespace trireme {

// Gives the calling thread a stack for handlers, until it ends; one that it has already stays. The first call of each
// thread moves the handlers that the process has by then.
void have_signal_stack();

// Every handler of this process runs on such a stack from now on, where its thread has one.
void move_handlers_to_signal_stacks();

}  // namespace trireme
