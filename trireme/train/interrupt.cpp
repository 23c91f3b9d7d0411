#include "trireme/train/interrupt.h"

#include <csignal>

namespace trireme {
namespace {

volatile std::sig_atomic_t asked_to_stop = 0;
struct sigaction before_int;
struct sigaction before_term;

void note(int signal) {
  if (asked_to_stop != 0) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
  asked_to_stop = 1;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  asked_to_stop = 0;
  struct sigaction action {};
  action.sa_handler = note;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | SA_ONSTACK;  // not on that of a kernel (base/signal_stack.h)
  ::sigaction(SIGINT, &action, &before_int);
  ::sigaction(SIGTERM, &action, &before_term);
}

InterruptGuard::~InterruptGuard() {
  ::sigaction(SIGINT, &before_int, nullptr);
  ::sigaction(SIGTERM, &before_term, nullptr);
}

bool InterruptGuard::asked() const { return asked_to_stop != 0; }

}  // namespace trireme
