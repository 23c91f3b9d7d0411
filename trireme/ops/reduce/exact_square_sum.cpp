// exact_square_sum: digits of sum_i x_i^2;  total_of_digits: their value
//
// A sum whose bits do not depend on the order or the grouping of its terms, for norms over tensors
// that are cut in any way. Each square is exact in f64 (48 bits) and is taken apart on fixed grids
// 2^g, one digit a grid, the finest part dropped (below 2^-120, where |x| < 2^-60). A digit is a
// whole number of at most 18 bits times its grid, so sums of up to 2^35 digits are exact in f64, in
// any order; the digits of the pieces of a tensor, of several tensors and of ranks are therefore
// simply added. |x| >= 2^48 counts as infinite. (Binned summation on a fixed grid: Demmel and
// Nguyen, "Fast Reproducible Floating-Point Summation", ARITH 2013.)
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "trireme/base/said.h"
#include "trireme/op/exact_sum.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace exact_square_sum_op {

constexpr auto kOneType = "square sums are taken of f32 tensors";

std::vector<TensorType> infer_square_sum(const InferArgs& args) {
  require(args.in[0].dtype == DType::kF32, "exact_square_sum: {}; found x {}", kOneType, said(args.in[0]));
  require(args.in[0].elements() <= kMostExactTerms,
          "exact_square_sum: sums of more than {} squares are not exact (x {})", +kMostExactTerms, said(args.in[0]));
  return {{DType::kF64, {kSumDigits}}};
}

ShardingRule shard_square_sum(const TypeArgs& args) {
  return parse_rule("*->.", args.in, args.out, {.zeros_add_nothing = "*"});
}

Cost cost_square_sum(const TypeArgs& args) {
  return {.flops = (1.0 + 4 * kSumDigits) * static_cast<double>(args.in[0].elements()), .bytes = tensor_bytes(args)};
}

void kernel_square_sum(const KernelArgs& args) {
  std::array<double, kSumDigits> sums{};
  for (const float x : args.in[0].as<float>()) {
    const double square = static_cast<double>(x) * static_cast<double>(x);
    double rest = square < kSumLimit || std::isnan(square) ? square : std::numeric_limits<double>::infinity();
    for (size_t digit = 0; digit < kSumDigits; ++digit) {
      const double part = (rest + kSumGrids[digit]) - kSumGrids[digit];
      sums[digit] += part;
      rest -= part;
    }
  }
  std::copy(sums.begin(), sums.end(), args.out[0].as<double>().begin());
}

std::vector<TensorType> infer_total(const InferArgs& args) {
  const TensorType wanted{DType::kF64, {kSumDigits}};
  require(args.in[0] == wanted, "total_of_digits: the operand is {}; digits are {}", said(args.in[0]), said(wanted));
  return {{DType::kF32, {}}};
}

ShardingRule shard_total(const TypeArgs& args) {
  return parse_rule(".->", args.in, args.out);
}

Cost cost_total(const TypeArgs& args) {
  return {.flops = 8.0 * kSumDigits, .bytes = tensor_bytes(args)};
}

// Moves what is too large for a digit to the next coarser one: each but the first is then below
// that one's unit, and the digits of a value are the same however its terms were grouped.
void carry(std::array<double, kSumDigits>& sums) {
  for (size_t digit = kSumDigits - 1; digit > 0; --digit) {
    const double unit = grid_unit(digit - 1);
    const double part = std::floor(sums[digit] / unit) * unit;
    sums[digit - 1] += part;
    sums[digit] -= part;
  }
}

// Infinite or not a number where the first digit is.
double value_of(std::array<double, kSumDigits> sums) {
  if (!std::isfinite(sums[0])) return sums[0];
  carry(sums);
  double total = 0;
  for (const double digit : sums) total += digit;
  return total;
}

void kernel_total(const KernelArgs& args) {
  std::array<double, kSumDigits> sums{};
  const auto in = args.in[0].as<double>();
  std::copy(in.begin(), in.end(), sums.begin());
  args.out[0].as<float>()[0] = static_cast<float>(value_of(sums));
}

std::vector<Example> examples_square_sum() {
  return {{.in = {f32({4, 6})}}, {.in = {f32({})}}, {.in = {f32({6, 1})}, .fill = {uniform(-1e9, 1e9)}}};
}

std::vector<Example> examples_total() {
  return {{.in = {{DType::kF64, {kSumDigits}}}, .fill = {integers(0, 9)}}};
}

constexpr auto kNotInALoss = "it measures gradients, and no loss depends on it";

}  // namespace exact_square_sum_op

namespace ops {
extern const OpDef exact_square_sum{
    {"exact_square_sum", &Attrs::parse<NoAttrs>},
    {
        .doc = "y = digits of sum_i x_i^2, exact on a fixed grid",
        .inputs = "x",
        .infer = exact_square_sum_op::infer_square_sum,
        .grad = Facet<GradFn>::none(exact_square_sum_op::kNotInALoss),
        .shard = exact_square_sum_op::shard_square_sum,
        .cost = exact_square_sum_op::cost_square_sum,
        .kernel = exact_square_sum_op::kernel_square_sum,
        .traits = {.sums_exactly = true},
        .examples = exact_square_sum_op::examples_square_sum,
    },
};
extern const OpDef total_of_digits{
    {"total_of_digits", &Attrs::parse<NoAttrs>},
    {
        .doc = "y = sum of the digits",
        .inputs = "digits",
        .infer = exact_square_sum_op::infer_total,
        .grad = Facet<GradFn>::none(exact_square_sum_op::kNotInALoss),
        .shard = exact_square_sum_op::shard_total,
        .cost = exact_square_sum_op::cost_total,
        .kernel = exact_square_sum_op::kernel_total,
        .examples = exact_square_sum_op::examples_total,
    },
};
}  // namespace ops

Tensor exact_square_sum(const Tensor& x) {
  return apply1(ops::exact_square_sum, {x});
}
Tensor total_of_digits(const Tensor& digits) {
  return apply1(ops::total_of_digits, {digits});
}

}  // namespace trireme
