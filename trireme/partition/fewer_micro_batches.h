// Programs of fewer micro-batches than a step has (repeat.h).
#pragma once

#include "trireme/ir/program.h"

namespace trireme {

// Micro-batches of a program, with chunks of positions, and of another that is like it.
struct OtherCount {
  int64_t from = 1, to = 1;
  int64_t seq_chunks = 1;
};
// A part of what `from` micro-batches make as one of what `to` make, over ranks of that mesh.
PartOf among(PartOf part, const Mesh& ranks, const OtherCount& count);

// Whether no micro-batch reads what another made, but for sums over them that are read once a step.
bool are_apart(const Program& program);

}  // namespace trireme
