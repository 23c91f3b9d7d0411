#include "cli/planned_job.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "trireme/base/file.h"
#include "trireme/train/job/named_models.h"

namespace trireme::cli {

JobConfig PlannedJob::read() const {
  std::vector<std::string> keys;
  if (!machine.empty()) {
    keys.push_back("parallel.machine=" + machine);
    keys.push_back("train.device=described:" + machine);
  }
  if (batch > 0) keys.push_back(fmt::format("train.batch={}", batch));
  if (seq > 0) keys.push_back(fmt::format("data.seq={}", seq));
  keys.insert(keys.end(), set.begin(), set.end());
  if (is_file(config) || find_named_model(config) == nullptr) return read_config(config, keys);
  JobConfig job;
  set_named_model(job, config);
  job.train.fit.steps = 1;
  override_keys(job, keys);
  return job;
}

void add_planned_job_flags(CLI::App& command, PlannedJob& job) {
  command.add_option("--machine", job.machine,
                     "File of the machine to plan for, like machines/h100x8.toml; without it this host");
  command.add_option("--batch", job.batch, "Samples of a step over all ranks (train.batch)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command.add_option("--seq", job.seq, "Tokens of a sample (data.seq)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command.add_option("--set", job.set, "Replace a key of the configuration, e.g. --set train.dtype=bf16")
      ->allow_extra_args(false);
}

}  // namespace trireme::cli
