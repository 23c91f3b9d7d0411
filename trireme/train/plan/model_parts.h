// The parts of a model that stages are made of: what stands before its blocks, the blocks, which are alike, and what
// stands after them. What is alike is priced once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme {

struct ModelParts {
  std::vector<std::string> before, after;  // scopes
  std::string blocks;                      // "h", of "h.0", "h.1"
  int64_t layers = 0;

  int64_t count() const { return layers + 2; }
  // parallel.stages, for stages that begin with these parts: part 0 is what stands before, part i the block i - 1.
  // Empty for one stage.
  std::string stages_key(const std::vector<int64_t>& begins) const;
};

// Throws kUnsupported, naming what is unlike, for models that are not so: no numbered modules, several runs of them,
// blocks that compute other things than the first.
ModelParts parts_of(const Graph& step);

}  // namespace trireme
