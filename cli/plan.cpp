// trireme plan: the best ways to cut a job over ranks, before any is started.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/job_flags.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/job.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/named_models.h"
#include "trireme/train/plan/exact_plan.h"
#include "trireme/train/plan/plan_text.h"

namespace trireme::cli {
namespace {

struct PlanArgs {
  std::string config;
  int ranks = 1;
  int threads = 0;
  std::vector<std::string> set;
  std::string machine, out;
  int64_t batch = 0, seq = 0, memory_mib = 0;
  int top = 3;
  std::string search = "auto";
};

JobConfig read_job(const PlanArgs& args) {
  std::vector<std::string> keys;
  if (!args.machine.empty()) {
    keys.push_back("parallel.machine=" + args.machine);
    keys.push_back("train.device=described:" + args.machine);
  }
  if (args.batch > 0) keys.push_back(fmt::format("train.batch={}", args.batch));
  if (args.seq > 0) keys.push_back(fmt::format("data.seq={}", args.seq));
  keys.insert(keys.end(), args.set.begin(), args.set.end());
  if (is_file(args.config) || find_named_model(args.config) == nullptr) return read_config(args.config, keys);
  JobConfig job;
  set_named_model(job, args.config);
  job.train.fit.steps = 1;
  override_keys(job, keys);
  return job;
}

int run(const PlanArgs& args) {
  const PlanRequest request{.job = read_job(args),
                            .ranks = args.ranks,
                            .threads = compute_threads(args.threads, args.ranks),
                            .memory_bytes = args.memory_mib << 20,
                            .top = static_cast<size_t>(args.top)};
  const bool classes = predicts_classes(request.job);
  const int64_t tokens = request.job.train.fit.batch * (classes ? 1 : fields_of(request.job)[0].sample.elements());
  if (args.search == "exact") {
    const ExactPlan plan = plan_exact(request);
    std::fputs(exact_text(plan, args.ranks, tokens, classes ? "samples" : "tokens").c_str(), stdout);
    return plan.best.empty() ? 1 : 0;
  }
  const JobPlan plan = plan_job(request);
  std::fputs(plan_text(plan, args.ranks, tokens, classes ? "samples" : "tokens").c_str(), stdout);
  if (plan.best.empty()) return 1;
  if (args.out.empty()) return 0;
  atomic_write(args.out, to_string(plan_file(plan, request)));
  const bool is_job = is_file(args.config);
  std::printf("wrote %s; train by it with: trireme train %s -n %d --plan %s\n", args.out.c_str(),
              is_job ? args.config.c_str() : "JOB", args.ranks, args.out.c_str());
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& chosen) {
  auto args = std::make_shared<PlanArgs>();
  CLI::App* command = app.add_subcommand("plan", "Find the best ways to cut a job over ranks, without starting any");
  command->add_option("config", args->config, "The job's TOML file, or a model by the name that `trireme models` lists")
      ->required();
  command->add_option("-n,--ranks", args->ranks, "Ranks to plan for")->check(CLI::Range(1, 4096));
  command->add_option("--machine", args->machine,
                      "File of the machine to plan for, like machines/h100x8.toml; without it this host");
  command->add_option("--threads", args->threads, "Compute threads of each rank; 0: the cores divided by the ranks")
      ->check(CLI::Range(0, 1024));
  command->add_option("--batch", args->batch, "Samples of a step over all ranks (train.batch)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command->add_option("--seq", args->seq, "Tokens of a sample (data.seq)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  command->add_option("--memory", args->memory_mib, "MiB of memory of a rank, instead of what the machine has")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_option("--top", args->top, "How many ways are shown")->check(CLI::Range(1, 1000))->capture_default_str();
  command->add_option("--search", args->search, "How: auto, compiled or exact")
      ->check(CLI::IsMember({"auto", "compiled", "exact"}))
      ->capture_default_str();
  command->add_option("--out", args->out, "File to write the best to, for `trireme train --plan`");
  command->add_option("--set", args->set, "Replace a key of the configuration, e.g. --set train.dtype=bf16")
      ->allow_extra_args(false);
  command->footer(
      "Every way that the job's keys can cut the model over the ranks (pipeline, tensor, sequence, context, expert "
      "and\n"
      "optimizer parallelism, micro-batches, schedules, recomputation, and what --auto finds) is compiled as training\n"
      "compiles it, so that the bytes are those of training; the time is that of the modelled step, by the machine's\n"
      "rates. Of those that fit, the one with the shortest step is the best.\n\n"
      "Example:\n  trireme plan examples/gpt_text.toml -n 4 --out plan.trp");
  command->callback([=, &chosen] { chosen = [=] { return run(*args); }; });
}

}  // namespace trireme::cli
