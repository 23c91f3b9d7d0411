// Ctrl-C and SIGTERM as a wish to stop after the current step.
#pragma once

namespace trireme {

// While it lives, the first SIGINT or SIGTERM is only noted; a second one ends the program as usual.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  bool asked() const;
};

}  // namespace trireme
