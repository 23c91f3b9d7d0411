// trireme train: trains the model of a configuration on this host.
#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/job_flags.h"
#include "cli/plan_progress.h"
#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/flags.h"
#include "trireme/base/joined_text.h"
#include "trireme/base/log.h"
#include "trireme/base/utf8.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/exec/plan/execution_plan.h"
#include "trireme/parallel/asked/stages.h"
#include "trireme/parallel/without_effect.h"
#include "trireme/train/checkpoints/warm_start.h"
#include "trireme/train/infer/generate.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/job.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/model_size.h"
#include "trireme/train/job/parallel_settings.h"
#include "trireme/train/loop/interrupt.h"
#include "trireme/train/loop/run_lock.h"
#include "trireme/train/loop/trainer.h"
#include "trireme/train/plan/auto/auto_plan.h"
#include "trireme/train/report/progress.h"
#include "trireme/train/step/compile/remarks.h"
#include "trireme/train/step/session/session.h"

namespace trireme::cli {
namespace {

// "1.2 GFLOP", "350 kFLOP".
std::string work_of_step(double flops) {
  for (const auto& [unit, name] : {std::pair{1e12, "TFLOP"}, {1e9, "GFLOP"}, {1e6, "MFLOP"}}) {
    if (flops >= unit) return fmt::format("{:.2f} {}", flops / unit, name);
  }
  return fmt::format("{:.0f} kFLOP", flops / 1e3);
}

std::string duration(double seconds) {
  if (seconds < 90) return fmt::format("{:.0f} s", std::max(seconds, 1.0));
  if (seconds < 5400) return fmt::format("{:.1f} minutes", seconds / 60);
  return fmt::format("{:.1f} hours", seconds / 3600);
}

// " in 8 micro-batches of 2 copies"; "" for a batch that is computed in one.
std::string micro_batches_text(const ExecutionPlan& plan, int64_t copies) {
  const int64_t micro_batches = plan.micro_batches / plan.seq_chunks / copies;
  std::vector<std::string> parts;
  if (micro_batches > 1) parts.push_back(counted(micro_batches, "micro-batch"));
  if (copies > 1) parts.push_back(fmt::format("{} copies", copies));
  if (plan.seq_chunks > 1) parts.push_back(fmt::format("{} chunks of positions", plan.seq_chunks));
  return parts.empty() ? "" : fmt::format(" in {}", joined_text(parts, " of "));
}

// What the run will do, before it does it.
void announce(const JobConfig& config, const Session& session, const StartInfo& info, const std::string& out) {
  const Job& job = Job::current();
  const ExecutionPlan& plan = largest_plan(session.compiled());
  const double flops = flops_per_step(session.compiled(), job.size());
  const std::string expected = info.expected_s > 0 ? fmt::format(", about {} in all", duration(info.expected_s)) : "";
  std::printf(
      "%s: %s with %s parameters, %s\n"
      "  %d rank%s x %d thread%s%s, batch %lld%s, %s%.1f MiB of memory a rank (%s parameters and state, %s the step)\n"
      "  steps %lld to %lld, %s each%s\n"
      "  writing to %s\n",
      config.name.c_str(), config.model.kind.c_str(),
      compact_number(static_cast<double>(session.parameter_count())).c_str(), info.data.c_str(), job.size(),
      job.size() == 1 ? "" : "s", job.pool().size(), job.pool().size() == 1 ? "" : "s",
      job.world() ? fmt::format(" over {}", job.world()->transport()).c_str() : "",
      static_cast<long long>(config.train.fit.batch), micro_batches_text(plan, config.parallel.interleave).c_str(),
      session.compiled().crews.size() == 1 ? "" : "up to ", static_cast<double>(plan.arena().bytes) / 1048576.0,
      fmt::format("{:.1f} MiB", static_cast<double>(plan.arena().persistent) / 1048576.0).c_str(),
      fmt::format("{:.1f} MiB", static_cast<double>(plan.arena().bytes - plan.arena().persistent) / 1048576.0).c_str(),
      static_cast<long long>(info.first_step + 1), static_cast<long long>(info.last_step), work_of_step(flops).c_str(),
      expected.c_str(), out.c_str());
  const Compiled& compiled = session.compiled();
  const std::string whole = job.size() == 1 || compiled.partitioned.by_hand
                                ? ""
                                : stays_whole(compiled.graph, compiled.strategy, config.parallel.zero);
  if (!whole.empty()) std::printf("  %s\n", whole.c_str());
  if (job.size() > 1 && !config.parallel.communication.shard_accumulation) {
    const std::string order = order_without_effect(compiled, parallel_of(config, job.size()));
    if (!order.empty()) std::printf("  %s\n", order.c_str());
  }
  if (const std::string groups = nn::describe_groups(compiled.graph, config.train.step.groups); !groups.empty())
    std::printf("  %s\n", groups.c_str());
  if (const std::string& from = config.train.fit.init_from; !from.empty() && info.first_step == 0)
    std::printf("  parameters begin as in %s\n", from.c_str());
  std::fputs(compiled.search.c_str(), stdout);
  std::fflush(stdout);
}

void say_what_next(const JobFlags& args, const JobConfig& config, const FitResult& result) {
  if (result.interrupted) {
    std::printf("Stopped after step %lld; everything is saved in %s.\nGo on with the same command and --resume.\n",
                static_cast<long long>(result.step), result.checkpoint.c_str());
    return;
  }
  if (result.nothing_left && result.stopped_early) {
    std::printf(
        "Nothing is left to train: the run stopped early at step %lld, after %s that found nothing better than that of "
        "step %lld.\nTo go on, raise --patience, or set it to 0.\n",
        static_cast<long long>(result.step), counted(config.train.fit.patience, "validation").c_str(),
        static_cast<long long>(result.best_step));
    return;
  }
  if (result.nothing_left) {
    std::printf(
        "Nothing is left to train: %s is at step %lld of %s.\nFor more, raise the number of steps, as in --set "
        "train.steps=%lld.\n",
        result.checkpoint.c_str(), static_cast<long long>(result.step),
        config.train.fit.steps > 0 ? std::to_string(config.train.fit.steps).c_str() : "the last epoch",
        static_cast<long long>(2 * result.step));
    return;
  }
  std::printf("Training loss %.4f", result.loss);
  if (config.data.validation > 0) std::printf(", validation loss %.4f", result.validation_loss);
  if (predicts_classes(config) && config.data.validation > 0) std::printf(", accuracy %.2f %%", 100 * result.accuracy);
  if (result.stopped_early) {
    std::printf("\nStopped early at step %lld: %s found nothing better than that of step %lld",
                static_cast<long long>(result.step), counted(config.train.fit.patience, "validation").c_str(),
                static_cast<long long>(result.best_step));
  }
  if (Job::current().size() > 1) std::printf("\nCommunication %s", to_string(result.communication).c_str());
  if (!result.report.empty()) std::printf("\nReport:     %s", result.report.c_str());
  std::printf("\nCheckpoint: %s\n", result.checkpoint.c_str());
  if (config.train.fit.keep_best && result.best_step >= 0) {
    std::printf("Best:       %s/checkpoints/best, of step %lld: validation %s %.4f\n", args.out.c_str(),
                static_cast<long long>(result.best_step),
                config.train.fit.measure == Measure::kLoss ? "loss" : "accuracy", result.best);
  }
  if (!result.trace.empty()) std::printf("Trace:      %s\n", result.trace.c_str());
  if (config.train.fit.merged_save) std::printf("Merged:     %s/model.safetensors\n", args.out.c_str());
  if (writes_text(config)) {
    std::printf("Try:        trireme generate %s --prompt \"The \" --tokens 200\n",
                quoted(args.out + "/checkpoints").c_str());
  }
}

// Announced, because it takes time after the last step.
std::string write_sample(const JobConfig& config, const std::function<View(std::string_view)>& parameter,
                         ThreadPool& pool) {
  constexpr double kMostSeconds = 10;
  std::printf("\nWriting a sample of %lld tokens, for %.0f s at most; --sample-tokens 0 leaves it out\n",
              static_cast<long long>(config.train.sample_tokens), kMostSeconds);
  std::fflush(stdout);
  return generate(config, parameter, &pool,
                  {.prompt = "The ", .tokens = config.train.sample_tokens, .most_seconds = kMostSeconds});
}

// "3 or 6": the batches nearest to the one asked for.
std::string sizes_that_divide(int64_t batch, int64_t parts) {
  const int64_t below = batch / parts * parts;
  return below > 0 ? fmt::format("{} or {}", below, below + parts) : fmt::format("{}", parts);
}

// The configuration and its batch, over so many ranks. The schedule comes first: a batch is for micro-batches that it
// takes.
void check_batches_divide(const JobConfig& config, int ranks) {
  const Parallel parallel = parallel_of(config, ranks);
  const int64_t micro_batches = micro_batches_of(parallel) * config.parallel.interleave;
  if (parallel.pipeline.crews > 1) timetable_of(parallel.pipeline, micro_batches_of(parallel));
  const int64_t parts = data_parallel_degree(config, ranks);
  const bool whole = micro_batches == 1;
  const std::string_view others =
      config.parallel.interleave > 1 ? "--micro-batches or --interleave" : "--micro-batches";
  const auto check = [&](std::string_view what, std::string_view key, int64_t batch) {
    require(batch % (parts * micro_batches) == 0,
            "train: {} of {} does not divide over {} rank{}{}; use --set {}={}, {}or another -n", what,
            counted(batch, "sample"), parts, parts == 1 ? "" : "s",
            whole ? "" : fmt::format(" x {} micro-batches", micro_batches), key,
            sizes_that_divide(batch, parts * micro_batches), whole ? "" : fmt::format("other {}, ", others));
  };
  check("a batch", "train.batch", config.train.fit.batch);
  check("an evaluation batch", "train.eval_batch", config.train.fit.eval_batch);  // 0 is the training batch
}

// Of a job that is left to plan.
AutoRequest plan_request(const JobFlags& args, const JobConfig& asked, int ranks, int threads) {
  return {.job = asked, .ranks = ranks, .threads = threads, .said = args.said()};
}

// Why the job is none for so many ranks; "" where it is one.
std::string why_cannot_run(const JobFlags& args, const JobConfig& asked, int ranks) {
  try {
    const JobConfig config = is_left_to_plan(asked) ? auto_plan(plan_request(args, asked, ranks, 1)).job : asked;
    check_batches_divide(config, ranks);
    const Parallel parallel = parallel_of(config, ranks);
    const int64_t of_crew = ranks_of_crew(parallel.pipeline, ranks);
    mesh_of_ranks(parallel, of_crew);
    check_shard_size(parallel.optimizer, of_crew);
    return "";
  } catch (const Error& error) {
    return error.text();
  }
}

// What the job would go on with after a rank is lost. A plan is made for any number of ranks, and takes its time.
void check_fewer_ranks(const JobFlags& args, const JobConfig& asked) {
  if (args.min_ranks == 0 || args.restarts == 0 || args.min_ranks >= args.ranks || is_left_to_plan(asked)) return;
  std::vector<std::string> cannot;
  std::string first;
  for (int ranks = args.ranks - 1; ranks >= args.min_ranks; --ranks) {
    const std::string why = why_cannot_run(args, asked, ranks);
    if (why.empty()) continue;
    if (cannot.empty()) first = why;
    cannot.push_back(std::to_string(ranks));
  }
  if (cannot.empty()) return;
  const std::string ranks =
      fmt::format("{} rank{}", joined_text(cannot, ", "), cannot == std::vector<std::string>{"1"} ? "" : "s");
  require(cannot.size() < static_cast<size_t>(args.ranks - args.min_ranks),
          "train: -n {0}:{1}: the job cannot go on with {2}: {3}. Use -n {1}, or make it one that can", args.min_ranks,
          args.ranks, ranks, first);
  TRIREME_LOG(kWarn, "launch", "of -n {}:{} the job cannot go on with {}: {}", args.min_ranks, args.ranks, ranks,
              first);
}

// The job as it runs: planned, where that is left to a plan.
AutoPlan planned(const JobFlags& args, const JobConfig& asked, const Job& job) {
  if (!is_left_to_plan(asked)) return {.job = asked, .file = ""};
  AutoRequest request = plan_request(args, asked, job.size(), job.pool().size());
  PlanProgress progress;
  if (!args.quiet) progress.watch(request);
  AutoPlan out = auto_plan(request, job.world());
  progress.clear();
  check_batches_divide(out.job, job.size());
  return out;
}

// What the keys of one plan say otherwise than those of another.
std::string other_keys(const PlanFile& now, const PlanFile& before) {
  std::vector<std::string> out;
  if (now.ranks != before.ranks) out.push_back(fmt::format("{} ranks instead of {}", now.ranks, before.ranks));
  for (const std::string& key : now.keys) {
    if (std::ranges::find(before.keys, key) == before.keys.end()) out.push_back(key);
  }
  return joined_text(out, ", ");
}

// Keeps the plan beside what the run writes, and says if a run that goes on had another.
void keep_plan(const AutoPlan& plan, const StartInfo& info, const std::string& out) {
  const std::string path = join_path(out, "plan.trp");
  if (info.first_step > 0 && is_file(path)) {
    try {
      const std::string others = other_keys(parse_plan_file(plan.file), parse_plan_file(read_file(path)));
      if (!others.empty()) TRIREME_LOG(kWarn, "cli", "going on by another plan than the one in '{}': {}", path, others);
    } catch (const Error& error) {
      TRIREME_LOG(kWarn, "cli", "by which plan the run went before is not known: '{}': {}", path, error.what());
    }
  }
  atomic_write(path, plan.file);
  std::printf("%s  this plan is kept in %s, for --plan\n", plan.text.c_str(), path.c_str());
  std::fflush(stdout);
}

int work(const JobFlags& args) {
  ignore_save_signal();
  const JobConfig asked = args.read();
  check_memory(asked, ranks_of_job(), 1);
  if (!is_left_to_plan(asked)) check_batches_divide(asked, ranks_of_job());
  const Job job({.transport = asked.parallel.transport, .threads = args.threads, .insecure = args.insecure});
  const AutoPlan plan = planned(args, asked, job);
  const JobConfig& config = plan.job;
  if (job.rank() == 0) {
    log_remarks(config, job.size());
    disk().make_directory(args.out);
  }
  const auto model = make_model(config);
  const data::Split split = make_data(config);
  TrainerOptions options = trainer_options(config, job.size());
  options.out = args.out;
  options.progress = !args.quiet;
  options.command = typed_command();
  options.facts = {{"Model", model_of(config).describe()}, {"Data", data_of(config).describe()}};
  if (!plan.way.empty()) options.facts.emplace_back("Plan", plan.way);
  std::string sample;
  if (job.rank() == 0) {
    options.on_start = [&](const Session& session, const StartInfo& info) {
      announce(config, session, info, args.out);
      if (!plan.file.empty()) keep_plan(plan, info, args.out);
    };
    if (writes_text(config) && config.train.sample_tokens > 0) {
      options.sample = [&](const std::function<View(std::string_view)>& parameter) {
        sample = write_sample(config, parameter, job.pool());
        return sample;
      };
    }
  }
  FitOptions fit = config.train.fit;
  fit.validation = split.validation;
  fit.resume = args.resume;
  Trainer trainer([&](const nn::Fields& batch) { return (*model)(batch); }, make_loss(config), make_optimizer(config),
                  options);
  const FitResult result = trainer.fit(split.train, fit);
  if (job.rank() == 0) {
    if (!sample.empty()) std::printf("A sample the model wrote:\n%s\n\n", printable(sample).c_str());
    say_what_next(args, config, result);
    std::fflush(stdout);
  }
  // The first rank that leaves a job by a signal ends those of other nodes, which may still have to say what is saved.
  if (result.interrupted && job.world() != nullptr) job.world()->all().barrier().wait();
  return result.exit_code();
}

// What the first rank writes beside the run's folder.
void check_places(const JobConfig& config) {
  const std::pair<const char*, const std::string&> files[] = {
      {"train.trace", config.train.trace}, {"parallel.save_strategy", config.parallel.save_strategy}};
  for (const auto& [key, file] : files) {
    if (!file.empty()) require_place_for(file, fmt::format("configuration: {}", key));
  }
}

int train(JobFlags args) {
  require(!args.out.empty(), "train: --out is empty; name a folder");
  args.nodes.take_mindspore_variables();
  if (mindspore_role() == "MS_SCHED") return serve_mindspore_scheduler(args.nodes, args.restarts, "");
  if (!flag_text("RANK")) {  // else a rank that a launcher started, with its words
    args.nodes.check();
    warn_of_range(args.ranks, args.min_ranks, args.restarts);
  }
  if (mindspore_role().empty()) {
    check_ranks(args.ranks, args.min_ranks);
    if (is_worker()) return work(args);
  }
  const bool of_nodes = args.nodes.given() && !flag_text("RANK");  // with it, this is the one rank of such a job
  const launch::NodeOptions node = args.nodes.options();
  const int ranks = of_nodes ? args.ranks_in_all() : args.ranks;
  const JobConfig config = args.read();  // a mistake here is reported before ranks start
  check_memory(config, ranks, args.ranks);
  if (!is_left_to_plan(config)) check_batches_divide(config, ranks);
  if (!of_nodes) {  // the first rank may be on another node
    check_places(config);
    RunLock::check(args.out);  // before logs of ranks are written over; of nodes, some may come while others train
  }
  if (!config.train.fit.init_from.empty()) warm_start_source(config.train.fit.init_from);
  if (args.resume) {
    const ckpt::Listing found = ckpt::list_checkpoints(args.out + "/checkpoints");
    if (found.complete.empty()) {
      Error error(
          found.notes.empty() ? ErrorKind::kNotFound : ErrorKind::kCorrupt,
          fmt::format("train: --resume, but there is no {}checkpoint in '{}/checkpoints'; leave --resume out, or "
                      "name the run's folder with --out",
                      found.notes.empty() ? "" : "whole ", args.out));
      for (const std::string& note : found.notes) error.note(note);
      throw error;
    }
  }
  if (args.ranks == 1 && !of_nodes && (args.restarts == 0 || has_launcher())) return work(args);
  require(!of_nodes || args.min_ranks == 0,
          "train: -n {}:{}: with --nnodes or --master, -n is the number of ranks on this node; let the number of nodes "
          "vary instead, as in --nnodes 2:4",
          args.min_ranks, args.ranks);
  if (!of_nodes) check_fewer_ranks(args, config);
  if (is_left_to_plan(config))
    check_auto_plan(plan_request(args, config, ranks, compute_threads(args.threads, args.ranks)));
  return relaunch({.ranks = args.ranks,
                   .min_ranks = args.min_ranks,
                   .can_run = [&](int count) { return why_cannot_run(args, config, count).empty(); },
                   .threads = args.threads,
                   .log_dir = args.out + "/logs",
                   .restarts = args.restarts,
                   .node = of_nodes ? &node : nullptr});
}

}  // namespace

void add_train(CLI::App& app, Action& chosen) {
  auto args = std::make_shared<JobFlags>();
  CLI::App* command = app.add_subcommand("train", "Train the model of a configuration file");
  add_job_flags(*command, *args);
  command->footer(
      "SIGINT (Ctrl-C), SIGTERM and SIGHUP, sent to any process of the job, finish the step, save and end all ranks "
      "with the "
      "exit code 128 + signal; SIGUSR1 saves a checkpoint and goes on.\n\n"
      "Example:\n  trireme train examples/digits.toml -n 2 --set train.epochs=3 --out runs/digits");
  command->callback([=, &chosen] { chosen = [=] { return train(*args); }; });
}

}  // namespace trireme::cli
