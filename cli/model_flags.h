// The flags that describe a built-in model and how it is trained on data made up for it, shared by the commands of `bench`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/parallel_flags.h"

namespace trireme {
struct JobConfig;
}

namespace trireme::cli {

struct ModelFlags {
  std::string model = "gpt";
  int64_t layers = 4, width = 256, heads = 4, kv_heads = 0, mlp_width = 0, seq = 256, batch = 16, vocab = 256, experts = 0, expert_groups = 1, image = 224;
  std::vector<int64_t> hidden = {512, 512};
  std::string dtype = "f32";
  std::string numerics = "fast";
  bool recompute = false;
  int64_t loss_pieces = 1;
  std::string optimizer = "adamw";
  double clip = 0;
  ParallelFlags parallel;
};

void add_model_flags(CLI::App& command, ModelFlags& flags);

// Throws kInvalidArgument for what no configuration would say of itself; `command` begins the message.
void check(const ModelFlags& flags, std::string_view command);

// Of a job of `ranks` ranks.
JobConfig config_of(const ModelFlags& flags, int64_t ranks);

}  // namespace trireme::cli
