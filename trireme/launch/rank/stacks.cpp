#include "trireme/launch/rank/stacks.h"

#include <dirent.h>
#include <execinfo.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <thread>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/launch/rank/process_state.h"
#include "trireme/launch/rank/symbols.h"

namespace trireme::launch {
namespace {

constexpr std::chrono::milliseconds kMoment{300};  // for all threads to answer
constexpr int kOfHandler = 2;  // innermost frames: the handler, and what the system puts before what it interrupted

RankPage* page_of_handler = nullptr;

void take_trace(int) {
  const int error = errno;
  const int at = page_of_handler->traces_begun.fetch_add(1);
  if (at < RankPage::kTraces) {
    RankPage::Trace& trace = page_of_handler->traces[at];
    trace.thread = static_cast<int>(syscall(SYS_gettid));
    trace.depth = backtrace(trace.frames, RankPage::kFrames);
    trace.ready.store(true);
  }
  errno = error;
}

std::vector<int> threads_of(int pid) {
  std::vector<int> out;
  DIR* const folder = opendir(fmt::format("/proc/{}/task", pid).c_str());
  if (folder == nullptr) return out;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') out.push_back(std::atoi(entry->d_name));
  }
  closedir(folder);
  return out;
}

std::string name_of_thread(int pid, int thread) {
  std::string name;
  std::getline(std::ifstream(fmt::format("/proc/{}/task/{}/comm", pid, thread)), name);
  return name;
}

std::string text_of(const RankPage::Trace& trace, Symbols& symbols) {
  std::string out;
  for (int i = kOfHandler; i < std::min(trace.depth, RankPage::kFrames); ++i) {
    // A frame holds where it goes on, which may be the first byte after the call; the innermost one where it is.
    const auto address = reinterpret_cast<uintptr_t>(trace.frames[i]);
    out += "\n      " + symbols.name_at(i == kOfHandler ? address : address - 1);
  }
  return out;
}

}  // namespace

void answer_trace_requests(RankPage& page) {
  const int signal = SIGRTMIN + 5;
  struct sigaction before {};
  if (sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;  // the program uses it itself
  void* frames[2];
  backtrace(frames, 2);  // the first call loads what the others use
  page_of_handler = &page;
  struct sigaction action {};
  action.sa_handler = take_trace;
  action.sa_flags = SA_RESTART | SA_ONSTACK;  // not on that of a kernel (base/signal_stack.h)
  sigemptyset(&action.sa_mask);
  if (sigaction(signal, &action, nullptr) == 0) page.trace_signal.store(signal);
}

std::string stacks_of(int pid, RankPage& page) {
  const int signal = page.trace_signal.load();
  if (signal < SIGRTMIN || signal > SIGRTMAX) return "";
  if (state_of(pid).state == 'T') return "";  // it would have to go on to answer
  const std::vector<int> threads = threads_of(pid);
  const int before = page.traces_begun.load();
  for (const int thread : threads) syscall(SYS_tgkill, pid, thread, signal);
  const int asked = std::min(static_cast<int>(threads.size()), RankPage::kTraces - before);
  const auto ready = [&] {
    int count = 0;
    for (int i = before; i < before + asked; ++i) count += page.traces[i].ready.load() ? 1 : 0;
    return count;
  };
  for (const Deadline deadline(kMoment); ready() < asked && !deadline.passed();) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Symbols symbols(pid);
  std::string out = ready() > 0 ? "\n  where its threads are:" : "";
  for (int i = before; i < before + asked; ++i) {
    const RankPage::Trace& trace = page.traces[i];
    if (!trace.ready.load()) continue;
    out += fmt::format("\n    thread {} ({}):{}", trace.thread, name_of_thread(pid, trace.thread),
                       text_of(trace, symbols));
  }
  return out;
}

}  // namespace trireme::launch
