// The workers of one launcher, and what has been asked of them so far.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/launch/supervise/hang_watch.h"
#include "trireme/launch/supervise/signals.h"
#include "trireme/launch/supervise/worker.h"

namespace trireme::launch {

// What else a team waits for: `on_turn` is called whenever something happened, `wake` became readable, or 50 ms passed.
struct TeamWatch {
  int wake = -1;
  std::function<void()> on_turn;
};

class Team {
 public:
  // `grace`: from SIGTERM to SIGKILL. `patience`: with a worker that a signal has stopped; 0: for ever.
  explicit Team(std::chrono::milliseconds grace, std::chrono::milliseconds patience = std::chrono::milliseconds(0))
      : grace_(grace), patience_(patience) {}
  // Ends all that still run.
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  void start(const WorkerStart& start) { workers_.push_back(start_worker(start)); }
  const std::vector<Worker>& workers() const { return workers_; }

  // Returns when all workers have ended. Passes signals on; ends a worker that hangs; when one worker fails, the others
  // are ended a moment later.
  void run(const Signals& signals, const TeamWatch& watch = {});

  // Passes the signal on, so that the workers can finish a step and save; the second one ends them.
  void interrupt(int signal);
  int interrupted() const { return interrupted_; }  // by this signal, or 0
  // Asks the workers to save, as soon as one of them does when asked.
  void save_when_possible() { to_save_ = true; }
  // SIGTERM now, SIGKILL after the grace.
  void end();
  // Tells the workers that the job is over and why, so that they leave by themselves what they wait for; end() follows
  // a moment later. `killed`: a worker ended by a signal, so those that have not joined are ended at once.
  void end_because(std::string_view why, bool killed = false);
  bool ending() const { return ending_.has_value(); }

 private:
  bool all_ended() const;
  void wait(const Signals* signals, int wake);
  void kill_all();
  void end_who_hangs();
  void look_at_failures();
  void pass_on_save();
  void end_stopped();

  std::chrono::milliseconds grace_;
  std::chrono::milliseconds patience_;
  std::vector<Worker> workers_;
  HangWatch hangs_;
  int interrupted_ = 0;
  bool to_save_ = false;
  bool judged_ = false;              // the workers were told why the job is over
  std::optional<Deadline> failure_;  // set by the first one; passes when the others are to end
  std::optional<Deadline> ending_;   // set by SIGTERM; passes when SIGKILL follows
};

}  // namespace trireme::launch
