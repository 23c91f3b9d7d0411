// reshape: y holds x's elements in the same order under another shape; squeeze and unsqueeze are
// made of it.
#include <cstring>
#include <numeric>

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace reshape_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<ReshapeAttrs>();
  const TensorType& x = args.in[0];
  require(x.elements() == attrs.shape.elements(), "reshape: x {} has {} elements, shape {} has {}; they must be equal",
          said(x), x.elements(), said(attrs.shape), attrs.shape.elements());
  return {{x.dtype, attrs.shape}};
}

std::vector<Tensor> grad(const GradArgs& args) {
  return {reshape(args.dout[0], args.in[0].shape())};
}

// Splits both shapes, most significant dimensions first, into the factors they share: [b, hd] ->
// [b, h, d] gives b(hd)->bhd. Where sizes have no common refinement, as in [6] -> [4], they share
// what divides both, and the rest is a factor that cannot be cut.
class CommonFactors {
 public:
  CommonFactors(const Shape& x, const Shape& y) : in_{x, {}}, out_{y, {}} {
    in_.dims.resize(static_cast<size_t>(x.rank()));
    out_.dims.resize(static_cast<size_t>(y.rank()));
    while (in_.open() && out_.open()) {
      const int64_t common = std::gcd(in_.left, out_.left);
      if (common > 1) {
        share(common);
      } else {
        skip_unequal();
      }
    }
    rule_.in = {std::move(in_.dims)};
    rule_.out = {std::move(out_.dims)};
    rule_.linear = {{0}};
  }
  ShardingRule take() { return std::move(rule_); }

 private:
  // One of the two shapes, at a dimension of which `left` is still to be split.
  struct Side {
    Shape shape;
    DimFactors dims;
    int dim = -1;
    int64_t left = 1;

    // Moves on to the next dimension that has something left.
    bool open() {
      while (left == 1 && dim + 1 < shape.rank()) left = shape[++dim];
      return left > 1;
    }
    FactorsOfDim& factors() { return dims[static_cast<size_t>(dim)]; }
  };

  int add(int64_t size, bool can_cut) {
    rule_.factors.push_back({std::string(1, static_cast<char>('a' + rule_.factors.size())), size, can_cut});
    return static_cast<int>(rule_.factors.size()) - 1;
  }
  void share(int64_t size) {
    const int factor = add(size, true);
    in_.factors().push_back(factor);
    out_.factors().push_back(factor);
    in_.left /= size;
    out_.left /= size;
  }
  // Goes past the dimensions up to where the elements below are equally many on both sides again.
  void skip_unequal() {
    int64_t in = close(in_);
    int64_t out = close(out_);
    while (in != out) {
      Side& behind = in < out ? in_ : out_;
      behind.open();
      (in < out ? in : out) *= close(behind);
    }
  }
  int64_t close(Side& side) {
    const int64_t left = side.left;
    side.factors().push_back(add(left, false));
    side.left = 1;
    return left;
  }

  Side in_, out_;
  ShardingRule rule_;
};

ShardingRule shard(const TypeArgs& args) {
  if (args.in[0].elements() == 0) return replicate_rule(args.in, args.out);
  return CommonFactors(args.in[0].shape, args.out[0].shape).take();
}

Cost cost(const TypeArgs&) {
  return {};
}

void kernel(const KernelArgs& args) {
  if (args.out[0].data == args.in[0].data) return;
  std::memcpy(args.out[0].data, args.in[0].data, static_cast<size_t>(args.out[0].bytes()));
}

std::vector<Example> examples() {
  const auto to = [](std::initializer_list<int64_t> shape) { return Attrs::of(ReshapeAttrs{Shape(shape)}); };
  return {{{f32({2, 3, 24})}, to({2, 3, 6, 4})},
          {{f32({2, 6, 4})}, to({12, 4})},
          {{f32({6, 4})}, to({4, 6})},
          {{f32({2, 1, 6})}, to({2, 6})},
          {{f32({6})}, to({1, 6, 1})},
          {{f32({2, 6, 5})}, to({4, 15})},
          {{f32({1})}, to({})},
          {{i64({2, 12})}, to({2, 2, 3, 2})}};
}

}  // namespace reshape_op

namespace ops {
extern const OpDef reshape{
    {"reshape", &Attrs::parse<ReshapeAttrs>},
    {
        .doc = "y = x under another shape",
        .inputs = "x",
        .infer = reshape_op::infer,
        .grad = reshape_op::grad,
        .shard = reshape_op::shard,
        .cost = reshape_op::cost,
        .kernel = reshape_op::kernel,
        .traits = {.zero_cost_view = true},
        .may_overwrite = {{0, 0}},
        .examples = reshape_op::examples,
    },
};
}  // namespace ops

Tensor reshape(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return apply1(ops::reshape, {x}, Attrs::of(ReshapeAttrs{shape}));
}

Tensor reshape(const Tensor& x, const std::vector<int64_t>& sizes) {
  int64_t known = 1;
  int unknown = -1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != -1) {
      known *= sizes[i];
      continue;
    }
    require(unknown < 0, "reshape: sizes {} and {} are both -1; only one can follow from the others", unknown, i);
    unknown = static_cast<int>(i);
  }
  std::vector<int64_t> settled = sizes;
  if (unknown >= 0) {
    require(known > 0 && x.type().elements() % known == 0,
            "reshape: the {} elements of x {} do not divide by {}, the product of the sizes given", x.type().elements(),
            said(x.type()), known);
    settled[static_cast<size_t>(unknown)] = x.type().elements() / known;
  }
  return reshape(x, Shape(std::span<const int64_t>(settled)));
}

Tensor reshape(const Tensor& x, std::initializer_list<int64_t> sizes) {
  return reshape(x, std::vector<int64_t>(sizes));
}

Tensor unsqueeze(const Tensor& x, int dim) {
  require(dim >= -x.rank() - 1 && dim <= x.rank(), "unsqueeze: no place {} in x {}; places are {} to {}", dim,
          said(x.type()), -x.rank() - 1, x.rank());
  if (dim < 0) dim += x.rank() + 1;
  std::vector<int64_t> sizes(x.shape().begin(), x.shape().end());
  sizes.insert(sizes.begin() + dim, 1);
  return reshape(x, Shape(std::span<const int64_t>(sizes)));
}

Tensor squeeze(const Tensor& x, int dim) {
  require(dim >= -x.rank() && dim < x.rank() && x.size(dim) == 1, "squeeze: dimension {} of x {} does not have size 1",
          dim, said(x.type()));
  if (dim < 0) dim += x.rank();
  std::vector<int64_t> sizes(x.shape().begin(), x.shape().end());
  sizes.erase(sizes.begin() + dim);
  return reshape(x, Shape(std::span<const int64_t>(sizes)));
}

}  // namespace trireme
