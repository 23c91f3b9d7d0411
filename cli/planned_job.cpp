#include "cli/planned_job.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/key_flags.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/parallel/asked/tier_sizes.h"
#include "trireme/train/job/published_models.h"
#include "trireme/train/plan/plan_text.h"

namespace trireme::cli {

JobConfig PlannedJob::read() const {
  std::vector<std::string> keys;
  if (!machine.empty()) {
    keys.push_back("parallel.machine=" + machine);
    keys.push_back("train.device=described:" + machine);
  }
  if (batch > 0) keys.push_back(fmt::format("train.batch={}", batch));
  if (seq > 0) keys.push_back(fmt::format("data.seq={}", seq));
  refuse_contradictions(keys, set);
  keys.insert(keys.end(), set.begin(), set.end());
  return read_job_or_model(config, keys);
}

JobConfig read_job(const std::string& path, const std::vector<std::string>& keys) {
  require(!is_file(path) || !is_plan_file(read_file(path)),
          "'{0}' is a plan, not a job; name the job that it was made for, and train or simulate that with --plan {0}",
          path);
  require(is_file(path) || find_published_model(path) == nullptr,
          "there is no file '{0}': it is a model, of which `trireme models {0} > {0}.toml` writes a job's file", path);
  return read_config(path, keys);
}

JobConfig read_job_or_model(const std::string& name, const std::vector<std::string>& keys) {
  if (is_file(name) || find_published_model(name) == nullptr) {
    std::vector<std::string> models;
    for (const PublishedModel& model : published_models()) models.emplace_back(model.name);
    const std::string near = is_file(name) ? "" : closest(name, models);
    if (!near.empty())
      fail(ErrorKind::kNotFound, "there is no file '{}', and no model of this name. Did you mean '{}'?", name, near);
    return read_job(name, keys);
  }
  JobConfig job;
  set_published_model(job, name);
  job.train.fit.steps = 1;
  override_keys(job, keys);
  return job;
}

void add_planned_job_flags(CLI::App& command, PlannedJob& job) {
  command.add_option("--machine", job.machine,
                     "File of the machine to plan for, like machines/h100x8.toml; by default this host");
  command.add_option("--batch", job.batch, "Samples of a step over all ranks (train.batch)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command.add_option("--seq", job.seq, "Tokens of a sample (data.seq)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  add_set(command, job.set, "Replace a key of the configuration, e.g. --set train.dtype=bf16");
}

namespace {

int64_t bytes_of_memory(const std::string& text) {
  const bool is_number = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
  require(!is_number || text.find_first_not_of('0') != std::string::npos, "'{}' is no memory at all; give more than 0",
          text);
  return MemorySize(is_number ? text + "MiB" : text).bytes();
}

}  // namespace

void add_memory_flag(CLI::App& command, int64_t& bytes, const std::string& help) {
  const CLI::Validator is_size(
      [](std::string& text) {
        try {
          bytes_of_memory(text);
        } catch (const Error& e) {
          return e.text();
        }
        return std::string();
      },
      "");
  command
      .add_option_function<std::string>(
          "--memory", [&bytes](const std::string& text) { bytes = bytes_of_memory(text); }, help)
      ->check(is_size);
}

}  // namespace trireme::cli
