#include "trireme/backend/cpu/products/op_products.h"

#include <utility>

#include "trireme/op/op_attrs.h"

namespace trireme::cpu {

Product of_matmul(const Shape& a, const Shape& b, const Shape& y, const Attrs& record) {
  const auto& attrs = record.as<MatMulAttrs>();
  const int rank = a.rank();
  const bool batched = b.rank() > 2;
  Product p;
  p.m = y[rank - 2];
  p.n = y[rank - 1];
  p.k = attrs.transpose_a ? a[rank - 2] : a[rank - 1];
  p.transpose_a = attrs.transpose_a;
  p.transpose_b = attrs.transpose_b;
  for (int dim = 0; dim < rank - 2; ++dim) p.batch *= a[dim];
  if (!batched && !attrs.transpose_a) {
    p.m *= p.batch;  // one b for all: the batches are more rows
    p.batch = 1;
  }
  p.steps = {p.m * p.k, batched ? p.k * p.n : 0, p.m * p.n};
  return p;
}

Product of_weight_grad(const Shape& x, const Shape&, const Shape& w, const Attrs&) {
  Product p;
  p.m = w[0];
  p.n = w[1];
  p.k = p.m == 0 ? 0 : x.elements() / p.m;
  p.transpose_a = true;
  return p;
}

// Of a multi_linear's weight as well, which has a dimension more.
Product of_weight_grad_onto(const Shape& x, const Shape& y, const Shape& w, const Attrs& attrs) {
  Product p = (w.rank() == 3 ? of_multi_linear_weight_grad : of_weight_grad)(x, y, w, attrs);
  p.onto = true;
  return p;
}

// The parts of a multi_linear's weight, side by side, are one matrix.
Product of_multi_linear(const Shape&, const Shape& w, const Shape& y, const Attrs&) {
  Product p;
  p.n = w[1] * w[2];
  p.m = p.n == 0 ? 0 : y.elements() / p.n;
  p.k = w[0];
  return p;
}

Product of_multi_linear_input_grad(const Shape&, const Shape& w, const Shape& x, const Attrs&) {
  Product p;
  p.m = w[0] == 0 ? 0 : x.elements() / w[0];
  p.n = w[0];
  p.k = w[1] * w[2];
  p.transpose_b = true;
  return p;
}

Product of_multi_linear_weight_grad(const Shape& x, const Shape&, const Shape& w, const Attrs&) {
  Product p;
  p.m = w[0];
  p.n = w[1] * w[2];
  p.k = w[0] == 0 ? 0 : x.elements() / w[0];
  p.transpose_a = true;
  return p;
}

std::optional<Product> product_of(const OpDef& op, const TypeArgs& types) {
  static constexpr std::pair<std::string_view, ProductFn*> kAll[] = {
      {"matmul", of_matmul},
      {"linear_weight_grad", of_weight_grad},
      {"linear_weight_grad_onto", of_weight_grad_onto},
      {"multi_linear", of_multi_linear},
      {"multi_linear_input_grad", of_multi_linear_input_grad},
      {"multi_linear_weight_grad", of_multi_linear_weight_grad},
  };
  for (const auto& [name, product] : kAll) {
    if (name == op.name) return product(types.in[0].shape, types.in[1].shape, types.out[0].shape, types.attrs);
  }
  return std::nullopt;
}

}  // namespace trireme::cpu
