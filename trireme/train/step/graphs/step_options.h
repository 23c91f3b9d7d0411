// What a step's graph depends on besides model, loss, batch and optimizer. One struct carries it from the job's file or
// a program to the graph.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/base/keys.h"
#include "trireme/nn/parameter_rules.h"
#include "trireme/op/numerics.h"
#include "trireme/tensor/dtype.h"

namespace trireme {

struct StepOptions {
  std::string name = "model";
  uint64_t seed = 1;          // of dropout; of a training, also of starting values and the order of samples
  double gradient_scale = 1;  // multiplies every gradient, before clipping
  int64_t summed_parts = 1;   // what is trained and reported is the sum of the losses of so many equal parts of the
                              // batch, instead of the mean over it
  double clip_norm = 0;       // gradients are scaled so that their global norm is at most this; 0: not at all
  // What single parameters are trained by instead of the optimizer's numbers, and which are not: "*.bias = weight_decay
  // 0", "wte.* = frozen" (nn/parameter_rules.h).
  std::vector<ParameterRule> groups = {};
  DType compute = DType::kF32;  // f32 or bf16: what layers compute in (nn/module.h). Parameters, state and loss are f32
  // Of graphs that only predict: parameters that layers read in `compute` alone are inputs of that type.
  bool parameters_in_compute_type = false;
  Numerics numerics = Numerics::kFast;  // of the plan; with kInvariant the gradients' norm is summed exactly
  bool accuracy = false;  // evaluation: also how many elements of the last field the largest output hits, which are
                          // classes
};

// The section [train].
std::vector<Key> keys_of(StepOptions& options);

}  // namespace trireme
