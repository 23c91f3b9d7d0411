// Signals as requests of the user: SIGINT, SIGTERM and SIGHUP to stop after the current step, SIGUSR1 to save and go
// on.
#pragma once

#include "trireme/comm/comm.h"

namespace trireme {

struct Wishes {
  int stop = 0;  // the signal that asks for it, or 0
  bool save = false;
  bool due = false;  // it is time for the next checkpoint by a clock
};

// While it lives, these signals are only noted. A signal that this process was started to ignore (nohup) stays ignored,
// but for SIGUSR1. A second one that asks to stop ends the program as usual; but what the parent sends and what others
// send are counted apart, for a launcher passes on what a cluster may have sent to every process by itself.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
  // Of this process. The wish to stop stays, that to save is gone with the call.
  Wishes take() const;
};

// From now on SIGUSR1 does not end this process, which cannot save yet.
void ignore_save_signal();

// What any rank was asked, the same on all; `world` may be null. Tells the launcher that the ranks stop.
Wishes agree(comm::World* world, Wishes mine);

}  // namespace trireme
