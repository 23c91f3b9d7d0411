#include "trireme/launch/supervise/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "trireme/base/error.h"

namespace trireme::launch {

Signals::Signals() {
  // A parent may have left SIGCHLD ignored, and then the workers' exit codes would be lost.
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;
  sigaction(SIGCHLD, &usual, &child_before_);
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD}) {
    struct sigaction now {};
    sigaction(s, nullptr, &now);
    if (now.sa_handler != SIG_IGN) sigaddset(&wanted, s);
  }
  pthread_sigmask(SIG_BLOCK, &wanted, &before_);
  fd_ = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ < 0) {
    restore();
    fail(ErrorKind::kIo, "launch: cannot listen for signals ({})", std::strerror(errno));
  }
}

Signals::~Signals() {
  close(fd_);
  restore();
}

int Signals::next() const {
  signalfd_siginfo info{};
  return read(fd_, &info, sizeof info) == sizeof info ? static_cast<int>(info.ssi_signo) : 0;
}

int Signals::next_to_end() const {
  int signal = next();
  while (signal == SIGCHLD || signal == SIGUSR1) signal = next();
  return signal;
}

void Signals::restore() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  sigaction(SIGCHLD, &child_before_, nullptr);
}

}  // namespace trireme::launch
