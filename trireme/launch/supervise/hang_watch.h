// Finds ranks that hang: they neither run nor wait for others while another rank waits for them.
//
// A rank that is only slow uses a processor, or is ready to, or waits for a disk; it is left alone. A rank hangs when
// it is stopped (SIGSTOP), or sleeps on something that is not communication (a lock, a pipe) for longer than the limit
// and three steps of its training. While ranks wait for others to start, only a stopped rank hangs: a program may take
// its time before it joins.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/launch/rank/process_state.h"
#include "trireme/launch/supervise/worker.h"

namespace trireme::launch {

class HangWatch {
 public:
  // From TRIREME_HANG_TIMEOUT; 0: nothing is ever taken for a hang.
  HangWatch();
  explicit HangWatch(double limit_s) : limit_s_(limit_s) {}

  // To be called often, with the time as now_s(). The place in `workers` of one that hangs, with `story` saying so and
  // what every rank waits for; or -1.
  int look(const std::vector<Worker>& workers, double now, std::string& story);

 private:
  struct Seen {
    double cpu_s = 0;
    double since_s = 0;  // it has neither run nor waited for others
    char state = '?';
    int64_t steps = 0;
    double stepped_s = 0;
    double step_s = 0;  // the longest between two looks at other steps
  };
  void update(Seen& seen, const Worker& worker, double now) const;
  std::string tell(const std::vector<Worker>& workers, const Worker& culprit, const Seen& seen, double now) const;

  double limit_s_;
  double last_look_s_ = 0;
  std::map<int, Seen> seen_;  // by process
};

}  // namespace trireme::launch
