// A case: a graph on whole tensors, a strategy that cuts it, and how both are run. It is text that
// reads back equal, so a case that fails can be kept and run again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/op/numerics.h"
#include "trireme/plan/strategy.h"

namespace trireme::equivalence {

struct Case {
  Graph graph;
  Strategy strategy;
  uint32_t seed = 0;                      // of the values of the inputs
  int steps = 1;                          // parameters and state are carried from one to the next
  int64_t bucket_bytes = 0;               // 0: chosen by the model
  std::vector<int64_t> bucket_ends = {};  // instead: after how many gradients
  bool passes = true;                     // whether the partitioned program goes through the passes
  bool all_to_all = true;                 // whether reshards may exchange pieces
  std::string transport = "threads";      // or shm, or ucx, which is shm where it is not built in
  int threads = 1;                        // of a rank
  bool recompute = false;
  int64_t loss_pieces = 1;
  bool is_saved = false;  // the strategy is read from its text
  std::string sums =
      "own";  // narrow sums over ranks of gradients: in f32 ("own"), as they are ("narrow"), or all in f32 ("f32")
  // kInvariant: every output has the bits of one device's, which are those of any legal case of its graph.
  Numerics numerics = Numerics::kFast;
};

// The case of a seed: a random graph, mesh and strategy. One in eight is kInvariant.
Case random_case(uint32_t seed);

// As the ranks compute it, before micro-batches and passes.
Program partitioned(const Case& test);

std::string to_string(const Case& test);
Case parse_case(std::string_view text);

}  // namespace trireme::equivalence
