// square_sum_rows: the sum of the squares of a table that is given as a list of rows (op/structural.h):
// y = sum over r with numbers[r] >= 0 of rows[r,*]^2
//
// Kernels add as those of square_sum do for the whole table, of which all other rows are zero, to the same bits. So the
// size of the table counts.
#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace square_sum_rows_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& numbers = args.in[0];
  const TensorType& rows = args.in[1];
  const int64_t table = args.attrs.as<SquareSumRowsAttrs>().table;
  require(numbers.dtype == DType::kI64 && numbers.shape.rank() == 1 && is_floating(rows.dtype) &&
              rows.shape.rank() >= 1 && rows.shape[0] == numbers.shape[0],
          "square_sum_rows: a list of rows is i64[n] and [n, ...], floating (numbers {}, rows {})", said(numbers),
          said(rows));
  require(table >= 1, "square_sum_rows: table is {}; it must be 1 or more", table);
  return {{statistic_type(rows.dtype), {}}};
}

Cost cost(const TypeArgs& args) {
  return {.flops = 2.0 * static_cast<double>(args.in[1].elements()), .bytes = tensor_bytes(args)};
}

template <class T>
void sum(const KernelArgs& args) {
  const auto numbers = args.in[0].as<int64_t>();
  const auto rows = args.in[1].as<T>();
  const size_t width = numbers.empty() ? 0 : rows.size() / numbers.size();
  double sum = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (numbers[i / width] >= 0) sum += load(rows[i]) * load(rows[i]);
  }
  with_floating("square_sum_rows", args.out[0].type.dtype,
                [&](auto zero) { args.out[0].as<decltype(zero)>()[0] = store<decltype(zero)>(sum); });
}

void kernel(const KernelArgs& args) {
  with_floating("square_sum_rows", args.in[1].type.dtype, [&](auto zero) { sum<decltype(zero)>(args); });
}

std::vector<Example> examples() {
  const Attrs of_six = Attrs::of(SquareSumRowsAttrs{6});
  return {{.in = {i64({1}), f32({1, 4})}, .attrs = of_six, .fill = {integers(0, 6)}},
          {.in = {i64({1}), {DType::kBF16, {1, 3, 4}}}, .attrs = of_six, .fill = {integers(0, 6)}},
          {.in = {i64({3}), f32({3})}, .attrs = of_six, .fill = {integers(-1, 0)}}};
}

}  // namespace square_sum_rows_op

namespace ops {
extern const OpDef square_sum_rows{
    {"square_sum_rows", &Attrs::parse<SquareSumRowsAttrs>},
    {
        .doc = "y = sum of x^2 of a table x that is a list of rows",
        .inputs = "numbers, rows",
        .infer = square_sum_rows_op::infer,
        .grad = Facet<GradFn>::none("stands in programs, which are made after gradients are"),
        .shard = Facet<ShardFn>::none("works on the pieces of ranks"),
        .cost = square_sum_rows_op::cost,
        .kernel = square_sum_rows_op::kernel,
        .examples = square_sum_rows_op::examples,
    },
};
}  // namespace ops

}  // namespace trireme
