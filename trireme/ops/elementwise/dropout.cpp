// dropout: y = x / (1-p) where u >= p, else 0, with u = uniform01((seed, stream), global element
// index, step)
//
// The mask is a function of the element's place in the whole tensor, so every cut gives the same
// one, and the gradient is the same op on dy: the mask is drawn again, never kept.
#include "trireme/base/rng.h"
#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace ops {
extern const OpDef dropout;
}  // namespace ops

namespace dropout_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& x = args.in[0];
  const double p = args.attrs.as<DropoutAttrs>().p;
  require(is_floating(x.dtype), "dropout: x must be floating (x {})", said(x));
  require(args.in[1] == i64({}), "dropout: step is {}; it must be i64[]", said(args.in[1]));
  require(p >= 0 && p < 1, "dropout: p is {}; it must be at least 0 and below 1", p);
  return {x};
}

std::vector<Tensor> grad(const GradArgs& args) {
  return {apply1(ops::dropout, {args.dout[0], args.in[1]}, args.attrs), {}};
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("*,->*", args.in, args.out, {.linear = {{0}}});
}

// Ten rounds of four multiplications and additions for four elements, and the scaling.
Cost cost(const TypeArgs& args) {
  return {.flops = 12.0 * static_cast<double>(args.in[0].elements()), .bytes = tensor_bytes(args)};
}

// Calls fn(first, size, place) for each line of the piece along its last dimension: `place` is the
// row-major index of its first element in the whole tensor.
template <class Fn>
void each_line(const KernelArgs& args, Fn&& fn) {
  const Shape& shape = args.out[0].type.shape;
  const auto strides = args.out_whole(0).strides();
  const int rank = shape.rank();
  const int64_t size = rank == 0 ? 1 : shape[rank - 1];
  for (int64_t first = 0; first < shape.elements(); first += size) {
    int64_t place = 0;
    int64_t rest = first;
    for (int dim = rank - 1; dim >= 0; --dim) {
      place += (rest % shape[dim] + args.out_start(0, dim)) * strides[static_cast<size_t>(dim)];
      rest /= shape[dim];
    }
    fn(static_cast<size_t>(first), static_cast<size_t>(size), static_cast<uint64_t>(place));
  }
}

template <class T>
void drop(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<DropoutAttrs>();
  const Stream stream{static_cast<uint64_t>(attrs.seed), static_cast<uint64_t>(attrs.stream)};
  const auto step = static_cast<uint64_t>(args.in[1].as<int64_t>()[0]);
  const auto x = args.in[0].as<T>();
  const auto y = args.out[0].as<T>();
  const double keep_scale = 1 / (1 - attrs.p);
  std::vector<float> u;
  each_line(args, [&](size_t first, size_t size, uint64_t place) {
    u.resize(size);
    fill_uniform01(stream, place, step, u);
    for (size_t i = 0; i < size; ++i) {
      const bool kept = static_cast<double>(u[i]) >= attrs.p;
      y[first + i] = store<T>(kept ? load(x[first + i]) * keep_scale : 0);
    }
  });
}

void kernel(const KernelArgs& args) {
  with_floating("dropout", args.out[0].type.dtype, [&](auto zero) { drop<decltype(zero)>(args); });
}

std::vector<Example> examples() {
  return {{.in = {f32({6, 12}), i64({})},
           .attrs = Attrs::of(DropoutAttrs{.p = 0.25, .seed = 7, .stream = 11}),
           .fill = {{}, integers(1, 9)}},
          {.in = {f32({2, 3, 5}), i64({})}, .attrs = Attrs::of(DropoutAttrs{.p = 0.5, .seed = -1, .stream = 3})},
          {.in = {f32({}), i64({})}, .attrs = Attrs::of(DropoutAttrs{})}};
}

}  // namespace dropout_op

namespace ops {
extern const OpDef dropout{
    {"dropout", &Attrs::parse<DropoutAttrs>},
    {
        .doc = "y = x / (1-p) where u >= p, else 0; u of (seed, stream, global index, step)",
        .inputs = "x, step",
        .infer = dropout_op::infer,
        .grad = dropout_op::grad,
        .shard = dropout_op::shard,
        .cost = dropout_op::cost,
        .kernel = dropout_op::kernel,
        .traits = {.reads_place = true},
        .may_overwrite = {{0, 0}},
        .examples = dropout_op::examples,
    },
};
}  // namespace ops

Tensor dropout(const Tensor& x, const Tensor& step, double p, int64_t seed, int64_t stream) {
  return apply1(ops::dropout, {x, step}, Attrs::of(DropoutAttrs{p, seed, stream}));
}

}  // namespace trireme
