// trireme generate: text from a trained checkpoint.
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "cli/commands.h"
#include "cli/job_flags.h"
#include "cli/key_flags.h"
#include "cli/parallel_keys.h"
#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/ckpt/checkpoint.h"
#include "trireme/ckpt/open_tensors.h"
#include "trireme/train/infer/generate.h"
#include "trireme/train/job/job.h"
#include "trireme/train/step/graphs/compute_type.h"

namespace trireme::cli {
namespace {

struct GenerateArgs {
  std::string checkpoint;
  GenerateOptions options;
  std::vector<std::string> set;
  int ranks = 1;
  int threads = 0;
  int64_t tp = 0, pp = 1;  // tp 0: all ranks of a part of the pipeline
  bool seed_given = false;
  std::string dtype = "f32";
};

// How ranks share the model here, wherever and however it was trained.
JobConfig cut_for(JobConfig trained, const GenerateArgs& args, int64_t ranks, const std::string& checkpoint) {
  trained.parallel = {};
  const JobConfig plain;
  trained.train.device = plain.train.device;
  if (ranks == 1 && args.set.empty() && args.tp <= 1 && args.pp == 1) return trained;
  std::vector<std::string> keys{"parallel.mode=semi_auto_parallel", fmt::format("parallel.pp={}", args.pp)};
  const bool has_mesh =
      std::ranges::any_of(args.set, [](const std::string& each) { return each.starts_with("parallel.mesh="); });
  if (args.tp > 0 || !has_mesh)  // a mesh says what tp does
    keys.push_back(fmt::format("parallel.tp={}", args.tp > 0 ? args.tp : std::max<int64_t>(1, ranks / args.pp)));
  for (const std::string& each : args.set) {
    require(each.starts_with("parallel."),
            "generate: --set {}: only keys of [parallel] can be set, which say how ranks share the model; the rest "
            "comes from the checkpoint",
            each);
    keys.push_back(each);
  }
  return parse_config(to_toml(trained), checkpoint + " (configuration)", keys);
}

int run(const GenerateArgs& args) {
  if (args.seed_given && args.options.temperature == 0)
    TRIREME_LOG(kWarn, "cli", "--seed changes nothing with --temperature 0, which always takes the likeliest token");
  const ckpt::Reader reader(ckpt::checkpoints_of(args.checkpoint));
  const auto meta = reader.meta().find("config");
  require(meta != reader.meta().end(), "generate: '{}' was not written by `trireme train`: it has no configuration",
          reader.path());
  check_ranks(args.ranks);
  const bool worker = is_worker();
  const int64_t ranks = worker ? ranks_of_job() : args.ranks;
  const JobConfig config =
      cut_for(parse_config(meta->second, reader.path() + " (configuration)"), args, ranks, reader.path());
  check_cuts_of_one_sequence(config, ranks);  // a mistake is reported before ranks start
  check_parallel_keys("generate", args.set, config, ranks);
  if (args.ranks > 1 && !worker) return relaunch({.ranks = args.ranks, .threads = args.threads});
  const Job job({.transport = config.parallel.transport, .threads = args.threads});
  if (job.rank() == 0) log_remarks(config, job.size());
  bool begun = false;  // the prompt is shown only once nothing is wrong with what was asked
  const auto begin = [&] {
    if (!begun) std::fputs(args.options.prompt.c_str(), stdout);
    begun = true;
  };
  const bool tells = job.rank() == 0;
  generate(config, reader, job.world(), &job.pool(), args.options, [&](char c) {
    if (!tells) return;
    begin();
    const bool arrived = std::fputc(c, stdout) != EOF && std::fflush(stdout) == 0;
    if (!arrived) fail(ErrorKind::kIo, "generate: cannot write to the standard output ({})", std::strerror(errno));
  });
  if (!tells) return 0;
  begin();
  std::fputc('\n', stdout);
  return 0;
}

}  // namespace

void add_generate(CLI::App& app, Action& chosen) {
  auto args = std::make_shared<GenerateArgs>();
  CLI::App* command = app.add_subcommand("generate", "Generate text with a trained language model");
  command
      ->add_option("checkpoint", args->checkpoint, "A checkpoint's folder, a run's folder, or that of its checkpoints")
      ->required();
  command->add_option("--prompt", args->options.prompt, "Text to continue")->required();
  command->add_option("--tokens", args->options.tokens, "How many to write")->capture_default_str();
  command->add_option("--temperature", args->options.temperature, "0: always the most likely token")
      ->capture_default_str();
  command->add_option("--seed", args->options.seed, "The same seed writes the same text")->capture_default_str();
  command
      ->add_option("--dtype", args->dtype,
                   "What layers compute in, whatever trained them: f32, or bf16, in which weights take half the "
                   "memory, and a token less time")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->capture_default_str();
  command
      ->add_option("-n,--ranks", args->ranks,
                   "Ranks on this host, each a process, that share the model, whatever ranks trained it")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command->add_option("--tp", args->tp, "Ranks that each layer's weights are cut over; by default all that --pp leaves")
      ->check(CLI::Range(1, 4096));
  command->add_option("--pp", args->pp, "Parts into which the ranks are divided, each with some of the layers")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  add_set(*command, args->set,
          "Another key of [parallel], like --set parallel.vocabulary=true or parallel.transport=ucx");
  command->add_option("--threads", args->threads, "Compute threads of each rank; 0: the cores divided by the ranks")
      ->check(CLI::Range(0, 1024));
  command->footer(
      "Examples:\n  trireme generate runs/latest/checkpoints --prompt \"The \" --tokens 200\n"
      "  trireme generate runs/latest --prompt \"The \" --dtype bf16        # half the memory, and quicker\n"
      "  trireme generate runs/latest --prompt \"The \" -n 2                # weights over 2 ranks\n"
      "  trireme generate runs/latest --prompt \"The \" -n 4 --pp 2 --tp 2");
  command->callback([=, &chosen] {
    args->seed_given = command->count("--seed") > 0;
    args->options.compute = parse_compute_type(args->dtype, "generate: --dtype");
    chosen = [=] { return run(*args); };
  });
}

}  // namespace trireme::cli
