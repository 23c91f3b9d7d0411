// The command line of a job: what `train` takes, and `explain` too, so that the command that trains also explains.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/key_flags.h"
#include "cli/node_flags.h"
#include "trireme/train/job/config.h"

namespace trireme {
struct Compiled;
struct Parallel;
}  // namespace trireme

namespace trireme::cli {

// Says in the log what the configuration asks for without effect on so many ranks.
void log_remarks(const JobConfig& config, int64_t ranks);
// The same of what was compiled for them, as a run says it.
void log_remarks(const Compiled& compiled, const Parallel& parallel, int64_t ranks);

struct JobFlags {
  std::string config;
  bool takes_models = false;  // config may be a model's name (train/job/published_models.h)
  int ranks = 1;
  int min_ranks = 0;
  int threads = 0;
  std::vector<std::string> set;
  std::string plan;  // file (train/plan/plan_text.h), whose keys are set before the others
  std::string out = "runs/latest";
  bool resume = false;
  bool quiet = false;
  bool insecure = false;
  int restarts = 0;
  KeyFlags keys;
  NodeFlags nodes;

  // The configuration with the flags, as they were typed, in the place of its keys. Throws
  // kInvalidArgument where --set says something else than they do.
  JobConfig read() const;
  // Names of the keys that flags and --set give, be it at their defaults.
  std::vector<std::string> said() const;
  // Of the whole job, on all its nodes.
  int ranks_in_all() const;
};

// A job as it runs. `plan` says how the exact search planned it; "": it was not left to that.
struct RunJob {
  JobConfig config;
  std::string plan;
};
// For a command that starts no rank: what the ranks of `train` would run.
RunJob read_as_it_runs(const JobFlags& flags);

void add_job_flags(CLI::App& command, JobFlags& flags);
// For a command that starts no rank: what says where a run writes, how it goes on and how its ranks meet is taken, so
// that the command line of a run can be given as it is, and not listed. What says how many ranks there are is described
// without their start.
void leave_run_out_of_help(CLI::App& command);

}  // namespace trireme::cli
