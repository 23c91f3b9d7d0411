#include "trireme/base/signal_stack.h"

#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <memory>

namespace trireme {
namespace {

constexpr size_t kForHandler =
    256 << 10;  // bytes for its calls, backtrace(3) and the lookup of names in UCX's among them

class SignalStack {
 public:
  SignalStack() {
    move_handlers_to_signal_stacks();
    stack_t now{};
    if (sigaltstack(nullptr, &now) != 0 || (now.ss_flags & SS_DISABLE) == 0) return;
    const size_t size =
        kForHandler + static_cast<size_t>(sysconf(_SC_MINSIGSTKSZ));  // what the kernel saves there: the registers
    memory_ = std::make_unique_for_overwrite<std::byte[]>(size);
    const stack_t ours{.ss_sp = memory_.get(), .ss_flags = 0, .ss_size = size};
    if (sigaltstack(&ours, nullptr) != 0) memory_.reset();
  }
  ~SignalStack() {
    stack_t now{};
    if (!memory_ || sigaltstack(nullptr, &now) != 0 || now.ss_sp != memory_.get()) return;
    const stack_t none{.ss_sp = nullptr, .ss_flags = SS_DISABLE, .ss_size = 0};
    sigaltstack(&none, nullptr);
  }
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  std::unique_ptr<std::byte[]> memory_;
};

}  // namespace

void move_handlers_to_signal_stacks() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) != 0 || now.sa_handler == SIG_DFL || now.sa_handler == SIG_IGN) continue;
    if ((now.sa_flags & SA_ONSTACK) != 0) continue;
    now.sa_flags |= SA_ONSTACK;
    sigaction(signal, &now, nullptr);
  }
}

void have_signal_stack() {
  thread_local const SignalStack stack;
}

}  // namespace trireme
