#include "cli/parallel_flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>

namespace trireme::cli {

std::vector<std::string> ParallelFlags::overrides() const {
  std::vector<std::string> out;
  if (cuts_the_model()) out.push_back("parallel.mode=semi_auto_parallel");
  if (tp > 1) out.push_back(fmt::format("parallel.tp={}", tp));
  if (cp > 1) out.push_back(fmt::format("parallel.cp={}", cp));
  if (cp_algorithm != "auto") out.push_back("parallel.cp_algorithm=" + cp_algorithm);
  if (ep > 1) out.push_back(fmt::format("parallel.ep={}", ep));
  if (sp) out.push_back("parallel.sp=true");
  if (vocabulary) out.push_back("parallel.vocabulary=true");
  if (zero > 0) out.push_back(fmt::format("parallel.zero={}", zero));
  if (accumulation > 1) out.push_back(fmt::format("parallel.gradient_accumulation_steps={}", accumulation));
  return out;
}

void add_parallel_flags(CLI::App& command, ParallelFlags& flags) {
  command.add_option("--tp", flags.tp, "Ranks that each layer's weights are cut over (tensor parallel); the rest are data parallel")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--cp", flags.cp, "gpt, llama: ranks that positions are cut over (context parallel)")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_option("--cp-algorithm", flags.cp_algorithm,
                     "Attention over --cp: ulysses (an all-to-all to heads and back), ring (keys and values go around), hybrid "
                     "(both), or auto: ulysses where the heads divide, else ring")
      ->check(CLI::IsMember({"auto", "ulysses", "ring", "hybrid"}))
      ->capture_default_str();
  command.add_option("--ep", flags.ep, "gpt, llama: data parallel ranks that share a block's experts (expert parallel)")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
  command.add_flag("--sp", flags.sp, "gpt, llama: the ranks of --tp also cut the positions between the products (sequence parallel)");
  command.add_flag("--vocab-parallel", flags.vocabulary, "gpt, llama: the ranks of --tp also cut embedding, head and loss by tokens");
  command.add_option("--zero", flags.zero, "Slice over data parallel ranks 1: optimizer state, 2: and gradients, 3: and weights")
      ->check(CLI::Range(0, 3))
      ->capture_default_str();
  command.add_option("--gradient-accumulation-steps", flags.accumulation,
                     "Micro-batches that a rank's part of the batch is worked through in, one after the other: activations of one "
                     "are kept at a time, and the step stays what it is in one")
      ->check(CLI::Range(1, 4096))
      ->capture_default_str();
}

}  // namespace trireme::cli
