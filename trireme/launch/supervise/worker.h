// One worker process: how it is started, what is known about it, and how its end is reported.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/launch/rank/failure.h"
#include "trireme/launch/rank/rank_page.h"

namespace trireme::launch {

struct WorkerStart {
  int rank = 0;
  std::vector<std::string> command;
  // Added to this process's environment, replacing what is there; an empty value removes the
  // variable.
  std::vector<std::pair<std::string, std::string>> environment;
  std::string log_path;    // takes standard output and error; empty: both are this process's
  std::vector<int> cores;  // to run on; empty: any
};

struct Worker {
  int rank = 0;
  pid_t pid = -1;
  int error_pipe = -1;  // read end; -1 once it is at its end
  int process = -1;     // readable once it has ended; -1 after that, and where the kernel has no such descriptor
  std::string said;     // what came through it
  std::string log_path;
  std::shared_ptr<SharedPage> page;  // what it says of itself while it runs
  std::string hang;                  // why it was taken to hang, and ended
  double hung_s = 0;
  bool running = true;
  bool asked = false;   // to end, by the launcher
  bool killed = false;  // by the launcher, with SIGKILL
  int exit_code = 0;
  int signal = 0;  // that ended it, or 0
  double ended_s = 0;
  double stopped_s = 0;  // since when it has been stopped by a signal; 0: it is not
  double stood_s = 0;    // how long it was, when the launcher ended it for that; 0: it was not
};

// Starts the command in a process group of its own, which dies when this thread of the launcher
// does.
Worker start_worker(const WorkerStart& start);
// Reads what the pipe holds, without blocking.
void read_error_pipe(Worker& worker);
// True once the worker has ended: notes how, ends what is left of its process group, and reaps it.
bool reap(Worker& worker);

// Looks whether a signal has stopped it (SIGSTOP), or made it go on.
void look_whether_stopped(Worker& worker);

// The signal that made it end in order (rank_info.h: note_interrupt), or 0.
int interrupted_by(const Worker& worker);
// It has ended, and neither well nor in order.
bool failed(const Worker& worker);
// What went wrong, with the exit code that the whole job should end with.
struct Story {
  std::string text;
  int exit_code = 0;
  bool may_be_consequence = false;  // of another rank's end
  double at_s = 0;
};
Story story_of(const Worker& worker);

}  // namespace trireme::launch
