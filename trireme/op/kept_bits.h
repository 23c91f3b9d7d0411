// What a kernel promises of the bits of its results, however its op is cut. A device says it of each kernel that it
// chooses (backend/device.h); numerics = "invariant" accepts the cuts that the promise covers
// (train/step/compile/invariant.h).
#pragma once

#include <cstdint>
#include <string_view>

#include "trireme/op/sharding_rule.h"

namespace trireme {

// What the bits of an element of a result depend on, beside the operands' elements it is computed from.
enum class Bits {
  kElement,  // nothing else, as long as no dimension it sums over is cut
  kLeaves,   // nothing else, also where one of the dimensions it sums over is cut, between leaves
  kExact,    // nothing else, whatever is cut: its sums are exact
  kShape,    // the sizes of the piece
};

// A dimension that is summed over has so many leaves, the first elements of which are i * size / kLeaves. Their sums
// are added in one binary tree, neighbours first, which the sum over ranks goes on with (comm/reduce.h). So a rank may
// hold a power of two of leaves, and up to so many ranks a part of the sum.
inline constexpr int64_t kLeaves = 16;

struct KeptBits {
  Bits bits = Bits::kShape;  // what is not claimed is not kept
  // The factor of the op's rule that kLeaves speaks of; "": the first summed over that is longer than one element.
  std::string_view leaf_factor = "";
};

// Whether a factor of the op's rule may be cut and the bits stay: any that stands in every result; of those that a
// result sums over, that of the leaves under kLeaves and any under kExact.
bool invariant_over(const KeptBits& kept, const ShardingRule& rule, int factor);

}  // namespace trireme
