// matmul, linear_weight_grad, that onto a sum, and multi_linear in f32 through gemm, in blocks or in leaves, and on
// bf16 by oneDNN or widened to f32; of one row by loops that read the matrix once.
#include <algorithm>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/leaves.h"
#include "trireme/backend/cpu/products/op_products.h"
#include "trireme/backend/cpu/products/packed_product.h"
#include "trireme/backend/cpu/products/product.h"
#include "trireme/backend/cpu/products/product_rivals.h"
#include "trireme/backend/cpu/products/row_product.h"
#include "trireme/backend/cpu/products/tiled_bf16_product.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

template <ProductFn product>
Product product_of_call(const KernelArgs& args) {
  return product(args.in[0].type.shape, args.in[1].type.shape, args.out[0].type.shape, args.attrs);
}

template <ProductFn product>
Product product_of_call(const TypeArgs& args) {
  return product(args.in[0].shape, args.in[1].shape, args.out[0].shape, args.attrs);
}

template <class T, class C = T>
Matrices<T, C> matrices_of(const KernelArgs& args) {
  return {data_of<T>(args.in[0]), data_of<T>(args.in[1]), data_of<C>(args.out[0])};
}

// A product onto a sum finds it where its result will be, unless that has a place of its own.
void put_start(const Product& p, const KernelArgs& args) {
  if (!p.onto) return;
  const float* start = data_of<float>(args.in[2]);
  auto* to = data_of<float>(args.out[0]);
  if (start != to) std::copy_n(start, p.m * p.n, to);
}

template <ProductFn product, Way way>
void run_f32(const KernelArgs& args) {
  const Product p = product_of_call<product>(args);
  put_start(p, args);
  multiply_f32(p, way, matrices_of<float>(args), args.scratch.data(), args.pool);
}

template <ProductFn product>
std::string measured_as(const TypeArgs& args) {
  return args.in[0].dtype == DType::kF32 ? measured_key(product_of_call<product>(args)) : "";
}

template <ProductFn product, Way way>
int64_t f32_bytes(const TypeArgs& args, int threads) {
  return f32_scratch(product_of_call<product>(args), way, threads);
}

template <ProductFn product>
std::string why_not_in_tiles(const TypeArgs& args) {
  std::string reason = not_all_f32(args);
  return reason.empty() ? why_no_tiles(product_of_call<product>(args)) : reason;
}

template <ProductFn product>
std::string_view quickest(const TypeArgs& args, std::span<const Cores> others) {
  return quickest_way(product_of_call<product>(args), others);
}

template <ProductFn product>
std::string why_no_row(const TypeArgs& args) {
  std::string reason = first_not_float(args);
  return reason.empty() ? not_one_row(product_of_call<product>(args)) : reason;
}

template <ProductFn product>
int64_t row_bytes(const TypeArgs& args, int) {
  return args.in[0].dtype == DType::kF32 ? 0 : row_product_scratch(product_of_call<product>(args));
}

template <ProductFn product, class T>
void run_row(const KernelArgs& args) {
  multiply_row(product_of_call<product>(args), matrices_of<T>(args), args);
}

template <ProductFn product, class C>
void run_onednn(const KernelArgs& args) {
  const Product p = product_of_call<product>(args);
  put_start(p, args);
  multiply_by_onednn(p, matrices_of<Bf16, C>(args), args);
}

template <ProductFn product, class C>
int64_t onednn_bytes(const TypeArgs& args, int threads) {
  return onednn_scratch<C>(product_of_call<product>(args), threads);
}

std::string not_bf16(const TypeArgs& args) {
  if (args.in[0].dtype == DType::kBF16) return "";
  return fmt::format("operand 0 is {}, not bf16", to_string(args.in[0]));
}

template <ProductFn product>
std::string why_not_in_bf16_tiles(const TypeArgs& args) {
  std::string reason = not_bf16(args);
  return reason.empty() ? why_no_bf16_tiles(product_of_call<product>(args)) : reason;
}

template <ProductFn product, class C>
void run_bf16_tiles(const KernelArgs& args) {
  const Product p = product_of_call<product>(args);
  put_start(p, args);
  multiply_in_bf16_tiles(p, matrices_of<Bf16, C>(args), args);
}

template <ProductFn product, class C>
int64_t bf16_tiles_bytes(const TypeArgs& args, int threads) {
  return bf16_tiles_scratch<C>(product_of_call<product>(args), threads);
}

template <ProductFn product, class C>
void run_widened(const KernelArgs& args) {
  const Product p = product_of_call<product>(args);
  put_start(p, args);
  multiply_widened(p, matrices_of<Bf16, C>(args), args);
}

template <ProductFn product, class C>
int64_t widened_bytes(const TypeArgs& args, int threads) {
  return widening_scratch<C>(product_of_call<product>(args), threads);
}

std::string no_bf16_products(const TypeArgs& args) {
  std::string reason = not_bf16(args);
  if (!reason.empty()) return reason;
  if (isa() >= Isa::kAvx512Bf16 && onednn_has(Isa::kAvx512Bf16)) return "";
  return fmt::format("{} has no products of bf16; operands are widened to f32, which takes as long as products of f32",
                     to_string(isa()));
}

// The dimension that a product sums over, and how much of it is here.
LeafDim last_of_operand(const KernelArgs& args, int dim) {
  const Shape& here = args.in[0].type.shape;
  return {.whole = args.in_whole(0)[dim], .start = args.in_start(0, dim), .size = here[dim]};
}

LeafDim terms_of_matmul(const KernelArgs& args) {
  const int rank = args.in[0].type.shape.rank();
  return last_of_operand(args, args.attrs.as<MatMulAttrs>().transpose_a ? rank - 2 : rank - 1);
}

LeafDim terms_of_weight_grad(const KernelArgs& args) {
  const LeafRows rows = leaf_rows(args, 0, args.in[0].type.shape.rank() - 1);
  return {.whole = rows.whole, .start = rows.start, .size = rows.size, .inner = rows.inner};
}

LeafDim terms_of_multi_linear(const KernelArgs& args) {
  return last_of_operand(args, args.in[0].type.shape.rank() - 1);
}

// The n of all parts of y[*,p,n].
LeafDim terms_of_multi_linear_input_grad(const KernelArgs& args) {
  const Shape& y = args.in[0].type.shape;
  LeafDim dim = last_of_operand(args, y.rank() - 1);
  dim.repeats = y[y.rank() - 2];
  dim.repeat_step = dim.size;
  return dim;
}

using TermsFn = LeafDim(const KernelArgs& args);

template <ProductFn product, TermsFn terms>
void run_leaves(const KernelArgs& args) {
  std::shared_ptr<void> own;
  std::shared_ptr<void>& state = args.state != nullptr ? *args.state : own;
  if (!state) state = std::make_shared<Terms>(terms_in_leaves(terms(args)));
  multiply_in_leaves(product_of_call<product>(args), *static_cast<const Terms*>(state.get()), matrices_of<float>(args),
                     args);
}

template <ProductFn product>
int64_t leaves_bytes(const TypeArgs& args, int threads) {
  return in_leaves_scratch(product_of_call<product>(args), threads);
}

// The ways to make the product that an op is; with C the type of its result on bf16.
template <ProductFn product>
constexpr Rivals kRivals{.key = measured_as<product>, .quickest = quickest<product>};

template <ProductFn product, Way way>
constexpr Kernel f32(std::string_view op, std::string_view name) {
  return {
      .op = op,
      .name = name,
      .why_not = way == Way::kTiles ? why_not_in_tiles<product> : not_all_f32,
      .scratch = f32_bytes<product, way>,
      .run = run_f32<product, way>,
      .bits = Bits::kShape,
      .rivals = &kRivals<product>,
  };
}
template <ProductFn product>
constexpr Kernel row(std::string_view op, std::string_view name) {
  return {
      .op = op,
      .name = name,
      .why_not = why_no_row<product>,
      .scratch = row_bytes<product>,
      .run = by_storage<run_row<product, float>, run_row<product, Bf16>>,
      .bits = Bits::kShape,
  };
}
template <ProductFn product, TermsFn terms>
constexpr Kernel leaves(std::string_view op, std::string_view name, std::string_view factor = "") {
  return {
      .op = op,
      .name = name,
      .why_not = not_all_f32,
      .scratch = leaves_bytes<product>,
      .run = run_leaves<product, terms>,
      .bits = Bits::kLeaves,
      .leaf_factor = factor,
  };
}
template <ProductFn product, class C = Bf16>
constexpr Kernel onednn(std::string_view op, std::string_view name) {
  return {
      .op = op,
      .name = name,
      .why_not = no_bf16_products,
      .scratch = onednn_bytes<product, C>,
      .run = run_onednn<product, C>,
      .bits = Bits::kShape,
  };
}
template <ProductFn product, class C = Bf16>
constexpr Kernel bf16_tiles(std::string_view op, std::string_view name) {
  return {
      .op = op,
      .name = name,
      .why_not = why_not_in_bf16_tiles<product>,
      .scratch = bf16_tiles_bytes<product, C>,
      .run = run_bf16_tiles<product, C>,
      .bits = Bits::kShape,
  };
}
template <ProductFn product, class C = Bf16>
constexpr Kernel widened(std::string_view op, std::string_view name) {
  return {
      .op = op,
      .name = name,
      .why_not = not_bf16,
      .scratch = widened_bytes<product, C>,
      .run = run_widened<product, C>,
      .bits = Bits::kShape,
  };
}

}  // namespace

std::span<const Kernel> matmul_kernels() {
  static constexpr Kernel kAll[] = {
      row<of_matmul>("matmul", "matmul.row"),
      f32<of_matmul, Way::kSgemm>("matmul", "matmul.sgemm"),
      f32<of_matmul, Way::kBlocks>("matmul", "matmul.blocks"),
      f32<of_matmul, Way::kTiles>("matmul", "matmul.tiles"),
      bf16_tiles<of_matmul>("matmul", "matmul.bf16_tiles"),
      onednn<of_matmul>("matmul", "matmul.bf16"),
      widened<of_matmul>("matmul", "matmul.widened"),
      leaves<of_matmul, terms_of_matmul>("matmul", "matmul.leaves"),
      f32<of_weight_grad, Way::kSgemm>("linear_weight_grad", "linear_weight_grad.sgemm"),
      f32<of_weight_grad, Way::kBlocks>("linear_weight_grad", "linear_weight_grad.blocks"),
      f32<of_weight_grad, Way::kTiles>("linear_weight_grad", "linear_weight_grad.tiles"),
      bf16_tiles<of_weight_grad, float>("linear_weight_grad", "linear_weight_grad.bf16_tiles"),
      onednn<of_weight_grad, float>("linear_weight_grad", "linear_weight_grad.bf16"),
      widened<of_weight_grad, float>("linear_weight_grad", "linear_weight_grad.widened"),
      leaves<of_weight_grad, terms_of_weight_grad>("linear_weight_grad", "linear_weight_grad.leaves"),
      f32<of_weight_grad_onto, Way::kSgemm>("linear_weight_grad_onto", "linear_weight_grad_onto.sgemm"),
      f32<of_weight_grad_onto, Way::kBlocks>("linear_weight_grad_onto", "linear_weight_grad_onto.blocks"),
      f32<of_weight_grad_onto, Way::kTiles>("linear_weight_grad_onto", "linear_weight_grad_onto.tiles"),
      bf16_tiles<of_weight_grad_onto, float>("linear_weight_grad_onto", "linear_weight_grad_onto.bf16_tiles"),
      onednn<of_weight_grad_onto, float>("linear_weight_grad_onto", "linear_weight_grad_onto.bf16"),
      widened<of_weight_grad_onto, float>("linear_weight_grad_onto", "linear_weight_grad_onto.widened"),
      row<of_multi_linear>("multi_linear", "multi_linear.row"),
      f32<of_multi_linear, Way::kSgemm>("multi_linear", "multi_linear.sgemm"),
      f32<of_multi_linear, Way::kBlocks>("multi_linear", "multi_linear.blocks"),
      f32<of_multi_linear, Way::kTiles>("multi_linear", "multi_linear.tiles"),
      bf16_tiles<of_multi_linear>("multi_linear", "multi_linear.bf16_tiles"),
      onednn<of_multi_linear>("multi_linear", "multi_linear.bf16"),
      widened<of_multi_linear>("multi_linear", "multi_linear.widened"),
      leaves<of_multi_linear, terms_of_multi_linear>("multi_linear", "multi_linear.leaves"),
      f32<of_multi_linear_input_grad, Way::kSgemm>("multi_linear_input_grad", "multi_linear_input_grad.sgemm"),
      f32<of_multi_linear_input_grad, Way::kBlocks>("multi_linear_input_grad", "multi_linear_input_grad.blocks"),
      f32<of_multi_linear_input_grad, Way::kTiles>("multi_linear_input_grad", "multi_linear_input_grad.tiles"),
      bf16_tiles<of_multi_linear_input_grad>("multi_linear_input_grad", "multi_linear_input_grad.bf16_tiles"),
      onednn<of_multi_linear_input_grad>("multi_linear_input_grad", "multi_linear_input_grad.bf16"),
      widened<of_multi_linear_input_grad>("multi_linear_input_grad", "multi_linear_input_grad.widened"),
      leaves<of_multi_linear_input_grad, terms_of_multi_linear_input_grad>("multi_linear_input_grad",
                                                                           "multi_linear_input_grad.leaves", "n"),
      f32<of_multi_linear_weight_grad, Way::kSgemm>("multi_linear_weight_grad", "multi_linear_weight_grad.sgemm"),
      f32<of_multi_linear_weight_grad, Way::kBlocks>("multi_linear_weight_grad", "multi_linear_weight_grad.blocks"),
      f32<of_multi_linear_weight_grad, Way::kTiles>("multi_linear_weight_grad", "multi_linear_weight_grad.tiles"),
      bf16_tiles<of_multi_linear_weight_grad, float>("multi_linear_weight_grad", "multi_linear_weight_grad.bf16_tiles"),
      onednn<of_multi_linear_weight_grad, float>("multi_linear_weight_grad", "multi_linear_weight_grad.bf16"),
      widened<of_multi_linear_weight_grad, float>("multi_linear_weight_grad", "multi_linear_weight_grad.widened"),
      leaves<of_multi_linear_weight_grad, terms_of_weight_grad>("multi_linear_weight_grad",
                                                                "multi_linear_weight_grad.leaves"),
  };
  return kAll;
}

}  // namespace trireme::cpu
