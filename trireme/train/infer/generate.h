// Text from a trained language model, one byte after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "trireme/base/thread_pool.h"
#include "trireme/tensor/view.h"
#include "trireme/train/infer/next_token.h"
#include "trireme/train/job/config.h"

namespace trireme {

struct GenerateOptions {
  std::string prompt = "\n";
  int64_t tokens = 200;
  double temperature = 0.8;  // 0 takes the likeliest byte each time
  uint64_t seed = 1;
  DType compute = DType::kF32;  // f32 or bf16: what layers compute in, and keep parameters in that they read
  double most_seconds = 0;      // after which no further byte is begun, but for the first; 0: none
};

// `parameter` gives the memory of a whole parameter by name; `each` gets every byte as it is made. Returns the prompt
// and what the model wrote: each byte from one token and what the model keeps of those before (infer/next_token.h),
// where it can and they are as many as it was trained on at most. Throws kInvalidArgument when the configuration's
// model is no language model over bytes. `compute` must be f32, as such parameters are.
std::string generate(const JobConfig& config, const std::function<View(std::string_view)>& parameter, ThreadPool* pool,
                     const GenerateOptions& options, const std::function<void(char)>& each = {});

// The same by a checkpoint's parameters on all ranks of the world, cut as the configuration says (NextTokens).
// Collective; all ranks get the same text. `most_seconds` must be 0, for each rank has a clock of its own.
std::string generate(const JobConfig& config, const ckpt::Reader& checkpoint, comm::World* world, ThreadPool* pool,
                     const GenerateOptions& options, const std::function<void(char)>& each = {});

}  // namespace trireme
