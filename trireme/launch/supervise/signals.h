// The signals that concern a launcher, as bytes that can be polled for.
#pragma once

#include <csignal>

namespace trireme::launch {

// SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGCHLD are blocked and queued here while it lives. Those that this process was
// started to ignore (nohup, background jobs of a script) stay ignored. Made before other threads are, which inherit the
// mask.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  int fd() const { return fd_; }
  // The next one received, or 0.
  int next() const;
  // The next that asks to end, or 0; what came before it is gone.
  int next_to_end() const;

 private:
  void restore();

  struct sigaction child_before_ {};
  sigset_t before_;
  int fd_;
};

}  // namespace trireme::launch
