// trireme train: trains the model of a configuration on this host.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/node_flags.h"
#include "cli/parallel_flags.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/flags.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/exec/plan.h"
#include "trireme/train/config.h"
#include "trireme/train/generate.h"
#include "trireme/train/interrupt.h"
#include "trireme/train/job.h"
#include "trireme/train/progress.h"
#include "trireme/train/session.h"
#include "trireme/train/strategies.h"

namespace trireme::cli {
namespace {

struct TrainArgs {
  std::string config;
  int ranks = 1;
  int min_ranks = 0;
  int threads = 0;
  std::vector<std::string> set;
  std::string out = "runs/latest";
  bool resume = false;
  bool quiet = false;
  bool insecure = false;
  int restarts = 0;
  std::string dtype;
  std::string numerics;
  std::string transport;
  ParallelFlags parallel;
  NodeFlags nodes;
};

// "1.2 GFLOP", "350 kFLOP".
std::string flops_text(double flops) {
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

// What the run will do, before it does it.
void announce(const JobConfig& config, const Session& session, const StartInfo& info, const std::string& out) {
  const Job& job = Job::current();
  const ExecutionPlan& plan = session.compiled().plan;
  const double flops = flops_per_step(plan) * job.size();
  const std::string expected =
      info.expected_s > 0 ? fmt::format(", about {} in all", duration(info.expected_s)) : "";
  std::printf(
      "%s: %s with %s parameters, %s\n"
      "  %d rank%s x %d thread%s%s, batch %lld%s, %.1f MiB of memory a rank (%s parameters and state, %s the step)\n"
      "  steps %lld to %lld, %s each%s\n"
      "  writing to %s\n",
      config.name.c_str(), config.model.kind.c_str(),
      compact_number(static_cast<double>(session.parameter_count())).c_str(), info.data.c_str(), job.size(),
      job.size() == 1 ? "" : "s", job.pool().size(), job.pool().size() == 1 ? "" : "s",
      job.world() ? fmt::format(" over {}", job.world()->transport()).c_str() : "",
      static_cast<long long>(config.train.batch),
      plan.micro_batches == 1 ? "" : fmt::format(" in {} micro-batches", plan.micro_batches).c_str(),
      static_cast<double>(plan.arena_bytes) / 1048576.0,
      fmt::format("{:.1f} MiB", static_cast<double>(plan.persistent_bytes) / 1048576.0).c_str(),
      fmt::format("{:.1f} MiB", static_cast<double>(plan.arena_bytes - plan.persistent_bytes) / 1048576.0).c_str(),
      static_cast<long long>(info.first_step + 1), static_cast<long long>(info.last_step), flops_text(flops).c_str(),
      expected.c_str(), out.c_str());
  std::fflush(stdout);
}

void say_what_next(const TrainArgs& args, const JobConfig& config, const FitResult& result) {
  if (result.interrupted) {
    std::printf("Stopped after step %lld; everything is saved in %s.\nGo on with the same command and --resume.\n",
                static_cast<long long>(result.step), result.checkpoint.c_str());
    return;
  }
  if (result.nothing_left) {
    std::printf("Nothing is left to train: %s is at step %lld of %s.\nFor more, raise the number of steps, as in --set "
                "train.steps=%lld.\n",
                result.checkpoint.c_str(), static_cast<long long>(result.step),
                config.train.steps > 0 ? std::to_string(config.train.steps).c_str() : "the last epoch",
                static_cast<long long>(2 * result.step));
    return;
  }
  std::printf("Training loss %.4f", result.loss);
  if (config.data.validation > 0) std::printf(", validation loss %.4f", result.validation_loss);
  if (predicts_classes(config) && config.data.validation > 0) std::printf(", accuracy %.2f %%", 100 * result.accuracy);
  if (Job::current().size() > 1) std::printf("\nCommunication %s", to_string(result.communication).c_str());
  std::printf("\nReport:     %s\nCheckpoint: %s\n", result.report.c_str(), result.checkpoint.c_str());
  if (!predicts_classes(config) && config.model.vocabulary == data::kByteVocabulary) {
    std::printf("Try:        trireme generate %s/checkpoints --prompt \"The \" --tokens 200\n", args.out.c_str());
  }
}

// "3 or 6": the batches nearest to the one asked for.
std::string sizes_that_divide(int64_t batch, int64_t parts) {
  const int64_t below = batch / parts * parts;
  return below > 0 ? fmt::format("{} or {}", below, below + parts) : fmt::format("{}", parts);
}

// The configuration and its batch, over so many ranks.
void check_fits(const JobConfig& config, int ranks) {
  const int64_t micro_batches = micro_batches_of(parallel_of(config, ranks));
  const int64_t parts = data_parallel_degree(config, ranks);
  const bool whole = micro_batches == 1;
  require(config.train.batch % (parts * micro_batches) == 0,
          "train: a batch of {} samples does not divide over {} rank{}{}; use --set train.batch={}, {}or another -n", config.train.batch,
          parts, parts == 1 ? "" : "s", whole ? "" : fmt::format(" x {} micro-batches", micro_batches),
          sizes_that_divide(config.train.batch, parts * micro_batches), whole ? "" : "other --gradient-accumulation-steps, ");
}

bool fits(const JobConfig& config, int ranks) {
  try {
    check_fits(config, ranks);
    mesh_of_ranks(parallel_of(config, ranks), ranks);
    return true;
  } catch (const Error&) {
    return false;
  }
}

int work(const TrainArgs& args) {
  ignore_save_signal();
  const JobConfig config = read_config(args.config, args.set);
  check_fits(config, ranks_of_job());
  const Job job({.transport = config.parallel.transport, .threads = args.threads, .insecure = args.insecure});
  if (job.rank() == 0) disk().make_directory(args.out);
  const auto model = make_model(config);
  const data::Split split = make_data(config);
  TrainerOptions options = trainer_options(config, job.size());
  options.out = args.out;
  options.progress = !args.quiet;
  options.command = fmt::format("trireme train {}", args.config);
  std::string sample;
  if (job.rank() == 0) {
    options.on_start = [&](const Session& session, const StartInfo& info) {
      announce(config, session, info, args.out);
    };
    if (!predicts_classes(config) && config.model.vocabulary == data::kByteVocabulary) {
      options.sample = [&](const std::function<View(std::string_view)>& parameter) {
        sample = generate(config, parameter, &job.pool(), {.prompt = "The ", .tokens = 320});
        return sample;
      };
    }
  }
  FitOptions fit = fit_options(config);
  fit.validation = split.validation;
  fit.resume = args.resume;
  Trainer trainer([&](const Tensor& x) { return (*model)(x); },
                  make_loss(config), make_optimizer(config), options);
  const FitResult result = trainer.fit(split.train, fit);
  if (job.rank() == 0) {
    if (!sample.empty()) std::printf("\nA sample the model wrote:\n%s\n\n", sample.c_str());
    say_what_next(args, config, result);
  }
  return result.exit_code();
}

int train(TrainArgs args) {
  require(!args.out.empty(), "train: --out is empty; name a folder");
  args.nodes.take_mindspore_variables();
  if (mindspore_role() == "MS_SCHED") return serve_mindspore_scheduler(args.nodes);
  if (mindspore_role().empty()) {
    check_ranks(args.ranks, args.min_ranks);
    if (is_worker()) return work(args);
  }
  const bool of_nodes = args.nodes.given() && !flag_text("RANK");  // with it, this is the one rank of such a job
  const launch::NodeOptions node = args.nodes.options();
  const int ranks = !of_nodes ? args.ranks : node.world > 0 ? node.world : std::max(node.nodes, 1) * args.ranks;
  const JobConfig config = read_config(args.config, args.set);  // a mistake here is told before ranks start
  check_fits(config, ranks);
  if (args.resume) {
    const ckpt::Listing found = ckpt::list_checkpoints(args.out + "/checkpoints");
    if (found.complete.empty()) {
      Error error(found.notes.empty() ? ErrorKind::kNotFound : ErrorKind::kCorrupt,
                  fmt::format("train: --resume, but there is no {}checkpoint in '{}/checkpoints'; leave --resume out, or "
                              "name the run's folder with --out",
                              found.notes.empty() ? "" : "whole ", args.out));
      for (const std::string& note : found.notes) error.note(note);
      throw error;
    }
  }
  if (args.ranks == 1 && !of_nodes && (args.restarts == 0 || has_launcher())) return work(args);
  require(!of_nodes || args.min_ranks == 0, "train: -n {}:{} with --nnodes or --master: say there how many ranks may be missing, as "
          "in --nnodes 2:4", args.min_ranks, args.ranks);
  return relaunch({.ranks = args.ranks,
                   .min_ranks = args.min_ranks,
                   .fits = [&](int count) { return fits(config, count); },
                   .threads = args.threads,
                   .log_dir = args.out + "/logs",
                   .restarts = args.restarts,
                   .node = of_nodes ? &node : nullptr});
}

// The flags, as they were typed, are keys of the configuration; --set wins over them.
TrainArgs with_flags(TrainArgs args) {
  std::vector<std::string> keys = args.parallel.overrides();
  if (!args.dtype.empty()) keys.push_back("train.dtype=" + args.dtype);
  if (!args.numerics.empty()) keys.push_back("train.numerics=" + args.numerics);
  if (!args.transport.empty()) keys.push_back("parallel.transport=" + args.transport);
  args.set.insert(args.set.begin(), keys.begin(), keys.end());
  return args;
}

}  // namespace

void add_train(CLI::App& app, Action& chosen) {
  auto args = std::make_shared<TrainArgs>();
  CLI::App* command = app.add_subcommand("train", "Train the model of a configuration file");
  command->add_option("config", args->config, "The job's TOML file; `trireme help config` lists its keys")->required();
  command->add_option_function<std::string>(
      "-n,--ranks",
      [args](const std::string& text) {
        const Range range = parse_range(text, "train: -n");
        args->ranks = range.most;
        args->min_ranks = range.least;
      },
      "Ranks on this host, each a process; default 1. 2:4: 4, and after ranks were killed --restarts goes on with so many fewer, "
      "at least 2");
  command->add_option("--threads", args->threads, "Compute threads of each rank; 0: cores over ranks")
      ->check(CLI::Range(0, 1024));
  command->add_option("--set", args->set, "Replace a key of the configuration, e.g. --set train.lr=0.001")->allow_extra_args(false);
  command->add_option("--transport", args->transport, "auto, shm, ucx or mpi: how ranks exchange tensors");
  command->add_option("--dtype", args->dtype, "f32 or bf16: what layers compute in");
  command->add_option("--numerics", args->numerics, "fast, or invariant: the same bits however the job is cut");
  add_parallel_flags(*command, args->parallel);
  add_node_flags(*command, args->nodes);
  command->add_option("--out", args->out, "Folder of logs, report and checkpoints")->capture_default_str();
  command->add_flag("--resume", args->resume, "Go on from the newest checkpoint in --out");
  command->add_flag("--quiet", args->quiet, "No progress bar");
  command->add_option("--restarts", args->restarts, "How often to go on from the newest checkpoint after a rank has failed; with --nnodes on the nodes that are left")
      ->check(CLI::Range(0, 1000000));
  command->add_flag("--insecure", args->insecure, "Ranks that another launcher starts on several hosts may meet without a secret");
  command->footer("SIGINT (Ctrl-C), SIGTERM and SIGHUP, sent to any process of the job, finish the step, save and end all ranks with the "
                  "exit code 128 + signal; SIGUSR1 saves a checkpoint and goes on.\n\n"
                  "Example:\n  trireme train examples/mnist.toml -n 2 --set train.epochs=3 --out runs/mnist");
  command->callback([=, &chosen] { chosen = [=] { return train(with_flags(*args)); }; });
}

}  // namespace trireme::cli
