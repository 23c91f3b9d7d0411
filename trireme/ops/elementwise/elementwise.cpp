#include "trireme/ops/elementwise/elementwise.h"

#include <algorithm>

#include "trireme/base/said.h"

namespace trireme {

Shape broadcast_shape(std::string_view op, std::span<const TensorType> in) {
  int rank = 0;
  for (const TensorType& type : in) rank = std::max(rank, type.shape.rank());
  Shape out;
  for (int dim = 0; dim < rank; ++dim) out.push_back(1);
  for (size_t i = 0; i < in.size(); ++i) {
    const Shape& shape = in[i].shape;
    for (int dim = 0; dim < shape.rank(); ++dim) {
      int64_t& size = out[dim + rank - shape.rank()];
      if (size == 1) size = shape[dim];
      require(shape[dim] == size || shape[dim] == 1,
              "{}: size {} of dimension {} of operand {} ({}) does not broadcast to {}; sizes must "
              "be equal or 1 "
              "counted from the last dimension",
              op, shape[dim], dim, i, said(in[i]), size);
    }
  }
  return out;
}

ShardingRule broadcast_rule(const TypeArgs& args, std::vector<std::vector<int>> linear) {
  const Shape& result = args.out[0].shape;
  std::string text;
  for (size_t i = 0; i < args.in.size(); ++i) {
    const TensorType& type = args.in[i];
    if (i > 0) text += ',';
    const int missing = result.rank() - type.shape.rank();
    for (int dim = 0; dim < type.shape.rank(); ++dim) {
      const bool whole = type.shape[dim] == result[dim + missing];
      text += whole ? static_cast<char>('a' + dim + missing) : '.';
    }
  }
  text += "->";
  for (int dim = 0; dim < result.rank(); ++dim) text += static_cast<char>('a' + dim);
  return parse_rule(text, args.in, args.out, {.linear = std::move(linear)});
}

std::array<int64_t, Shape::kMaxRank> broadcast_strides(const Shape& operand, const Shape& result) {
  std::array<int64_t, Shape::kMaxRank> out{};
  const auto strides = operand.strides();
  const int missing = result.rank() - operand.rank();
  for (int dim = 0; dim < operand.rank(); ++dim) {
    if (operand[dim] != 1) out[static_cast<size_t>(dim + missing)] = strides[static_cast<size_t>(dim)];
  }
  return out;
}

}  // namespace trireme
