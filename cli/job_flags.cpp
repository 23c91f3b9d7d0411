#include "cli/job_flags.h"

#include <CLI/CLI.hpp>

#include <algorithm>

#include "cli/parallel_flags.h"
#include "trireme/base/log.h"
#include "trireme/train/job/config.h"

namespace trireme::cli {

void log_remarks(const JobConfig& config) {
  for (const std::string& remark : remarks(config)) TRIREME_LOG(kWarn, "cli", "configuration: {}", remark);
}

JobConfig JobFlags::read() const {
  std::vector<std::string> overrides = keys.overrides();
  overrides.insert(overrides.end(), set.begin(), set.end());
  JobConfig out = read_config(config, overrides);
  const bool says_mode =
      std::ranges::any_of(set, [](const std::string& key) { return key.starts_with("parallel.mode="); });
  if (!says_mode) ask_for_mode(keys, out);
  return out;
}

int JobFlags::ranks_in_all() const {
  if (!nodes.given()) return ranks;
  const launch::NodeOptions node = nodes.options();
  return node.world > 0 ? node.world : std::max(node.nodes, 1) * ranks;
}

void add_job_flags(CLI::App& command, JobFlags& flags) {
  command.add_option("config", flags.config, "The job's TOML file; `trireme help config` lists its keys")->required();
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
  command.add_option("--set", flags.set, "Replace a key of the configuration, e.g. --set train.lr=0.001")
      ->allow_extra_args(false);
  flags.keys.add_text(command, "--transport", "parallel.transport",
                      "auto, shm, ucx or mpi: how ranks exchange tensors");
  flags.keys.add_text(command, "--dtype", "train.dtype", "f32 or bf16: what layers compute in");
  flags.keys.add_text(command, "--numerics", "train.numerics",
                      "fast, or invariant: the same bits however the job is cut");
  flags.keys.add_text(command, "--device", "train.device",
                      "cpu, guarded[:SEED], or described:FILE, a machine's file, to plan for it");
  flags.keys.add_text(command, "--recompute", "train.recompute", recompute_help());
  flags.keys
      .add_whole(command, "--loss-pieces", "train.loss_pieces",
                 "The last product and the loss are computed in this many pieces of the positions; only one piece's "
                 "logits are kept at a time")
      ->check(CLI::Range(1, 4096));
  add_parallel_flags(command, flags.keys);
  add_node_flags(command, flags.nodes);
  flags.keys.add_real(command, "--save-every-minutes", "train.save_every_minutes",
                      "Minutes between checkpoints, besides train.save_every");
  flags.keys.add_switch(command, "--keep-best,!--no-keep-best", "train.keep_best",
                        "Save and keep the checkpoint with the best validation so far");
  flags.keys.add_whole(command, "--patience", "train.patience",
                       "End the run after this many validations in a row without an improvement; 0: never");
  flags.keys.add_switch(
      command, "--merged-save,!--no-merged-save", "train.merged_save",
      "With each checkpoint, also write its parameters as whole tensors to model.safetensors in --out");
  flags.keys.add_text(command, "--trace", "train.trace",
                      "File for a trace of a few steps, all ranks and lanes, for ui.perfetto.dev or chrome://tracing");
  flags.keys.add_whole(command, "--trace-steps", "train.trace_steps",
                       "With --trace: how many steps, from the run's second on; 3 unless given");
  flags.keys.add_whole(command, "--sample-tokens", "train.sample_tokens",
                       "Tokens of sample text that a language model over bytes writes at the end; 0: none");
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

}  // namespace trireme::cli
