// embedding: y[*,d] = table[ids[*], d], and embedding_grad: table[v,d] = sum over * with ids[*] = v
// of dy[*,d]; embedding_grad_rows: the same as a list of the rows that are looked up
//
// Where the vocabulary is cut, each piece looks up the ids that lie in it and gives zeros for the
// others, so the result is a partial sum. An id outside the whole vocabulary is an error on every
// piece.
#include <algorithm>
#include <vector>

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace ops {
extern const OpDef embedding_grad;
extern const OpDef embedding_grad_rows;
}  // namespace ops

namespace embedding_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& table = args.in[0];
  const TensorType& ids = args.in[1];
  require(is_floating(table.dtype) && table.shape.rank() == 2,
          "embedding: the table must be floating with 2 dimensions, [vocabulary, width] (table {})", said(table));
  require(is_index(ids.dtype), "embedding: ids must be i32 or i64 (ids {})", said(ids));
  TensorType y{table.dtype, ids.shape};
  y.shape.push_back(table.shape[1]);
  return {y};
}

std::vector<TensorType> grad_infer(const InferArgs& args) {
  const TensorType& ids = args.in[0];
  const TensorType& dy = args.in[1];
  const int64_t vocabulary = args.attrs.as<EmbeddingGradAttrs>().vocabulary;
  require(is_index(ids.dtype), "embedding_grad: ids must be i32 or i64 (ids {})", said(ids));
  require(is_floating(dy.dtype) && dy.shape.rank() >= 1 && leading(dy.shape) == ids.shape,
          "embedding_grad: dy must be floating, of the shape of ids and one dimension more (ids "
          "{}, dy {})",
          said(ids), said(dy));
  require(vocabulary > 0, "embedding_grad: vocabulary is {}; it must be above 0", vocabulary);
  return {{dy.dtype, {vocabulary, dy.shape[dy.shape.rank() - 1]}}};
}

std::vector<Tensor> grad(const GradArgs& args) {
  Tensor dtable;
  if (args.wanted[0]) dtable = embedding_grad(args.in[1], args.dout[0], args.in[0].size(0));
  return {dtable, {}};
}

std::vector<Tensor> grad_grad(const GradArgs& args) {
  Tensor ddy;
  if (args.wanted[1]) ddy = embedding(args.dout[0], args.in[0]);
  return {{}, ddy};
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("vd,*->*d", args.in, args.out, {.linear = {{0}}});
}

ShardingRule grad_shard(const TypeArgs& args) {
  return parse_rule("*,*d->vd", args.in, args.out, {.linear = {{1}}});
}

// Only the rows looked up are read.
Cost cost(const TypeArgs& args) {
  return {.flops = 0, .bytes = static_cast<double>(args.in[1].bytes()) + 2 * static_cast<double>(args.out[0].bytes())};
}

Cost grad_cost(const TypeArgs& args) {
  return {.flops = static_cast<double>(args.in[1].elements()), .bytes = tensor_bytes(args)};
}

int64_t most_rows(const TypeArgs& args) {
  return std::min(args.in[0].elements(), args.attrs.as<EmbeddingGradAttrs>().vocabulary);
}
Attrs as_rows_attrs(const Attrs& attrs, int64_t most) {
  return Attrs::of(EmbeddingGradRowsAttrs{attrs.as<EmbeddingGradAttrs>().vocabulary, most});
}

// Calls fn(token, row of the piece) for each id in rows [start, start + rows).
template <class Fn>
void each_row(const char* op, const View& ids, int64_t vocabulary, int64_t start, int64_t rows, Fn&& fn) {
  with_index(op, ids.type.dtype, [&](auto zero) {
    const auto values = ids.as<decltype(zero)>();
    for (size_t token = 0; token < values.size(); ++token) {
      const auto id = static_cast<int64_t>(values[token]);
      require(id >= 0 && id < vocabulary, "{}: id {} at position {} of a vocabulary of {}; use 0 to {}", op, id, token,
              vocabulary, vocabulary - 1);
      if (id >= start && id < start + rows) fn(token, static_cast<size_t>(id - start));
    }
  });
}

template <class T>
void look_up(const KernelArgs& args) {
  const auto table = args.in[0].as<T>();
  const auto y = args.out[0].as<T>();
  const auto width = static_cast<size_t>(args.in[0].type.shape[1]);
  std::fill(y.begin(), y.end(), store<T>(0));
  each_row("embedding", args.in[1], args.in_whole(0)[0], args.in_start(0, 0), args.in[0].type.shape[0],
           [&](size_t token, size_t row) {
             std::copy_n(table.begin() + static_cast<ptrdiff_t>(row * width), width,
                         y.begin() + static_cast<ptrdiff_t>(token * width));
           });
}

void kernel(const KernelArgs& args) {
  with_floating("embedding", args.out[0].type.dtype, [&](auto zero) { look_up<decltype(zero)>(args); });
}

// Rows are added in the order of tokens, so the sums have the same bits every time; those of bf16 in f32, and rounded
// once.
template <class T>
void scatter(const KernelArgs& args) {
  const auto dy = args.in[1].as<T>();
  const auto dtable = args.out[0].as<T>();
  const auto width = static_cast<size_t>(args.out[0].type.shape[1]);
  std::vector<Statistic<T>> sums(dtable.size(), 0);
  each_row("embedding_grad", args.in[0], args.attrs.as<EmbeddingGradAttrs>().vocabulary, args.out_start(0, 0),
           args.out[0].type.shape[0], [&](size_t token, size_t row) {
             for (size_t i = 0; i < width; ++i)
               sums[row * width + i] += static_cast<Statistic<T>>(load(dy[token * width + i]));
           });
  std::ranges::transform(sums, dtable.begin(), [](Statistic<T> sum) { return store<T>(sum); });
}

void grad_kernel(const KernelArgs& args) {
  with_floating("embedding_grad", args.out[0].type.dtype, [&](auto zero) { scatter<decltype(zero)>(args); });
}

std::vector<Example> examples() {
  return {{.in = {f32({12, 6}), i32({2, 6})}, .fill = {{}, integers(0, 12)}},
          {.in = {f32({5, 3}), i64({6})}, .fill = {{}, integers(0, 5)}}};
}

std::vector<Example> grad_examples() {
  return {{.in = {i32({2, 6}), f32({2, 6, 6})}, .attrs = Attrs::of(EmbeddingGradAttrs{12}), .fill = {integers(0, 12)}},
          {.in = {i64({6}), f32({6, 3})}, .attrs = Attrs::of(EmbeddingGradAttrs{5}), .fill = {integers(0, 5)}}};
}

}  // namespace embedding_op

namespace ops {
extern const OpDef embedding{
    {"embedding", &Attrs::parse<NoAttrs>},
    {
        .doc = "y[*,d] = table[ids[*], d]",
        .inputs = "table, ids",
        .infer = embedding_op::infer,
        .grad = embedding_op::grad,
        .shard = embedding_op::shard,
        .cost = embedding_op::cost,
        .kernel = embedding_op::kernel,
        .traits = {.reads_place = true},
        .examples = embedding_op::examples,
    },
};
extern const OpDef embedding_grad{
    {"embedding_grad", &Attrs::parse<EmbeddingGradAttrs>},
    {
        .doc = "dtable[v,d] = sum of dy[*,d] where ids[*] = v",
        .inputs = "ids, dy",
        .infer = embedding_op::grad_infer,
        .grad = embedding_op::grad_grad,
        .shard = embedding_op::grad_shard,
        .cost = embedding_op::grad_cost,
        .kernel = embedding_op::grad_kernel,
        .traits = {.reads_place = true},
        .examples = embedding_op::grad_examples,
        .as_rows = AsRowList{&embedding_grad_rows, embedding_op::most_rows, embedding_op::as_rows_attrs},
    },
};
}  // namespace ops

Tensor embedding(const Tensor& table, const Tensor& ids) {
  return apply1(ops::embedding, {table, ids});
}

Tensor embedding_grad(const Tensor& ids, const Tensor& dy, int64_t vocabulary) {
  return apply1(ops::embedding_grad, {ids, dy}, Attrs::of(EmbeddingGradAttrs{vocabulary}));
}

}  // namespace trireme
