// The parts of a model from which stages are made: what stands before its blocks, the blocks, of one or a few kinds,
// and what stands after them. Equal parts are priced once.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/ir/graph.h"

namespace trireme {

struct ModelParts {
  std::vector<std::string> before, after;  // scopes
  std::string blocks;                      // "h", of "h.0", "h.1"
  std::vector<int64_t> kinds;              // of each block; numbered in the order in which they first come
  std::vector<std::string> signatures;     // of each kind: what its blocks compute

  int64_t layers() const { return static_cast<int64_t>(kinds.size()); }
  int64_t count() const { return layers() + 2; }
  int64_t kind_count() const { return static_cast<int64_t>(signatures.size()); }
  // The kind of each part: what stands before the blocks (0), a block of a kind (1 and on), or what stands after.
  std::vector<int64_t> chain() const;
  // The same, with equal parts in a row as one entry and their number.
  std::vector<std::pair<size_t, int64_t>> runs() const;
  // The value of parallel.stages for stages that begin with these parts: part 0 is what stands before the blocks, part
  // i the block i - 1. Empty for one stage.
  std::string stages_key(const std::vector<int64_t>& begins) const;
};

inline constexpr int64_t kMostKinds = 8;

// Throws kUnsupported, naming what is wrong, for models that are not so: no numbered modules, those of several
// containers, more than kMostKinds kinds of blocks.
ModelParts parts_of(const Graph& step);

}  // namespace trireme
