#include "cli/planned_job.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/parallel/asked/tier_sizes.h"
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
  if (!is_file(config) && find_named_model(config) == nullptr) {
    std::vector<std::string> models;
    for (const NamedModel& model : named_models()) models.emplace_back(model.name);
    const std::string near = closest(config, models);
    if (!near.empty())
      fail(ErrorKind::kNotFound, "there is no file '{}', and no model of this name. Did you mean '{}'?", config, near);
  }
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

void add_memory_flag(CLI::App& command, int64_t& mib, const std::string& help) {
  const CLI::Validator in_mib(
      [](std::string& text) {
        if (text.find_first_not_of("0123456789") == std::string::npos) return std::string();
        try {
          text = std::to_string(MemorySize(text).bytes() >> 20);
        } catch (const Error& e) {
          return e.text();
        }
        return std::string();
      },
      "");
  command.add_option("--memory", mib, help)->check(CLI::Range(int64_t{1}, int64_t{1} << 40))->transform(in_mib);
}

}  // namespace trireme::cli
