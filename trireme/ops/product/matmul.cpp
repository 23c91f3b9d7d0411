// matmul: y[*,m,n] = sum_k a[*,m,k] * b[*,k,n]
//
// Leading dimensions `*` are batches: equal in a and b, or absent from b, which then serves every batch. The
// transposes exchange the last two dimensions of an operand as it is stored.
#include "trireme/base/said.h"
#include "trireme/op/op_attrs.h"
#include "trireme/ops/ops.h"

namespace trireme {
namespace matmul_op {

struct Sizes {
  int64_t batch, m, k, n;
};

Sizes sizes_of(const TensorType& a, const TensorType& b, const MatMulAttrs& attrs) {
  const int ra = a.shape.rank();
  const int rb = b.shape.rank();
  Sizes s{1, a.shape[ra - 2], a.shape[ra - 1], b.shape[rb - 1]};
  if (attrs.transpose_a) std::swap(s.m, s.k);
  if (attrs.transpose_b) s.n = b.shape[rb - 2];
  for (int dim = 0; dim < ra - 2; ++dim) s.batch *= a.shape[dim];
  return s;
}

std::vector<TensorType> infer(const InferArgs& args) {
  const auto& attrs = args.attrs.as<MatMulAttrs>();
  const TensorType& a = args.in[0];
  const TensorType& b = args.in[1];
  const int ra = a.shape.rank();
  const int rb = b.shape.rank();
  require(ra >= 2 && rb >= 2, "matmul: operands must have 2 dimensions or more (a {}, b {})", said(a), said(b));
  require(a.dtype == b.dtype && is_floating(a.dtype), "matmul: operands must be of one floating type (a {}, b {})",
          said(a), said(b));
  require(rb == 2 || rb == ra, "matmul: b must have 2 dimensions or as many as a (a {}, b {})", said(a), said(b));
  require(rb > 2 || ra == 2 || !attrs.transpose_a,
          "matmul: a batched a cannot be transposed against a b without batches (a {}, b {}); transpose it first",
          said(a), said(b));
  for (int dim = 0; rb > 2 && dim < ra - 2; ++dim) {
    require(a.shape[dim] == b.shape[dim], "matmul: batch sizes differ: a[{}]={} but b[{}]={} (a {}, b {})", dim,
            a.shape[dim], dim, b.shape[dim], said(a), said(b));
  }
  const int a_inner = attrs.transpose_a ? ra - 2 : ra - 1;
  const int b_inner = attrs.transpose_b ? rb - 1 : rb - 2;
  require(a.shape[a_inner] == b.shape[b_inner],
          "matmul: inner sizes differ: a[{}]={} but b[{}]={}; they must be equal (a {}, b {})", a_inner,
          a.shape[a_inner], b_inner, b.shape[b_inner], said(a), said(b));
  const Sizes s = sizes_of(a, b, attrs);
  TensorType y = a;
  y.shape[ra - 2] = s.m;
  y.shape[ra - 1] = s.n;
  return {y};
}

// With y = op(a) op(b): da = dy op(b)^T and db = op(a)^T dy, each transposed back if its operand was. A b without
// batches sums over them: its gradient is linear_weight_grad's.
std::vector<Tensor> grad(const GradArgs& args) {
  const auto& attrs = args.attrs.as<MatMulAttrs>();
  const Tensor& a = args.in[0];
  const Tensor& b = args.in[1];
  const Tensor& dy = args.dout[0];
  Tensor da, db;
  if (args.wanted[0]) {
    da = attrs.transpose_a ? matmul(b, dy, attrs.transpose_b, true) : matmul(dy, b, false, !attrs.transpose_b);
  }
  if (args.wanted[1]) {
    if (b.rank() == 2 && !attrs.transpose_a) {
      db = attrs.transpose_b ? linear_weight_grad(dy, a) : linear_weight_grad(a, dy);
    } else {
      db = attrs.transpose_b ? matmul(dy, a, true, attrs.transpose_a) : matmul(a, dy, !attrs.transpose_a, false);
    }
  }
  return {da, db};
}

ShardingRule shard(const TypeArgs& args) {
  const auto& attrs = args.attrs.as<MatMulAttrs>();
  const bool batched = args.in[1].shape.rank() > 2;
  const std::string text = std::string(attrs.transpose_a ? "*km," : "*mk,") + (batched ? "*" : "") +
                           (attrs.transpose_b ? "nk" : "kn") + "->*mn";
  return parse_rule(text, args.in, args.out, {.linear = {{0}, {1}}});
}

Cost cost(const TypeArgs& args) {
  const Sizes s = sizes_of(args.in[0], args.in[1], args.attrs.as<MatMulAttrs>());
  return {.flops = 2.0 * static_cast<double>(s.batch * s.m) * static_cast<double>(s.k * s.n),
          .bytes = tensor_bytes(args)};
}

// Each element is the sum of its terms in their order. Those of several columns grow together: a term of theirs lies
// side by side in b, or else within a few lines of memory that the next terms find in the cache.
template <class T, class Sum>
void multiply(const KernelArgs& args) {
  constexpr int64_t kTogether = 64;
  const auto& attrs = args.attrs.as<MatMulAttrs>();
  const Sizes s = sizes_of(args.in[0].type, args.in[1].type, attrs);
  const int64_t b_step = args.in[1].type.shape.rank() > 2 ? s.k * s.n : 0;
  const int64_t a_term = attrs.transpose_a ? s.m : 1, b_term = attrs.transpose_b ? 1 : s.n;
  const int64_t a_row = attrs.transpose_a ? 1 : s.k, b_column = attrs.transpose_b ? s.k : 1;
  T* y = args.out[0].as<T>().data();
  for (int64_t batch = 0; batch < s.batch; ++batch) {
    const T* const a_of_batch = args.in[0].as<T>().data() + batch * s.m * s.k;
    const T* const b_of_batch = args.in[1].as<T>().data() + batch * b_step;
    for (int64_t i = 0; i < s.m; ++i) {
      const T* const a = a_of_batch + i * a_row;
      for (int64_t first = 0; first < s.n; first += kTogether) {
        const int64_t columns = std::min(kTogether, s.n - first);
        Sum sums[kTogether] = {};
        for (int64_t p = 0; p < s.k; ++p) {
          const auto x = static_cast<Sum>(a[p * a_term]);
          const T* const b = b_of_batch + p * b_term + first * b_column;
          for (int64_t j = 0; j < columns; ++j) sums[j] += x * static_cast<Sum>(b[j * b_column]);
        }
        for (int64_t j = 0; j < columns; ++j) *y++ = static_cast<T>(sums[j]);
      }
    }
  }
}

void kernel(const KernelArgs& args) {
  switch (args.out[0].type.dtype) {
    case DType::kF32:
      return multiply<float, double>(args);
    case DType::kF64:
      return multiply<double, double>(args);
    case DType::kBF16:
      return multiply<BFloat16, float>(args);
    default:
      fail(ErrorKind::kUnsupported, "matmul: no kernel for {}", to_string(args.out[0].type.dtype));
  }
}

std::vector<Example> examples() {
  const auto f32 = [](std::initializer_list<int64_t> s) { return TensorType{DType::kF32, Shape(s)}; };
  return {{.in = {f32({4, 6}), f32({6, 8})}, .attrs = Attrs::of(MatMulAttrs{})},
          {.in = {f32({6, 4}), f32({8, 6})}, .attrs = Attrs::of(MatMulAttrs{true, true})},
          {.in = {f32({2, 4, 6}), f32({6, 8})}, .attrs = Attrs::of(MatMulAttrs{})},
          {.in = {f32({2, 4, 6}), f32({8, 6})}, .attrs = Attrs::of(MatMulAttrs{false, true})},
          {.in = {f32({2, 6, 4, 2}), f32({2, 6, 2, 3})}, .attrs = Attrs::of(MatMulAttrs{})},
          {.in = {f32({2, 3, 4}), f32({2, 3, 6})}, .attrs = Attrs::of(MatMulAttrs{true, false})}};
}

}  // namespace matmul_op

namespace ops {
extern const OpDef matmul{
    {"matmul", &Attrs::parse<MatMulAttrs>},
    {
        .doc = "y[*,m,n] = sum_k a[*,m,k] * b[*,k,n]",
        .inputs = "a, b",
        .infer = matmul_op::infer,
        .grad = matmul_op::grad,
        .shard = matmul_op::shard,
        .cost = matmul_op::cost,
        .kernel = matmul_op::kernel,
        .examples = matmul_op::examples,
    },
};
}  // namespace ops

Tensor matmul(const Tensor& a, const Tensor& b, bool transpose_a, bool transpose_b) {
  return apply1(ops::matmul, {a, b}, Attrs::of(MatMulAttrs{transpose_a, transpose_b}));
}

}  // namespace trireme
