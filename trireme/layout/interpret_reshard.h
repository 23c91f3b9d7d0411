// Layouts and reshard steps carried out in one process on the pieces of all ranks: the plain meaning of a layout (cut,
// gather) and of a step (apply). Tests compare with it whatever runs them for real. Piece r of a vector is what rank r
// holds.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/layout/layout.h"
#include "trireme/layout/reshard.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme {

// The pieces of a tensor under a layout. Where it is partial, the terms are drawn at random by
// `seed` (small whole numbers, one term taking the rest) such that they reduce to the whole:
// exactly, when it holds whole numbers below 2^20 (2^7 in bf16); otherwise to rounding. Throws
// kUnsupported for partial f16.
std::vector<HostTensor> cut(const HostTensor& whole, const Layout& layout, const Mesh& mesh, uint64_t seed = 1);

// The tensor that pieces stand for: partial terms reduced in the order of the ranks, parts laid in
// place. Throws kCorrupt when replicas differ in any bit, kInvalidArgument when pieces are missing
// or have another type.
HostTensor gather(const std::vector<HostTensor>& pieces, const Layout& layout, const Mesh& mesh,
                  const TensorType& whole);

// What each rank holds after a step.
std::vector<HostTensor> apply(const ReshardStep& step, const std::vector<HostTensor>& pieces, const Layout& before,
                              const TensorType& whole, const Mesh& mesh);
// After all steps.
std::vector<HostTensor> apply(const std::vector<ReshardStep>& steps, const std::vector<HostTensor>& pieces,
                              const Layout& before, const TensorType& whole, const Mesh& mesh);

// accumulator[i] = accumulator[i] op term[i]. Throws kUnsupported for f16, and for sums of bool.
void reduce_into(const View& accumulator, const View& term, Reduction reduction);

}  // namespace trireme
