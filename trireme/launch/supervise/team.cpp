#include "trireme/launch/supervise/team.h"

#include <poll.h>

#include <algorithm>
#include <csignal>

#include "trireme/base/clock.h"
#include "trireme/base/log.h"
#include "trireme/launch/rank/stacks.h"

namespace trireme::launch {
namespace {

// After the first failure, the time for its like in other ranks to show by itself; and for its cause, where it may be a
// consequence of what another rank has not said yet.
constexpr std::chrono::milliseconds kSettle{200}, kCause{1000};

}  // namespace

Team::~Team() {
  kill_all();
  while (!all_ended()) wait(nullptr, -1);
}

void Team::run(const Signals& signals, const TeamWatch& watch) {
  while (!all_ended()) {
    wait(&signals, watch.wake);
    while (const int signal = signals.next()) {
      if (signal == SIGUSR1) {
        save_when_possible();
      } else if (signal != SIGCHLD) {
        interrupt(signal);
      }
    }
    pass_on_save();
    end_who_hangs();
    if (patience_.count() > 0) end_stopped();
    look_at_failures();
    if (failure_ && failure_->passed()) end();
    if (ending_ && ending_->passed()) kill_all();
    if (watch.on_turn) watch.on_turn();
  }
  for (const Worker& worker : workers_) {
    const double told = worker.page->page().told.load();
    TRIREME_LOG(kDebug, "launch", "rank {} ended at {:.6f} s of the steady clock{}", worker.rank, worker.ended_s,
                told > 0 ? fmt::format(", told of the job's end at {:.6f} s", told) : "");
  }
}

// What is no consequence of another rank's end is told to all at once; the others that find it out themselves, or have
// the same trouble, are given the time to say so. Only who waits to join knows of nobody and has nothing to say; nor
// has who is on the way there, when it was a signal, of which there is no like in others.
void Team::look_at_failures() {
  for (const Worker& worker : workers_) {
    if (!failed(worker)) continue;
    if (worker.asked || interrupted_ != 0) {
      if (!failure_) failure_.emplace(kSettle);
      continue;
    }
    const Story story = story_of(worker);
    if (!failure_) failure_.emplace(story.may_be_consequence ? kCause : kSettle);
    if (!story.may_be_consequence) return end_because(story.text, worker.signal != 0);
  }
}

void Team::end_because(std::string_view why, bool killed) {
  if (judged_) return;
  judged_ = true;
  failure_.emplace(kSettle);
  const std::string line(why.substr(0, why.find('\n')));
  for (Worker& worker : workers_) {
    if (!worker.running) continue;
    RankPage& page = worker.page->page();
    page.judge(line);
    if (!page.joining.load() && !(killed && !page.joined.load())) continue;
    worker.asked = true;
    kill(-worker.pid, SIGTERM);
  }
}

// A worker that stands still holds up all others, and only SIGKILL reaches it.
void Team::end_stopped() {
  for (Worker& worker : workers_) {
    if (!worker.running || worker.stood_s > 0) continue;
    look_whether_stopped(worker);
    if (worker.stopped_s == 0 || now_s() - worker.stopped_s < std::chrono::duration<double>(patience_).count())
      continue;
    worker.stood_s = now_s() - worker.stopped_s;
    worker.killed = true;
    kill(-worker.pid, SIGKILL);
  }
}

bool Team::all_ended() const {
  return std::ranges::none_of(workers_, [](const Worker& w) { return w.running; });
}

void Team::wait(const Signals* signals, int wake) {
  std::vector<pollfd> polled;
  if (signals != nullptr) polled.push_back({signals->fd(), POLLIN, 0});
  if (wake >= 0) polled.push_back({wake, POLLIN, 0});
  for (const Worker& worker : workers_) {
    if (worker.error_pipe >= 0) polled.push_back({worker.error_pipe, POLLIN, 0});
    if (worker.process >= 0) polled.push_back({worker.process, POLLIN, 0});
  }
  // The time limit is for the deadlines of `run`, and for kernels without descriptors of processes: a SIGCHLD may go to
  // another thread, or be taken as read before its process can be reaped.
  poll(polled.data(), polled.size(), 50);
  for (Worker& worker : workers_) {
    read_error_pipe(worker);
    reap(worker);
  }
}

void Team::interrupt(int signal) {
  if (interrupted_ != 0) {
    end();
    return;
  }
  interrupted_ = signal;
  for (const Worker& worker : workers_) {
    if (worker.running) kill(-worker.pid, signal);
  }
}

// Only to who listens: SIGUSR1 ends a process that does not. And only to one: ranks agree after each step, and two that
// heard of it on both sides of a step would save twice.
void Team::pass_on_save() {
  if (!to_save_) return;
  const auto listens = [](const Worker& worker) {
    return worker.running && worker.page->page().saves_when_asked.load();
  };
  const auto found = std::ranges::find_if(workers_, listens);
  if (found == workers_.end()) return;
  kill(found->pid, SIGUSR1);
  to_save_ = false;
}

void Team::end() {
  if (ending_) return;
  ending_.emplace(grace_);
  for (Worker& worker : workers_) {
    if (!worker.running) continue;
    worker.asked = true;
    kill(-worker.pid, SIGTERM);
  }
}

// The others then learn of it as of any rank that is gone.
void Team::end_who_hangs() {
  if (ending_) return;
  std::string story;
  const int at = hangs_.look(workers_, now_s(), story);
  if (at < 0) return;
  Worker& worker = workers_[static_cast<size_t>(at)];
  worker.hang = story + stacks_of(worker.pid, worker.page->page());
  worker.hung_s = now_s();
  worker.killed = true;
  kill(-worker.pid, SIGKILL);
}

void Team::kill_all() {
  for (Worker& worker : workers_) {
    if (!worker.running) continue;
    worker.killed = true;
    kill(-worker.pid, SIGKILL);
  }
}

}  // namespace trireme::launch
