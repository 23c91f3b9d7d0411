#include "tests/equivalence/with_shape.h"

#include <algorithm>

#include "trireme/ops/ops.h"

namespace trireme::equivalence {
namespace {

// Each dimension sliced or padded.
Tensor boxed(Tensor x, const Shape& shape, Draw& draw) {
  std::vector<int64_t> after;
  for (int dim = 0; dim < shape.rank(); ++dim) {
    const int64_t spare = x.size(dim) - shape[dim];
    if (spare > 0) x = slice(x, dim, draw.below(spare + 1), shape[dim]);
    after.push_back(std::max<int64_t>(-spare, 0));
  }
  const bool grows = std::ranges::any_of(after, [](int64_t n) { return n > 0; });
  return grows ? pad(x, std::vector<int64_t>(after.size(), 0), after, 0.5) : x;
}

}  // namespace

Tensor with_shape(const Tensor& x, const Shape& shape, Draw& draw) {
  if (x.shape() == shape) return x;
  const int64_t have = x.shape().elements();
  const int64_t want = shape.elements();
  if (have == want) return reshape(x, shape);
  if (x.rank() == shape.rank()) return boxed(x, shape, draw);
  if (want % have == 0 && draw.chance(60))
    return reshape(broadcast_to(reshape(x, {1, have}), {want / have, have}), shape);
  if (have % want == 0 && draw.chance(60)) return reshape(mean(reshape(x, {have / want, want}), {0}), shape);
  return reshape(boxed(reshape(x, {have}), {want}, draw), shape);
}

}  // namespace trireme::equivalence
