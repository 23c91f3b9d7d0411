#include "cli/job_flags.h"

#include <CLI/CLI.hpp>

#include <algorithm>

#include "cli/plan_progress.h"
#include "cli/planned_job.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/train/job/job.h"
#include "trireme/train/plan/auto/auto_plan.h"
#include "trireme/train/plan/plan_text.h"
#include "trireme/train/step/compile/remarks.h"

namespace trireme::cli {

void log_remarks(const JobConfig& config, int64_t ranks) {
  for (const std::string& remark : remarks(config, ranks)) TRIREME_LOG(kWarn, "cli", "configuration: {}", remark);
}

void log_remarks(const Compiled& compiled, const Parallel& parallel, int64_t ranks) {
  for (const std::string& what : remarks(compiled, parallel, ranks)) TRIREME_LOG(kWarn, "cli", "{}", what);
}

namespace {

// A key that a plan sets is not another's to set: what was planned would not be what runs.
void refuse_other_values(const PlanFile& file, const std::vector<std::string>& overrides) {
  for (const std::string& override_text : overrides) {
    const size_t equals = override_text.find('=');
    if (equals == std::string::npos) continue;  // which is refused as it is read
    const std::string key = override_text.substr(0, equals + 1);
    for (const std::string& planned : file.keys) {
      require(!planned.starts_with(key) || planned == override_text,
              "the plan says {} and the command line {}; leave one out, or plan again", planned, override_text);
    }
  }
}

JobConfig job_of(const JobFlags& flags, const std::vector<std::string>& keys) {
  return flags.takes_models ? read_job_or_model(flags.config, keys) : read_job(flags.config, keys);
}

}  // namespace

JobConfig JobFlags::read() const {
  std::vector<std::string> overrides = keys.overrides();
  refuse_contradictions(overrides, set);
  overrides.insert(overrides.end(), set.begin(), set.end());
  if (!plan.empty()) {
    require_file(plan, "--plan", "name one that `trireme plan --out` wrote");
    const PlanFile file = parse_plan_file(read_file(plan));
    refuse_other_values(file, overrides);
    overrides.insert(overrides.begin(), file.keys.begin(), file.keys.end());
    const JobConfig planned = job_of(*this, overrides);
    check_plan(file, planned, ranks_in_all());
    return planned;
  }
  JobConfig job = job_of(*this, overrides);
  ask_implied(keys, job, set);
  return job;
}

std::vector<std::string> JobFlags::said() const {
  std::vector<std::string> names = keys.overrides();
  names.insert(names.end(), set.begin(), set.end());
  for (std::string& each : names) each.resize(std::min(each.find('='), each.size()));
  return names;
}

RunJob read_as_it_runs(const JobFlags& flags) {
  RunJob out{.config = flags.read(), .plan = ""};
  if (!is_left_to_plan(out.config)) return out;
  AutoRequest request{.job = out.config,
                      .ranks = flags.ranks_in_all(),
                      .threads = compute_threads(flags.threads, flags.ranks),
                      .said = flags.said()};
  PlanProgress progress;
  progress.watch(request);
  AutoPlan plan = auto_plan(request);
  progress.clear();
  return {.config = std::move(plan.job), .plan = std::move(plan.text)};
}

int JobFlags::ranks_in_all() const {
  return nodes.ranks_in_all(ranks);
}

void add_job_flags(CLI::App& command, JobFlags& flags) {
  command
      .add_option("config", flags.config,
                  fmt::format("The job's TOML file{}; `trireme help config` lists its keys",
                              flags.takes_models ? ", or a model by the name that `trireme models` lists" : ""))
      ->required();
  const std::string name = command.get_name();
  command.add_option_function<std::string>(
      "-n,--ranks",
      [&flags, name](const std::string& text) {
        const Range range = parse_range(text, (name + ": -n").c_str());
        flags.ranks = range.most;
        flags.min_ranks = range.least;
      },
      "Ranks on this host, each a process; default 1. 2:4 starts 4, and after ranks were killed --restarts goes on "
      "with those that are left, but at least 2");
  command.add_option("--threads", flags.threads, "Compute threads of each rank; 0: the cores divided by the ranks")
      ->check(CLI::Range(0, 1024));
  add_set(command, flags.set, "Replace a key of the configuration, e.g. --set train.lr=0.001");
  add_flags_of_keys(command, flags.keys, FlagsOf::kJob);
  flags.keys.add_switch(command, "--auto", "parallel.mode", "auto_parallel",
                        "Find how the model is cut over the ranks (parallel.mode = 'auto_parallel'); --search says by "
                        "which search: with exact or compiled also its stages, micro-batches and the rest");
  add_node_flags(command, flags.nodes);
  command.add_option("--plan", flags.plan, "File of `trireme plan --out`, which says how the model is cut");
  command.add_option("--out", flags.out, "Folder of logs, report and checkpoints")->capture_default_str();
  command.add_flag("--resume", flags.resume, "Go on from the newest checkpoint in --out");
  command.add_flag("--quiet", flags.quiet, "No progress bar");
  command
      .add_option("--restarts", flags.restarts,
                  "How often to go on from the newest checkpoint after a rank has failed; with --nnodes, on the nodes "
                  "that are left")
      ->check(CLI::Range(0, 1000000));
  command.add_flag("--insecure", flags.insecure,
                   "Ranks that another launcher starts on several hosts may meet without a secret");
}

void leave_run_out_of_help(CLI::App& command) {
  for (const KeyHelp& key : all_keys()) {
    if (key.row.of_run) command.get_option(std::string(key.row.flag))->group("");
  }
  for (const char* name :
       {"--out", "--resume", "--quiet", "--restarts", "--insecure", "--node-rank", "--master", "--last-call",
        "--node-id", "--address", "--window", "--heartbeat", "--tls-cert", "--tls-key", "--secret-file", "--tls-ca",
        "--tls-crl", "--tls-password-file", "--tls-warn-days"})
    command.get_option(name)->group("");
  command.get_option("--ranks")->description("Ranks to compile for; default 1. Of a range, like 2:4, the most");
  command.get_option("--nnodes")->description("Nodes of the job, each with the ranks of -n. Of a range the most");
  command.get_option("--world")->description("Ranks of the whole job, where nodes differ. Of a range the most");
}

}  // namespace trireme::cli
