// Programs of fewer micro-batches than a step has (repeat.h).
#pragma once

#include <vector>

#include "trireme/ir/program.h"

namespace trireme {

// Micro-batches of a program, with chunks of positions, and of another that is like it.
struct OtherCount {
  int64_t from = 1, to = 1;
  int64_t seq_chunks = 1;
};
// A part of what `from` micro-batches make as one of what `to` make, over ranks of that mesh.
PartOf among(PartOf part, const Mesh& ranks, const OtherCount& count);

// Tells for parts of a value of a program in micro-batches whether all micro-batches have the same part, as they have
// the sum over them of a chunk of positions.
class IsOfAll {
 public:
  explicit IsOfAll(const Program& program);
  bool operator()(const PartOf& part) const;

 private:
  Axes axes_;  // that what one micro-batch has differs along
};

// Whether no micro-batch reads what another one made, except sums over micro-batches, or chunks of these, that are read
// once a step.
bool are_apart(const Program& program);

// Whether a node of one micro-batch depends on one of a later one, in a program that computes them one after the other
// (in_micro_batches) and without chunks of positions: what works on all at once. No crew can end one before the next.
bool depend_on_each_other(const Program& program);

}  // namespace trireme
