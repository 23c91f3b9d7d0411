#include "trireme/launch/supervise/hang_watch.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "trireme/base/flags.h"
#include "trireme/launch/rank/process_state.h"
#include "trireme/launch/rank/rank_page.h"

namespace trireme::launch {
namespace {

constexpr double kLookEvery_s = 0.2;
constexpr double kIdle = 0.02;    // of the time: who runs less than that does not run
constexpr double kTick_s = 0.02;  // CPU time is counted in ticks of the kernel

// Where in the kernel the process sleeps, as far as this user may know.
std::string place_of(int pid) {
  std::string out;
  const std::string channel = proc_text(fmt::format("/proc/{}/wchan", pid));
  if (!channel.empty() && channel != "0") out = fmt::format(" at {}", channel);
  const std::string stack = proc_text(fmt::format("/proc/{}/stack", pid));
  for (size_t at = 0; at < stack.size();) {
    const size_t end = std::min(stack.find('\n', at), stack.size());
    out += fmt::format("\n    kernel: {}", stack.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

// Whether it sleeps because nobody takes what it writes to its terminal or pipe (Ctrl-S, a pager).
bool is_held_by_its_reader(int pid) {
  long call = -1;
  unsigned long file = 0;
  const std::string text = proc_text(fmt::format("/proc/{}/syscall", pid));
  return std::sscanf(text.c_str(), "%ld %lx", &call, &file) == 2 && call == SYS_write &&
         (file == STDOUT_FILENO || file == STDERR_FILENO);
}

bool waits(const Worker& worker, double& since_s) {
  since_s = worker.page ? worker.page->page().waiting_since.load() : 0;
  return since_s > 0;
}

}  // namespace

HangWatch::HangWatch() : limit_s_(static_cast<double>(flag_int("TRIREME_HANG_TIMEOUT", 0, 86'400).value_or(4))) {}

void HangWatch::update(Seen& seen, const Worker& worker, double now) const {
  const ProcessState process = state_of(worker.pid);
  const double ran_s = process.cpu_s - seen.cpu_s;
  const bool waits_for_disk = worker.page && worker.page->page().on_disk.load() > 0;
  const bool sleeps = process.state == 'S' && !waits_for_disk && !is_held_by_its_reader(worker.pid);
  // What others made it wait for is not its own: it has not hung since then once it goes on.
  double waits_since_s = 0;
  const bool may_sleep = sleeps && !waits(worker, waits_since_s);
  const bool idle =
      process.known && (may_sleep || process.state == 'T') && ran_s <= kIdle * (now - seen.since_s) + kTick_s;
  seen.state = process.state;
  if (!idle) {
    seen.cpu_s = process.cpu_s;
    seen.since_s = now;
  }
  const int64_t steps = worker.page ? worker.page->page().steps.load() : 0;
  if (steps == seen.steps) return;
  if (seen.stepped_s > 0) {
    seen.step_s = std::max(seen.step_s * 0.9, (now - seen.stepped_s) / static_cast<double>(steps - seen.steps));
  }
  seen.steps = steps;
  seen.stepped_s = now;
}

std::string HangWatch::tell(const std::vector<Worker>& workers, const Worker& culprit, const Seen& seen,
                            double now) const {
  std::string out = fmt::format(
      "rank {} (pid {}) hangs: for {:.1f} s it has neither run nor waited for other ranks, which "
      "wait for it; it {}{}",
      culprit.rank, culprit.pid, now - seen.since_s, seen.state == 'T' ? "is stopped by a signal" : "sleeps",
      place_of(culprit.pid));
  for (const Worker& worker : workers) {
    double since_s = 0;
    if (!worker.running || worker.pid == culprit.pid || !waits(worker, since_s)) continue;
    out += fmt::format("\n  {}, for {:.1f} s", worker.page->page().read(), now - since_s);
  }
  return out;
}

int HangWatch::look(const std::vector<Worker>& workers, double now, std::string& story) {
  if (limit_s_ <= 0 || now < last_look_s_ + kLookEvery_s) return -1;
  // A machine that gave this process no processor gave the ranks none either: that time does not count.
  const double missed_s = last_look_s_ > 0 ? std::max(0.0, now - last_look_s_ - 3 * kLookEvery_s) : 0;
  last_look_s_ = now;
  double step_s = 0;
  for (const Worker& worker : workers) {
    if (!worker.running) continue;
    Seen& seen = seen_[worker.pid];
    seen.since_s = seen.since_s == 0 ? now : seen.since_s + missed_s;
    update(seen, worker, now);
    step_s = std::max(step_s, seen.step_s);
  }
  const double limit_s = std::max(limit_s_, 3 * step_s);
  const auto waits_long = [&](const Worker& worker) {
    double since_s = 0;
    return worker.running && waits(worker, since_s) && now - since_s >= limit_s;
  };
  if (std::ranges::none_of(workers, waits_long)) return -1;
  const bool joining = std::ranges::any_of(workers, [](const Worker& worker) {
    return worker.running && worker.page && worker.page->page().joining.load();
  });
  // One that is stopped before one that sleeps, which may sleep because of it; then the longest.
  const Seen* culprit = nullptr;
  int at = -1;
  for (size_t i = 0; i < workers.size(); ++i) {
    const Worker& worker = workers[i];
    if (!worker.running) continue;
    const Seen& seen = seen_[worker.pid];
    double since_s = 0;
    const bool may_wait = waits(worker, since_s) && seen.state != 'T';
    if (may_wait || (joining && seen.state != 'T') || now - seen.since_s < limit_s) continue;
    const auto order = [](const Seen& s) { return std::pair(s.state != 'T', s.since_s); };
    if (culprit != nullptr && order(*culprit) <= order(seen)) continue;
    culprit = &seen;
    at = static_cast<int>(i);
  }
  if (at >= 0) story = tell(workers, workers[static_cast<size_t>(at)], *culprit, now);
  return at;
}

}  // namespace trireme::launch
