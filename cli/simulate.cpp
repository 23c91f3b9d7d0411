// trireme simulate: a run of many steps on all ranks in virtual time.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <set>

#include "cli/commands.h"
#include "cli/explain_time.h"
#include "cli/job_flags.h"
#include "cli/key_flags.h"
#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/base/thread_pool.h"
#include "trireme/op/move.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/job.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/plan/questions/simulate_run.h"
#include "trireme/train/step/compile/choose_homes.h"

namespace trireme::cli {
namespace {

constexpr double kCheckpointBytesPerSecond = 1e9;  // that a rank writes, where --checkpoint-seconds does not say

struct SimulateArgs {
  JobFlags job;
  std::string machine;
  std::vector<std::string> stragglers;  // "rank=7,x=1.5"
  std::vector<std::string> failures;    // "rank=3,step=10"
  double mtbf_hours = 0;
  double checkpoint_s = -1;  // below 0: by the bytes
  double restart_s = 60;
  uint64_t seed = 1;
  bool seed_given = false;
};

// The two figures of "rank=3,step=10".
std::pair<int64_t, double> two_figures(const std::string& text, std::string_view flag, std::string_view second) {
  const std::string_view all = text;
  const size_t comma = std::min(all.find(','), all.size());
  const auto figure = [](std::string_view of, std::string_view name, auto& value) {
    if (!of.starts_with(name)) return false;
    of.remove_prefix(name.size());
    const auto [end, status] = std::from_chars(of.data(), of.data() + of.size(), value);
    return status == std::errc() && end == of.data() + of.size();
  };
  int64_t rank = 0;
  double value = 0;
  const bool ok = comma < all.size() && figure(all.substr(0, comma), "rank=", rank) &&
                  figure(all.substr(comma + 1), std::string(second) + "=", value) && std::isfinite(value);
  require(ok, "simulate: {} '{}'; write rank=RANK,{}=FIGURE", flag, text, second);
  return {rank, value};
}

UnlikeRanks unlike_ranks(const SimulateArgs& args, int ranks) {
  UnlikeRanks out;
  std::set<int64_t> seen;
  for (const std::string& text : args.stragglers) {
    const auto [rank, factor] = two_figures(text, "--straggler", "x");
    require(rank >= 0 && rank < ranks && factor >= 1e-6,
            "simulate: --straggler '{}'; ranks are 0 to {}, and x is how many times as long the rank computes", text,
            ranks - 1);
    require(seen.insert(rank).second, "simulate: --straggler names rank {} twice; leave one out", rank);
    out.slow.push_back(fmt::format("{}={}", rank, factor));
  }
  return out;
}

std::vector<GivenFailure> given_failures(const SimulateArgs& args) {
  std::vector<GivenFailure> out;
  for (const std::string& text : args.failures) {
    const auto [rank, step] = two_figures(text, "--fail", "step");
    require(step == std::floor(step) && step >= 1 && step < 1e15, "simulate: --fail '{}'; steps are counted from 1",
            text);
    out.push_back({rank, static_cast<int64_t>(step)});
  }
  return out;
}

int64_t save_every(const JobConfig& job, double step_s) {
  const FitOptions& fit = job.train.fit;
  const double by_minutes =
      fit.save_every_minutes > 0 ? std::max(1.0, std::round(fit.save_every_minutes * 60 / step_s)) : 0;
  if (by_minutes == 0) return fit.save_every;
  const auto steps = static_cast<int64_t>(std::min(by_minutes, 1e15));
  return fit.save_every == 0 ? steps : std::min(steps, fit.save_every);
}

std::string time_of(double seconds) {
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  const auto minutes = static_cast<int64_t>(seconds / 60);
  if (minutes < 120)
    return fmt::format("{} min {:.0f} s", minutes, std::floor(seconds - 60.0 * static_cast<double>(minutes)));
  return minutes < 48 * 60 ? fmt::format("{} h {} min", minutes / 60, minutes % 60)
                           : fmt::format("{} d {} h", minutes / (24 * 60), minutes / 60 % 24);
}

std::string run_text(const RunConditions& conditions, const SimulatedRun& run, const JobConfig& job) {
  const auto line = [&](std::string_view what, double seconds, const std::string& more) {
    return fmt::format("{:<12} {:>12} {:>7.2f} %  {}\n", what, time_of(seconds), 100 * seconds / run.total_s, more);
  };
  std::string out = fmt::format("\nsimulated run of {} step{}: {}\n", conditions.steps,
                                conditions.steps == 1 ? "" : "s", time_of(run.total_s));
  out += line("training", run.training_s, "goodput");
  out += line("again", run.again_s, fmt::format("{} whole steps, and those that failures broke off", run.steps_again));
  const std::string when = conditions.checkpoint_every == 0 ? "after the last step"
                           : conditions.checkpoint_every == 1
                               ? "after every step"
                               : fmt::format("every {} steps and after the last", conditions.checkpoint_every);
  out += line("checkpoints", run.checkpoint_s, fmt::format("{}, {} each", when, time_of(conditions.checkpoint_s)));
  out += line(
      "restarts", run.restart_s,
      fmt::format("{} failure{}, {} each", run.failures, run.failures == 1 ? "" : "s", time_of(conditions.restart_s)));
  const bool classes = predicts_classes(job);
  const double samples =
      static_cast<double>(job.train.fit.batch) * static_cast<double>(classes ? 1 : fields_of(job)[0].sample.elements());
  out += fmt::format("{:.0f} {} a second over the run, {:.0f} in a step\n",
                     samples * static_cast<double>(conditions.steps) / run.total_s, classes ? "samples" : "tokens",
                     samples / conditions.step_s);
  if (const int64_t best = best_checkpoint_every(conditions); best > 0 && best != conditions.checkpoint_every) {
    out += fmt::format(
        "saving every {} steps would lose the least time, by Young's formula; with it the run would take {}\n", best,
        time_of([&] {
          RunConditions other = conditions;
          other.checkpoint_every = best;
          return simulate_run(other).total_s;
        }()));
  }
  return out;
}

// Wherever they lie: what a checkpoint has.
int64_t persistent_bytes(const ExecutionPlan& plan) {
  int64_t out = 0;
  for (const Tier tier : kEveryTier) out += plan.arena(tier).persistent;
  return out;
}

int run(const SimulateArgs& given) {
  SimulateArgs args = given;
  if (!args.machine.empty()) {
    const std::vector<std::string> of_flag{"parallel.machine=" + args.machine,
                                           "train.device=described:" + args.machine};
    refuse_contradictions(of_flag, args.job.set);
    args.job.set.insert(args.job.set.begin(), of_flag.begin(), of_flag.end());
  }
  require(!args.seed_given || args.mtbf_hours > 0,
          "simulate: --failure-seed draws the moments at which ranks fail by --mtbf; add --mtbf, or leave it out");
  args.job.nodes.check();
  const auto [job, planned] = read_as_it_runs(args.job);
  log_remarks(job, args.job.ranks_in_all());
  require(job.train.fit.steps > 0,
          "simulate: the number of steps in a run of epochs depends on its data; give it with --steps");
  const int ranks = args.job.ranks_in_all();
  const UnlikeRanks unlike = unlike_ranks(args, ranks);
  const auto model = make_model(job);
  const Assembly assembly = assembly_of(job, *model, ranks);
  JobGraphs graphs = graphs_of(assembly, ranks);
  CompileOptions how =
      compile_options(assembly, graphs.parallel, ranks, compute_threads(args.job.threads, args.job.ranks));
  ThreadPool pool(compute_threads(0, 1));
  how.pool = &pool;
  const Compiled compiled = compile(std::move(graphs.step), how);
  log_remarks(compiled, assembly.options.parallel, ranks);
  const VirtualTime time = modelled_step(compiled.plans(), compiled.rates, unlike);
  if (!job.train.trace.empty()) write_trace(compiled.plans(), time, job.train.trace);
  std::string out = planned + time_text(compiled.plans(), compiled.rates, time, unlike.given());
  if (unlike.given()) {
    const double alike_s = modelled_step(compiled.plans(), compiled.rates, {}).makespan_s;
    out += fmt::format("with all ranks alike the step would take {:.3f} ms, {:.1f} % less\n", alike_s * 1e3,
                       100 * (1 - alike_s / time.makespan_s));
  }
  int64_t persistent = 0;
  for (const ExecutionPlan* plan : compiled.plans()) persistent = std::max(persistent, persistent_bytes(*plan));
  const RunConditions conditions{.steps = job.train.fit.steps,
                                 .ranks = ranks,
                                 .step_s = time.makespan_s,
                                 .checkpoint_every = save_every(job, time.makespan_s),
                                 .checkpoint_s = args.checkpoint_s >= 0
                                                     ? args.checkpoint_s
                                                     : static_cast<double>(persistent) / kCheckpointBytesPerSecond,
                                 .restart_s = args.restart_s,
                                 .mtbf_s = args.mtbf_hours * 3600,
                                 .seed = args.seed,
                                 .failures = given_failures(args)};
  out += run_text(conditions, simulate_run(conditions), job);
  std::fputs(out.c_str(), stdout);
  const std::shared_ptr<Device> device = make_device(assembly.options.device);
  const TierSizes& sizes = assembly.options.parallel.tiers;
  if (is_bounded(*device, sizes)) {
    for (const ExecutionPlan* plan : compiled.plans()) require_fits(*plan, *device, sizes);
  }
  return 0;
}

}  // namespace

void add_simulate(CLI::App& app, Action& chosen) {
  auto args = std::make_shared<SimulateArgs>();
  CLI::App* command = app.add_subcommand(
      "simulate", "Run a job on all its ranks in virtual time: its step, failures, checkpoints, goodput");
  args->job.takes_models = true;
  add_job_flags(*command, args->job);
  leave_run_out_of_help(*command);
  command->get_option("--steps")->group(command->get_option("--ranks")->get_group());  // how long the run is
  command->add_option("--machine", args->machine,
                      "File of the machine to run on, like machines/h100x8.toml; by default this host");
  command
      ->add_option("--straggler", args->stragglers,
                   "rank=RANK,x=FACTOR: this rank takes FACTOR times as long to compute; may be given again")
      ->allow_extra_args(false);
  command
      ->add_option("--fail", args->failures,
                   "rank=RANK,step=STEP: this rank is lost once, in this step; may be given again")
      ->allow_extra_args(false);
  command
      ->add_option("--mtbf", args->mtbf_hours,
                   "Average hours between failures of one rank; ranks fail at random moments. 0: none fails")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  args->job.keys.add(*command, "--checkpoint-every", "train.save_every", static_cast<int64_t*>(nullptr),
                     "Steps between checkpoints; 0: at the end only (train.save_every)");
  command
      ->add_option(
          "--checkpoint-seconds", args->checkpoint_s,
          "How long saving a checkpoint takes; by default the time to write a rank's parameters and state at 1 GB/s")
      ->check(CLI::Range(0.0, 1e9));
  command
      ->add_option("--restart-seconds", args->restart_s, "Seconds from the loss of a rank to the first step after it")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  command->add_option("--failure-seed", args->seed, "Seed of the random failures of --mtbf")->capture_default_str();
  command->footer(
      "The job is compiled for all its ranks as training compiles it, and none is started. The actions of every rank\n"
      "are given times by the machine's rates; --trace writes what the first rank of each stage does when, and the\n"
      "bytes in use. Steps of the run are alike. After a failure all ranks start again from the newest checkpoint.\n\n"
      "Example:\n  trireme simulate examples/gpt_text.toml -n 8 --tp 2 --steps 10000 --mtbf 500 --checkpoint-every "
      "500");
  command->callback([=, &chosen] {
    args->seed_given = command->count("--failure-seed") > 0;
    chosen = [=] { return run(*args); };
  });
}

}  // namespace trireme::cli
