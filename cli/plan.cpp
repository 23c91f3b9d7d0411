// trireme plan: the best ways to cut a job over ranks, before any is started.
#include <CLI/CLI.hpp>

#include <cstdio>
#include <memory>
#include <optional>

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

constexpr int kMostCompiledRanks = 32;  // for which every way is compiled, where nothing else is asked

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

// Nothing: all ways are compiled.
std::optional<ExactPlan> exact_plan(const PlanArgs& args, const PlanRequest& request) {
  if (args.search == "compiled" || (args.search == "auto" && args.ranks <= kMostCompiledRanks)) return std::nullopt;
  try {
    return plan_exact(request);
  } catch (const Error& error) {
    if (args.search == "exact" || error.kind() != ErrorKind::kUnsupported) throw;
    std::fprintf(stderr, "every way is compiled instead: %s\n", error.what());
    return std::nullopt;
  }
}

void write_plan(const PlanArgs& args, const PlanFile& file) {
  atomic_write(args.out, to_string(file));
  std::printf("wrote %s; train by it with: trireme train %s -n %d --plan %s\n", args.out.c_str(),
              is_file(args.config) ? args.config.c_str() : "JOB", args.ranks, args.out.c_str());
}

int run(const PlanArgs& args) {
  const PlanRequest request{.job = read_job(args),
                            .ranks = args.ranks,
                            .threads = compute_threads(args.threads, args.ranks),
                            .memory_bytes = args.memory_mib << 20,
                            .top = static_cast<size_t>(args.top)};
  const bool classes = predicts_classes(request.job);
  const int64_t tokens = request.job.train.fit.batch * (classes ? 1 : fields_of(request.job)[0].sample.elements());
  const char* const unit = classes ? "samples" : "tokens";
  if (const auto exact = exact_plan(args, request)) {
    std::fputs(exact_text(*exact, args.ranks, tokens, unit).c_str(), stdout);
    if (exact->best.empty()) return 1;
    if (!args.out.empty()) write_plan(args, plan_file(*exact, args.ranks));
    return 0;
  }
  const JobPlan plan = plan_job(request);
  std::fputs(plan_text(plan, args.ranks, tokens, unit).c_str(), stdout);
  if (plan.best.empty()) return 1;
  if (!args.out.empty()) write_plan(args, plan_file(plan, request));
  return 0;
}

}  // namespace

void add_plan(CLI::App& app, Action& chosen) {
  auto args = std::make_shared<PlanArgs>();
  CLI::App* command = app.add_subcommand("plan", "Find the best ways to cut a job over ranks, without starting any");
  command->add_option("config", args->config, "The job's TOML file, or a model by the name that `trireme models` lists")
      ->required();
  command->add_option("-n,--ranks", args->ranks, "Ranks to plan for")->check(CLI::Range(1, 65536));
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
  command
      ->add_option(
          "--search", args->search,
          "compiled: every way is compiled; exact: parts are, and all ways follow from their prices; auto: exact "
          "for more than 32 ranks, where the model's blocks are alike")
      ->check(CLI::IsMember({"auto", "compiled", "exact"}))
      ->capture_default_str();
  command->add_option("--out", args->out, "File to write the best to, for `trireme train --plan`");
  command->add_option("--set", args->set, "Replace a key of the configuration, e.g. --set train.dtype=bf16")
      ->allow_extra_args(false);
  command->footer(
      "compiled: every way that the job's keys can cut the model over the ranks (pipeline, tensor, sequence, context, "
      "expert "
      "and\n"
      "optimizer parallelism, micro-batches, schedules, recomputation, and what --auto finds) is compiled as training\n"
      "compiles it, so that the bytes are those of training; the time is that of the modelled step, by the machine's\n"
      "rates. Of those that fit, the one with the shortest step is the best.\n\n"
      "exact, for many ranks: what stands before the blocks, one block and what stands after them are compiled and\n"
      "priced for each way to cut a stage, and of all ways and all cuts into stages the best by these prices is "
      "found,\n"
      "which is proven; collectives count as if nothing hid them. It does not look at what --auto finds.\n\n"
      "Example:\n  trireme plan examples/gpt_text.toml -n 4 --out plan.trp\n"
      "  trireme plan gpt3-175b -n 512 --machine machines/h100x512.toml --batch 1536 --set train.dtype=bf16");
  command->callback([=, &chosen] { chosen = [=] { return run(*args); }; });
}

}  // namespace trireme::cli
