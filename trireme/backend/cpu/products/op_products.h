// Which matrix product an op computes, for each op that is one.
#pragma once

#include <optional>

#include "trireme/backend/cpu/products/product.h"

namespace trireme::cpu {

// Of the shapes of its operands and its result.
using ProductFn = Product(const Shape& a, const Shape& b, const Shape& c, const Attrs& attrs);

ProductFn of_matmul, of_weight_grad, of_weight_grad_onto;
ProductFn of_multi_linear, of_multi_linear_input_grad, of_multi_linear_weight_grad;

// By the op's name; nothing for one that multiplies no matrices.
std::optional<Product> product_of(const OpDef& op, const TypeArgs& types);

}  // namespace trireme::cpu
