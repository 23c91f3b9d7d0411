// gather_rows: y[b,n,:] = table[b, ids[b,n], :], and scatter_rows: table[b,v,:] = sum over n with
// ids[b,n] = v of x[b,n,:]. Each batch has a table of its own, so batches may be cut; embedding has
// one for all.
#include <algorithm>

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace ops {
extern const OpDef gather_rows;
extern const OpDef scatter_rows;
}  // namespace ops

namespace batch_rows_op {

std::vector<TensorType> gather_infer(const InferArgs& args) {
  const TensorType& table = args.in[0];
  const TensorType& ids = args.in[1];
  require(is_floating(table.dtype) && table.shape.rank() == 3 && is_index(ids.dtype) && ids.shape.rank() == 2 &&
              ids.shape[0] == table.shape[0],
          "gather_rows: the table must be floating [b,v,d] and ids i32 or i64 [b,n] (table {}, ids {})", said(table),
          said(ids));
  return {{table.dtype, {table.shape[0], ids.shape[1], table.shape[2]}}};
}

std::vector<TensorType> scatter_infer(const InferArgs& args) {
  const TensorType& ids = args.in[0];
  const TensorType& x = args.in[1];
  const int64_t rows = args.attrs.as<ScatterRowsAttrs>().rows;
  require(is_index(ids.dtype) && ids.shape.rank() == 2 && is_floating(x.dtype) && x.shape.rank() == 3 &&
              leading(x.shape) == ids.shape,
          "scatter_rows: ids must be i32 or i64 [b,n] and x floating [b,n,d] (ids {}, x {})", said(ids), said(x));
  require(rows > 0, "scatter_rows: {} rows; there must be 1 or more", rows);
  return {{x.dtype, {x.shape[0], rows, x.shape[2]}}};
}

std::vector<Tensor> gather_grad(const GradArgs& args) {
  Tensor dtable;
  if (args.wanted[0]) dtable = scatter_rows(args.in[1], args.dout[0], args.in[0].size(1));
  return {dtable, {}};
}

std::vector<Tensor> scatter_grad(const GradArgs& args) {
  Tensor dx;
  if (args.wanted[1]) dx = gather_rows(args.dout[0], args.in[0]);
  return {{}, dx};
}

ShardingRule gather_shard(const TypeArgs& args) {
  return parse_rule("bv!d,bn->bnd", args.in, args.out, {.linear = {{0}}});
}

ShardingRule scatter_shard(const TypeArgs& args) {
  return parse_rule("bn,bnd->bv!d", args.in, args.out, {.linear = {{1}}});
}

// Only the rows looked up are read.
Cost gather_cost(const TypeArgs& args) {
  return {.flops = 0, .bytes = static_cast<double>(args.in[1].bytes()) + 2 * static_cast<double>(args.out[0].bytes())};
}

Cost scatter_cost(const TypeArgs& args) {
  return {.flops = static_cast<double>(args.in[1].elements()), .bytes = tensor_bytes(args)};
}

// Calls fn(first element of the table's row, first element of the position's row).
template <class Fn>
void each_row(const char* op, const View& ids, const Shape& table, Fn&& fn) {
  with_index(op, ids.type.dtype, [&](auto zero) {
    const auto values = ids.as<decltype(zero)>();
    const int64_t positions = ids.type.shape[1];
    for (int64_t at = 0; at < ids.elements(); ++at) {
      const auto id = static_cast<int64_t>(values[static_cast<size_t>(at)]);
      require(id >= 0 && id < table[1], "{}: id {} at position {} of {} rows; use 0 to {}", op, id, at % positions,
              table[1], table[1] - 1);
      fn(static_cast<size_t>((at / positions * table[1] + id) * table[2]), static_cast<size_t>(at * table[2]));
    }
  });
}

template <class T>
void gather(const KernelArgs& args) {
  const auto table = args.in[0].as<T>();
  const auto y = args.out[0].as<T>();
  const Shape& shape = args.in[0].type.shape;
  each_row("gather_rows", args.in[1], shape, [&](size_t row, size_t position) {
    std::copy_n(table.begin() + static_cast<ptrdiff_t>(row), shape[2], y.begin() + static_cast<ptrdiff_t>(position));
  });
}

void gather_kernel(const KernelArgs& args) {
  with_floating("gather_rows", args.out[0].type.dtype, [&](auto zero) { gather<decltype(zero)>(args); });
}

// Rows are added in the order of positions, so the sums have the same bits every time.
template <class T>
void scatter(const KernelArgs& args) {
  const auto x = args.in[1].as<T>();
  const auto table = args.out[0].as<T>();
  const Shape& shape = args.out[0].type.shape;
  std::vector<double> sums(table.size());
  each_row("scatter_rows", args.in[0], shape, [&](size_t row, size_t position) {
    for (size_t i = 0; i < static_cast<size_t>(shape[2]); ++i) sums[row + i] += load(x[position + i]);
  });
  std::transform(sums.begin(), sums.end(), table.begin(), store<T>);
}

void scatter_kernel(const KernelArgs& args) {
  with_floating("scatter_rows", args.out[0].type.dtype, [&](auto zero) { scatter<decltype(zero)>(args); });
}

std::vector<Example> gather_examples() {
  return {{.in = {f32({6, 5, 4}), i32({6, 3})}, .fill = {{}, integers(0, 5)}},
          {.in = {f32({2, 3, 2}), i64({2, 6})}, .fill = {{}, integers(0, 3)}}};
}

std::vector<Example> scatter_examples() {
  return {{.in = {i32({6, 3}), f32({6, 3, 4})}, .attrs = Attrs::of(ScatterRowsAttrs{5}), .fill = {integers(0, 5)}},
          {.in = {i64({2, 6}), f32({2, 6, 2})}, .attrs = Attrs::of(ScatterRowsAttrs{3}), .fill = {integers(0, 3)}}};
}

}  // namespace batch_rows_op

namespace ops {
extern const OpDef gather_rows{
    {"gather_rows", &Attrs::parse<NoAttrs>},
    {
        .doc = "y[b,n,:] = table[b, ids[b,n], :]",
        .inputs = "table, ids",
        .infer = batch_rows_op::gather_infer,
        .grad = batch_rows_op::gather_grad,
        .shard = batch_rows_op::gather_shard,
        .cost = batch_rows_op::gather_cost,
        .kernel = batch_rows_op::gather_kernel,
        .examples = batch_rows_op::gather_examples,
    },
};
extern const OpDef scatter_rows{
    {"scatter_rows", &Attrs::parse<ScatterRowsAttrs>},
    {
        .doc = "table[b,v,:] = sum of x[b,n,:] where ids[b,n] = v",
        .inputs = "ids, x",
        .infer = batch_rows_op::scatter_infer,
        .grad = batch_rows_op::scatter_grad,
        .shard = batch_rows_op::scatter_shard,
        .cost = batch_rows_op::scatter_cost,
        .kernel = batch_rows_op::scatter_kernel,
        .examples = batch_rows_op::scatter_examples,
    },
};
}  // namespace ops

Tensor gather_rows(const Tensor& table, const Tensor& ids) {
  return apply1(ops::gather_rows, {table, ids});
}

Tensor scatter_rows(const Tensor& ids, const Tensor& x, int64_t rows) {
  return apply1(ops::scatter_rows, {ids, x}, Attrs::of(ScatterRowsAttrs{rows}));
}

}  // namespace trireme
