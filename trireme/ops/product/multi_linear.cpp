// multi_linear: y[*,p,n] = sum_k x[*,k] w[k,p,n], and its two gradients
//
// Several products of one x in one: the query, key and value of attention (p = 3). In memory it is the product with a
// weight [k, p n]; with the parts a dimension of their own, n can be cut so that every rank has its heads of each.
//   multi_linear_input_grad   x[*,k]   = sum_pn y[*,p,n] w[k,p,n]
//   multi_linear_weight_grad  w[k,p,n] = sum_*  x[*,k] y[*,p,n]
// The three are products of two of the same three tensors, so the gradient of each is the other two. The weight's
// gradient of bf16 operands is f32. linear_weight_grad_onto adds it to a sum.
#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace ops {
extern const OpDef multi_linear;
extern const OpDef multi_linear_input_grad;
extern const OpDef multi_linear_weight_grad;
extern const OpDef linear_weight_grad_onto;
}  // namespace ops

namespace multi_linear_op {

Tensor input_grad(const Tensor& y, const Tensor& w) {
  return apply1(ops::multi_linear_input_grad, {y, w});
}
Tensor weight_grad(const Tensor& x, const Tensor& y) {
  return apply1(ops::multi_linear_weight_grad, {x, y});
}

void check_types(std::string_view op, const InferArgs& args, bool ranks_fit, std::string_view wanted) {
  const TensorType& a = args.in[0];
  const TensorType& b = args.in[1];
  require(a.dtype == b.dtype && is_floating(a.dtype), "{}: operands must be of one floating type ({} and {})", op,
          said(a), said(b));
  require(ranks_fit, "{}: operands must be {} ({} and {})", op, wanted, said(a), said(b));
}

Shape rows_of(const Shape& shape, int last) {
  Shape out;
  for (int dim = 0; dim < shape.rank() - last; ++dim) out.push_back(shape[dim]);
  return out;
}

TensorType with(DType dtype, Shape rows, std::initializer_list<int64_t> last) {
  for (const int64_t size : last) rows.push_back(size);
  return {dtype, rows};
}

std::vector<TensorType> infer_forward(const InferArgs& args) {
  const Shape& x = args.in[0].shape;
  const Shape& w = args.in[1].shape;
  check_types("multi_linear", args, x.rank() >= 1 && w.rank() == 3 && x[x.rank() - 1] == w[0], "x[*,k] and w[k,p,n]");
  return {with(args.in[0].dtype, rows_of(x, 1), {w[1], w[2]})};
}

std::vector<TensorType> infer_input_grad(const InferArgs& args) {
  const Shape& y = args.in[0].shape;
  const Shape& w = args.in[1].shape;
  check_types("multi_linear_input_grad", args,
              y.rank() >= 2 && w.rank() == 3 && y[y.rank() - 2] == w[1] && y[y.rank() - 1] == w[2],
              "y[*,p,n] and w[k,p,n]");
  return {with(args.in[0].dtype, rows_of(y, 2), {w[0]})};
}

std::vector<TensorType> infer_weight_grad(const InferArgs& args) {
  const Shape& x = args.in[0].shape;
  const Shape& y = args.in[1].shape;
  check_types("multi_linear_weight_grad", args,
              x.rank() >= 1 && y.rank() == x.rank() + 1 && rows_of(x, 1) == rows_of(y, 2), "x[*,k] and y[*,p,n]");
  return {{statistic_type(args.in[0].dtype), {x[x.rank() - 1], y[y.rank() - 2], y[y.rank() - 1]}}};
}

std::vector<Tensor> grad_forward(const GradArgs& args) {
  const Tensor& dy = args.dout[0];
  return {args.wanted[0] ? input_grad(dy, args.in[1]) : Tensor(),
          args.wanted[1] ? weight_grad(args.in[0], dy) : Tensor()};
}
std::vector<Tensor> grad_input_grad(const GradArgs& args) {
  const Tensor& dx = args.dout[0];
  return {args.wanted[0] ? multi_linear(dx, args.in[1]) : Tensor(),
          args.wanted[1] ? weight_grad(dx, args.in[0]) : Tensor()};
}
std::vector<Tensor> grad_weight_grad(const GradArgs& args) {
  const Tensor dw = cast(args.dout[0], args.in[0].dtype());
  return {args.wanted[0] ? input_grad(args.in[1], dw) : Tensor(),
          args.wanted[1] ? multi_linear(args.in[0], dw) : Tensor()};
}

template <const char* kText>
ShardingRule shard(const TypeArgs& args) {
  return parse_rule(kText, args.in, args.out, {.linear = {{0}, {1}}});
}
constexpr char kForward[] = "*k,kpn->*pn";
constexpr char kInputGrad[] = "*pn,kpn->*k";
constexpr char kWeightGrad[] = "*k,*pn->kpn";

// rows, k and p n of the x, y and w among the types.
struct Sizes {
  size_t rows, k, n;
};
Sizes sizes_of(const Shape& x, const Shape& w) {
  return {static_cast<size_t>(rows_of(x, 1).elements()), static_cast<size_t>(w[0]), static_cast<size_t>(w[1] * w[2])};
}

Cost cost_of(const TypeArgs& args, const Shape& x, const Shape& w) {
  const Sizes s = sizes_of(x, w);
  return {.flops = 2.0 * static_cast<double>(s.rows) * static_cast<double>(s.k * s.n), .bytes = tensor_bytes(args)};
}
Cost cost_forward(const TypeArgs& args) {
  return cost_of(args, args.in[0].shape, args.in[1].shape);
}
Cost cost_input_grad(const TypeArgs& args) {
  return cost_of(args, args.out[0].shape, args.in[1].shape);
}
Cost cost_weight_grad(const TypeArgs& args) {
  return cost_of(args, args.in[0].shape, args.out[0].shape);
}

// c[i,j] = sum_l a(i,l) b(l,j), each read through a function of its two indices.
template <class T, class A, class B>
void multiply(size_t m, size_t n, size_t k, const A& a, const B& b, std::span<T> c) {
  for (size_t i = 0; i < m; ++i) {
    for (size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (size_t l = 0; l < k; ++l) sum += load(a(i, l)) * load(b(l, j));
      c[i * n + j] = store<T>(sum);
    }
  }
}

void kernel_forward(const KernelArgs& args) {
  const Sizes s = sizes_of(args.in[0].type.shape, args.in[1].type.shape);
  with_floating("multi_linear", args.out[0].type.dtype, [&]<class T>(T) {
    const auto x = args.in[0].as<T>();
    const auto w = args.in[1].as<T>();
    multiply(
        s.rows, s.n, s.k, [&](size_t i, size_t l) { return x[i * s.k + l]; },
        [&](size_t l, size_t j) { return w[l * s.n + j]; }, args.out[0].as<T>());
  });
}
void kernel_input_grad(const KernelArgs& args) {
  const Sizes s = sizes_of(args.out[0].type.shape, args.in[1].type.shape);
  with_floating("multi_linear_input_grad", args.out[0].type.dtype, [&]<class T>(T) {
    const auto y = args.in[0].as<T>();
    const auto w = args.in[1].as<T>();
    multiply(
        s.rows, s.k, s.n, [&](size_t i, size_t l) { return y[i * s.n + l]; },
        [&](size_t l, size_t j) { return w[j * s.n + l]; }, args.out[0].as<T>());
  });
}
void kernel_weight_grad(const KernelArgs& args) {
  const Sizes s = sizes_of(args.in[0].type.shape, args.out[0].type.shape);
  with_floating("multi_linear_weight_grad", args.in[0].type.dtype, [&]<class T>(T) {
    const auto x = args.in[0].as<T>();
    const auto y = args.in[1].as<T>();
    multiply(
        s.k, s.n, s.rows, [&](size_t i, size_t l) { return x[l * s.k + i]; },
        [&](size_t l, size_t j) { return y[l * s.n + j]; }, args.out[0].as<Statistic<T>>());
  });
}

std::vector<Example> examples_forward() {
  return {{.in = {f32({2, 4}), f32({4, 3, 6})}}, {.in = {f32({2, 3, 4}), f32({4, 2, 5})}}};
}
std::vector<Example> examples_input_grad() {
  return {{.in = {f32({2, 3, 6}), f32({4, 3, 6})}}};
}
std::vector<Example> examples_weight_grad() {
  return {{.in = {f32({2, 3, 4}), f32({2, 3, 2, 6})}},
          {.in = {{DType::kBF16, {2, 3, 4}}, {DType::kBF16, {2, 3, 2, 6}}}}};
}

}  // namespace multi_linear_op

namespace ops {
extern const OpDef multi_linear{
    {"multi_linear", &Attrs::parse<NoAttrs>},
    {
        .doc = "y[*,p,n] = sum_k x[*,k] w[k,p,n]",
        .inputs = "x, w",
        .infer = multi_linear_op::infer_forward,
        .grad = multi_linear_op::grad_forward,
        .shard = multi_linear_op::shard<multi_linear_op::kForward>,
        .cost = multi_linear_op::cost_forward,
        .kernel = multi_linear_op::kernel_forward,
        .examples = multi_linear_op::examples_forward,
    },
};
extern const OpDef multi_linear_input_grad{
    {"multi_linear_input_grad", &Attrs::parse<NoAttrs>},
    {
        .doc = "x[*,k] = sum_pn y[*,p,n] w[k,p,n]",
        .inputs = "y, w",
        .infer = multi_linear_op::infer_input_grad,
        .grad = multi_linear_op::grad_input_grad,
        .shard = multi_linear_op::shard<multi_linear_op::kInputGrad>,
        .cost = multi_linear_op::cost_input_grad,
        .kernel = multi_linear_op::kernel_input_grad,
        .examples = multi_linear_op::examples_input_grad,
    },
};
extern const OpDef multi_linear_weight_grad{
    {"multi_linear_weight_grad", &Attrs::parse<NoAttrs>},
    {
        .doc = "w[k,p,n] = sum_* x[*,k] y[*,p,n]",
        .inputs = "x, y",
        .infer = multi_linear_op::infer_weight_grad,
        .grad = multi_linear_op::grad_weight_grad,
        .shard = multi_linear_op::shard<multi_linear_op::kWeightGrad>,
        .cost = multi_linear_op::cost_weight_grad,
        .kernel = multi_linear_op::kernel_weight_grad,
        .examples = multi_linear_op::examples_weight_grad,
        .onto = &linear_weight_grad_onto,
    },
};
}  // namespace ops

Tensor multi_linear(const Tensor& x, const Tensor& w) {
  return apply1(ops::multi_linear, {x, w});
}

}  // namespace trireme
