// Layers that ask for their cuts: Megatron-LM's building blocks (Shoeybi et al., 2019) as requests for layouts. They
// compute what the plain layers compute; communication follows from the layouts. The mesh (Parallel::mesh) must have
// the axes they name; an axis of one rank cuts nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/nn/layers.h"

namespace trireme::nn {

// The axes of the mesh that a layer is cut over.
struct ParallelAxes {
  std::string weight = "tp";
  std::string batch = "dp";  // of the first dimension of x
};

// The weight [out,in] cut by columns of the map, dimension `out`; x is whole in its last dimension, y is cut there.
class ColumnLinear : public Linear {
 public:
  ColumnLinear(int64_t in, int64_t out, LinearOptions options = {}, ParallelAxes axes = {});
  Tensor forward(const Tensor& x) override;

 private:
  bool in_out_;
  ParallelAxes axes_;
};

// The weight cut by rows, dimension `in`; x is cut in its last dimension, as ColumnLinear leaves it, and y is a sum
// over the ranks: an all-reduce, or, with `scatter`, a reduce-scatter along positions, dimension 1 of x[b,s,in].
struct RowOptions {
  bool scatter = false;
};
class RowLinear : public Linear {
 public:
  RowLinear(int64_t in, int64_t out, LinearOptions options = {}, ParallelAxes axes = {}, RowOptions row = {});
  Tensor forward(const Tensor& x) override;

 private:
  bool in_out_;
  ParallelAxes axes_;
  RowOptions row_;
};

// The table cut by tokens; every rank looks up the tokens it has, and the results are summed. The loss for logits that
// are cut by tokens too is cross_entropy_in_parts.
class VocabularyEmbedding : public Embedding {
 public:
  VocabularyEmbedding(int64_t vocabulary, int64_t width, EmbeddingOptions options = {}, ParallelAxes axes = {});
  Tensor forward(const Tensor& ids) override;

 private:
  ParallelAxes axes_;
};

// A table in parts of unequal sizes: part k has rows[k] tokens and lies on rank k of the axis `weight`, if that has as
// many ranks. Parts are padded to the longest, so the weight is [parts * longest, width] and cuts stay even; rows
// between the parts are never read. Token t is row t of the whole table, whatever the parts.
class SplitEmbedding : public VocabularyEmbedding {
 public:
  SplitEmbedding(std::vector<int64_t> rows, int64_t width, EmbeddingOptions options = {}, ParallelAxes axes = {});
  Tensor forward(const Tensor& ids) override;

 private:
  std::vector<int64_t> rows_;
};

}  // namespace trireme::nn
