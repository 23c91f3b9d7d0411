// What a launcher is asked to do, and what it returns.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::launch {

struct LaunchOptions {
  int ranks = 1;
  std::vector<std::string> command;  // each rank's program and arguments
  int threads = 0;                   // of each rank, given as TRIREME_THREADS; 0: cores over ranks unless already set
  bool pin = false;                  // each rank to cores of its own, if there are enough
  // Rank 0 writes to the terminal, each other rank to worker_<rank>.log here. Empty: a temporary
  // folder, kept only when a rank failed.
  std::string log_dir;
  std::chrono::milliseconds grace{2000};  // from SIGTERM to SIGKILL
  int tail_lines = 10;                    // of the first failing rank's log in the report
  int restarts = 0;  // at most, of all ranks, after a failure that is not the caller's (exit code 2)
  // A restart after ranks were killed (by a signal: a crash, a machine out of memory) has that many fewer, down to this
  // number; 0: the number never changes. Of the possible numbers it takes the largest that `can_run` accepts; without
  // `can_run` any.
  int min_ranks = 0;
  std::function<bool(int ranks)> can_run;
  std::vector<int> tail;                       // ranks whose logs are also passed to `echo` as they grow
  std::function<void(std::string_view)> echo;  // takes whole lines
};

struct LaunchResult {
  int exit_code = 0;                // of the first failure; 128 + signal when the job was interrupted; 0
  int failed_rank = -1;             // the first that failed by itself
  bool may_be_consequence = false;  // of the end of a rank elsewhere
  std::string cause;                // the line about it, or about the interruption
  std::string report;               // lines for the terminal; empty when all went well
  bool interrupted =
      false;             // a signal was passed on to the ranks, or made them end in order that was sent to one of them
  int killed_ranks = 0;  // that a signal ended which was not the launcher's
};

}  // namespace trireme::launch
