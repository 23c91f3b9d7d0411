// Random models of text: what can be cut in chunks of positions, and in many micro-batches. Parts that treat each
// position by itself, or attend to earlier ones, with skips from early parts to late ones and weights that several
// share.
#pragma once

#include "tests/equivalence/draw.h"
#include "trireme/ir/graph.h"

namespace trireme::equivalence {

struct TextSizes {
  int64_t samples = 1, chunks = 1;  // numbers that the samples of a batch and their positions are multiples of
  int64_t most_parts = 4;           // after the first; rounding adds up over them
  int64_t least_parts = 1;
  DType narrow = DType::kF32;  // or kF64, where sums over a large batch would leave too few digits to compare
  bool dropout = false;        // whether some parts may have it
  bool places = false;         // whether a learned row for each position is added to the first part
  bool shares_table = false;   // those are rows of the tokens' table
};

// Its inputs are named as those of a random graph (random_graph.h).
Graph random_text_graph(Draw& draw, const TextSizes& sizes);

}  // namespace trireme::equivalence
