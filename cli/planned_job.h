// The job that `trireme plan` and `trireme plan verify` are about: a job's file or a published model, and what flags
// change.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "trireme/train/job/config.h"

namespace CLI {
class App;
}

namespace trireme::cli {

struct PlannedJob {
  std::string config;
  std::string machine;
  int64_t batch = 0, seq = 0;
  std::vector<std::string> set;

  JobConfig read() const;
};

// Of a job's file, with these keys replaced. Throws kInvalidArgument with the cure for a plan's.
JobConfig read_job(const std::string& path, const std::vector<std::string>& keys);
// Of a file, or of a model by the name that `trireme models` lists, which takes one step; with these keys replaced.
JobConfig read_job_or_model(const std::string& name, const std::vector<std::string>& keys);

// --machine, --batch, --seq, --set.
void add_planned_job_flags(CLI::App& command, PlannedJob& job);

// --memory, in bytes: a size, or a number of MiB.
void add_memory_flag(CLI::App& command, int64_t& bytes, const std::string& help);

// `trireme plan verify`, of the command `plan`.
void add_plan_verify(CLI::App& plan, std::function<int()>& chosen);

}  // namespace trireme::cli
