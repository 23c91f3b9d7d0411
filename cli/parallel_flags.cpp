#include "cli/parallel_flags.h"

#include <algorithm>
#include <array>

#include <CLI/CLI.hpp>

#include "trireme/train/job/config.h"

namespace trireme::cli {

void ask_for_mode(const KeyFlags& flags, JobConfig& config) {
  constexpr std::array kCuts{"parallel.tp", "parallel.cp", "parallel.ep", "parallel.sp", "parallel.vocabulary"};
  const bool cuts = std::ranges::any_of(kCuts, [&](const char* key) {
    const std::string* value = flags.given(key);
    return value != nullptr && *value != "1" && *value != "false";
  });
  if (cuts && config.parallel.mode == JobConfig().parallel.mode) config.parallel.mode = "semi_auto_parallel";
}

const char* recompute_help() {
  return "What the backward pass computes again instead of finding it kept: none, selective (activation functions and "
         "norms), full (all that is inside a block), or N, the first N blocks";
}

void add_parallel_flags(CLI::App& command, KeyFlags& flags) {
  flags
      .add_whole(command, "--tp", "parallel.tp",
                 "Ranks that each layer's weights are cut over (tensor parallel); the rest are data parallel")
      ->check(CLI::Range(1, 4096));
  flags.add_whole(command, "--cp", "parallel.cp", "gpt, llama: ranks that positions are cut over (context parallel)")
      ->check(CLI::Range(1, 4096));
  flags
      .add_text(command, "--cp-algorithm", "parallel.cp_algorithm",
                "Attention over --cp: ulysses (an all-to-all to heads and back), ring (keys and values travel around), "
                "hybrid (both), or auto: ulysses where the heads divide, otherwise ring")
      ->check(CLI::IsMember({"auto", "ulysses", "ring", "hybrid"}));
  flags
      .add_whole(command, "--ulysses-degree", "parallel.ulysses_degree",
                 "With --cp-algorithm hybrid: ranks that share the heads, while the others form rings; 0: the largest "
                 "number that divides --cp and the heads")
      ->check(CLI::Range(0, 4096));
  flags
      .add_whole(command, "--ep", "parallel.ep",
                 "gpt, llama: data parallel ranks that share a block's experts (expert parallel)")
      ->check(CLI::Range(1, 4096));
  flags.add_switch(command, "--sp,!--no-sp", "parallel.sp",
                   "gpt, llama: the ranks of --tp also cut the positions between the products (sequence parallel)");
  flags.add_switch(command, "--vocab-parallel,!--no-vocab-parallel", "parallel.vocabulary",
                   "gpt, llama: the ranks of --tp also cut embedding, head and loss by tokens");
  flags
      .add_whole(command, "--zero", "parallel.zero",
                 "ZeRO: slice over data parallel ranks 1: the optimizer's state, 2: also gradients, 3: also weights; "
                 "0: nothing")
      ->check(CLI::Range(0, 3));
  flags
      .add_whole(
          command, "--pp", "parallel.pp",
          "Equal parts of the ranks that the model's stages are given to (pipeline parallel); --tp, --cp and --ep "
          "cut each part")
      ->check(CLI::Range(1, 4096));
  flags.add_text(
      command, "--schedule", "parallel.schedule",
      "With --pp: in which order stages work on micro-batches, a name (`trireme timetable --list`) or a file; "
      "1f1b if not given");
  flags
      .add_whole(command, "--virtual-stages", "parallel.virtual_stages",
                 "With --pp: stages of each part of the ranks, for schedules that take several")
      ->check(CLI::Range(1, 4096));
  flags
      .add_whole(
          command, "--micro-batches,--gradient-accumulation-steps", "parallel.gradient_accumulation_steps",
          "Micro-batches that a rank's part of the batch is divided into and computed in, one after the other: only "
          "one's activations are kept at a time (in a pipeline a few), and the step stays that of the whole batch")
      ->check(CLI::Range(1, 4096));
}

}  // namespace trireme::cli
