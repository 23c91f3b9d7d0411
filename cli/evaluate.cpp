// trireme evaluate: loss and accuracy of a checkpoint, without training.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/job_flags.h"
#include "cli/key_flags.h"
#include "cli/parallel_keys.h"
#include "trireme/base/error.h"
#include "trireme/base/json_text.h"
#include "trireme/ckpt/open_tensors.h"
#include "trireme/train/infer/evaluate_checkpoint.h"
#include "trireme/train/job/job.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/job/same_job.h"

namespace trireme::cli {
namespace {

struct EvaluateArgs {
  std::string checkpoint;
  std::vector<std::string> set;
  int ranks = 1;
  int threads = 0;
  int64_t batch = 0;
  bool json = false;
};

// Of the section [train], what a pass over samples without training goes by; the seed, because it says which are held
// out.
void check_keys(const std::vector<std::string>& set) {
  static constexpr std::string_view kRead[] = {"dtype", "numerics",   "device",      "tuning",         "seed",
                                               "batch", "eval_batch", "loss_pieces", "label_smoothing"};
  for (const std::string& text : set) {
    const std::string_view key = std::string_view(text).substr(0, text.find('='));
    if (!key.starts_with("train.")) continue;
    require(std::ranges::find(kRead, key.substr(6)) != std::end(kRead),
            "evaluate: {} is for training, and nothing is trained here; leave it out", key);
  }
}

struct Evaluated {
  JobConfig config;
  bool held_out = false;  // whether its samples are those that the run held out
};

// The job's configuration, on the ranks of this command: how and where the run that trained it ran does not matter.
Evaluated evaluated(const EvaluateArgs& args, const ckpt::Reader& reader, int64_t ranks) {
  const auto meta = reader.meta().find("config");
  require(meta != reader.meta().end(), "evaluate: '{}' was not written by `trireme train`: it has no configuration",
          reader.path());
  JobConfig trained = parse_config(meta->second, reader.path() + " (configuration)");
  trained.parallel = {};
  const JobConfig plain;
  trained.train.device = plain.train.device;
  trained.train.label_smoothing = plain.train.label_smoothing;  // no perplexity is of a smoothed target
  trained.train.fit.keep_best =
      plain.train.fit.keep_best;  // nothing is judged here, so other data may be given without more ado
  trained.train.fit.patience = plain.train.fit.patience;
  trained.train.fit.measure = plain.train.fit.measure;
  trained.train.fit.min_improvement = plain.train.fit.min_improvement;
  JobConfig out = parse_config(to_toml(trained), reader.path() + " (configuration)", args.set);
  check_keys(args.set);
  check_parallel_keys("evaluate", args.set, out, ranks);
  check_same_model(trained, out, reader.path());
  const bool held_out = holds_out_the_same(trained, out, reader.path());
  const bool given = args.batch > 0;
  const int64_t batch = given                          ? args.batch
                        : out.train.fit.eval_batch > 0 ? out.train.fit.eval_batch
                                                       : out.train.fit.batch;
  require(!given || batch % ranks == 0, "evaluate: --batch {} does not divide over {} ranks; use {}", batch, ranks,
          (batch + ranks - 1) / ranks * ranks);
  out.train.fit.batch = (batch + ranks - 1) / ranks * ranks;
  out.train.fit.eval_batch = 0;
  return {std::move(out), held_out};
}

// What a run with this configuration holds out; all samples where it holds none out.
data::SourcePtr samples_of(const JobConfig& config) {
  JobConfig any = config;
  any.train.fit.batch = 1;  // of the samples that are trained on none is needed
  data::Split split = make_data(any);
  return split.validation ? split.validation : split.train;
}

void print(const EvaluateArgs& args, const Evaluated& what, const ckpt::Reader& reader, const EvaluationResult& found) {
  const bool classes = predicts_classes(what.config);
  if (args.json) {
    JsonObject line{{"checkpoint", reader.path()},
                    {"step", reader.step()},
                    {"samples", found.samples},
                    {"held_out", what.held_out},
                    {"loss", found.loss}};
    if (classes) line.add("accuracy", found.accuracy);
    if (!classes) line.add("perplexity", std::exp(found.loss));
    std::printf("%s\n", line.text().c_str());
    return;
  }
  std::printf("%s, step %lld\n", reader.path().c_str(), static_cast<long long>(reader.step()));
  std::printf("Loss %.4f", found.loss);
  if (classes) {
    std::printf(", accuracy %.2f %%", 100 * found.accuracy);
  } else {
    std::printf(", perplexity %.4g", std::exp(found.loss));
  }
  std::printf(", of %lld %s\n", static_cast<long long>(found.samples),
              what.held_out ? "samples that were held out" : "samples");
}

int evaluate(const EvaluateArgs& args) {
  check_ranks(args.ranks);
  const ckpt::Reader reader(ckpt::checkpoints_of(args.checkpoint));
  const bool worker = is_worker();
  const Evaluated what =
      evaluated(args, reader, worker ? ranks_of_job() : args.ranks);  // a mistake is reported before ranks start
  const JobConfig& config = what.config;
  if (args.ranks > 1 && !worker) return relaunch({.ranks = args.ranks, .threads = args.threads});
  const Job job({.transport = config.parallel.transport, .threads = args.threads});
  if (job.rank() == 0) log_remarks(config, job.size());
  const EvaluationResult found = evaluate_checkpoint(reader, config, samples_of(config), job);
  if (job.rank() == 0) print(args, what, reader, found);
  return 0;
}

}  // namespace

void add_evaluate(CLI::App& app, Action& chosen) {
  auto args = std::make_shared<EvaluateArgs>();
  CLI::App* command =
      app.add_subcommand("evaluate", "Loss and accuracy of a checkpoint over the samples that its run held out");
  command
      ->add_option("checkpoint", args->checkpoint,
                   "A run's folder, that of its checkpoints, or one checkpoint, like runs/latest/checkpoints/best")
      ->required();
  command->add_option("-n,--ranks", args->ranks, "Ranks on this host, each a process")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--threads", args->threads, "Compute threads of each rank; 0: the cores divided by the ranks")
      ->check(CLI::Range(0, 1024));
  command
      ->add_option("--batch", args->batch, "Samples of a batch over all ranks; by default that of the run's validation")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 31));
  add_set(*command, args->set,
          "Replace a key of the run's configuration: other data, as in --set data.paths='[\"new.txt\"]' --set "
          "data.validation=0, or how ranks share the model, as in --set parallel.mode=semi_auto_parallel "
          "--set parallel.tp=2");
  command->add_flag("--json", args->json, "One line of JSON");
  command->footer("Example:\n  trireme evaluate runs/latest --json");
  command->callback([=, &chosen] { chosen = [=] { return evaluate(*args); }; });
}

}  // namespace trireme::cli
