#include "trireme/train/loop/interrupt.h"

#include <unistd.h>

#include <array>
#include <csignal>

#include "trireme/launch/rank/rank_info.h"

namespace trireme {
namespace {

constexpr std::array kStopping{SIGINT, SIGTERM, SIGHUP};

volatile std::sig_atomic_t asked_to_stop = 0;  // the signal
volatile std::sig_atomic_t asked_to_save = 0;
volatile std::sig_atomic_t sent_by_parent = 0;  // signals that ask to stop
volatile std::sig_atomic_t sent_by_others = 0;
pid_t parent = 0;
std::array<struct sigaction, kStopping.size()> before;
struct sigaction before_save;

void note_stop(int signal, siginfo_t* info, void*) {
  const bool by_parent = info->si_code == SI_USER && info->si_pid == parent;
  volatile std::sig_atomic_t& sent = by_parent ? sent_by_parent : sent_by_others;
  if (sent != 0) {
    ::signal(signal, SIG_DFL);
    ::raise(signal);
  }
  sent = 1;
  asked_to_stop = signal;
}

void note_save(int) {
  asked_to_save = 1;
}

}  // namespace

InterruptGuard::InterruptGuard() {
  asked_to_stop = 0;
  asked_to_save = 0;
  sent_by_parent = 0;
  sent_by_others = 0;
  parent = ::getppid();
  struct sigaction action {};
  sigemptyset(&action.sa_mask);
  action.sa_sigaction = note_stop;
  action.sa_flags = SA_RESTART | SA_ONSTACK | SA_SIGINFO;  // not on the stack of a kernel (base/signal_stack.h)
  for (size_t i = 0; i < kStopping.size(); ++i) {
    ::sigaction(kStopping[i], nullptr, &before[i]);
    if (before[i].sa_handler != SIG_IGN) ::sigaction(kStopping[i], &action, nullptr);
  }
  action.sa_handler = note_save;
  action.sa_flags = SA_RESTART | SA_ONSTACK;
  ::sigaction(SIGUSR1, &action, &before_save);
  launch::note_saves_when_asked(true);
}

InterruptGuard::~InterruptGuard() {
  launch::note_saves_when_asked(false);
  for (size_t i = 0; i < kStopping.size(); ++i) ::sigaction(kStopping[i], &before[i], nullptr);
  // One that comes late has nothing left to save, and ends nothing.
  if (before_save.sa_handler == SIG_DFL) before_save.sa_handler = SIG_IGN;
  ::sigaction(SIGUSR1, &before_save, nullptr);
}

Wishes InterruptGuard::take() const {
  const Wishes wishes{.stop = asked_to_stop, .save = asked_to_save != 0};
  if (wishes.save) asked_to_save = 0;
  return wishes;
}

void ignore_save_signal() {
  struct sigaction now {};
  if (::sigaction(SIGUSR1, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) ::signal(SIGUSR1, SIG_IGN);
}

Wishes agree(comm::World* world, Wishes mine) {
  Wishes all = mine;
  if (world != nullptr) {
    int32_t flags[] = {mine.stop, mine.save ? 1 : 0, mine.due ? 1 : 0};
    world->all().all_reduce({reinterpret_cast<std::byte*>(flags), {DType::kI32, {3}}}, comm::Reduce::kMax).wait();
    all = {.stop = flags[0], .save = flags[1] != 0, .due = flags[2] != 0};
  }
  if (all.stop != 0) launch::note_interrupt(all.stop, mine.stop != 0);
  return all;
}

}  // namespace trireme
