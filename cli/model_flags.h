// The flags that describe a built-in model and how it is trained on synthetic data, shared by the commands of `bench`.
#pragma once

#include <string>
#include <string_view>

#include "cli/key_flags.h"

namespace trireme {
struct JobConfig;
}

namespace trireme::cli {

struct ModelFlags {
  std::string model = "gpt";
  int64_t batch = 16;  // of one data parallel rank
  int64_t image = 0;   // height and width; 0: as the model's
  KeyFlags keys;
};

// Of the model alone: --model, its sizes and --seq; the others stay at their defaults.
void add_shape_flags(CLI::App& command, ModelFlags& flags);
void add_model_flags(CLI::App& command, ModelFlags& flags);

// Of a job of `ranks` ranks. Throws kInvalidArgument for what no configuration would say of itself; `command` begins
// the message.
JobConfig config_of(const ModelFlags& flags, int64_t ranks, std::string_view command);

}  // namespace trireme::cli
