// embedding_grad_rows: the gradient of a table as a list of the rows that are looked up (op/structural.h):
// numbers[r] = the r-th smallest of ids, each once; rows[r,d] = sum over * with ids[*] = numbers[r] of dy[*,d].
//
// The numbers are those of the whole table, also where a rank has a piece of it.
#include <algorithm>
#include <numeric>

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace embedding_grad_rows_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType& ids = args.in[0];
  const TensorType& dy = args.in[1];
  const auto& attrs = args.attrs.as<EmbeddingGradRowsAttrs>();
  require(is_index(ids.dtype), "embedding_grad_rows: ids must be i32 or i64 (ids {})", said(ids));
  require(is_floating(dy.dtype) && dy.shape.rank() >= 1 && leading(dy.shape) == ids.shape,
          "embedding_grad_rows: dy must be floating, of the shape of ids and one dimension more (ids {}, dy {})",
          said(ids), said(dy));
  require(attrs.vocabulary > 0 && attrs.rows >= std::min(ids.elements(), attrs.vocabulary) && attrs.rows > 0,
          "embedding_grad_rows: {} rows for ids {} of a vocabulary of {}; the list must have room for as many as ids "
          "can name",
          attrs.rows, said(ids), attrs.vocabulary);
  return {{DType::kI64, {attrs.rows}}, {dy.dtype, {attrs.rows, dy.shape[dy.shape.rank() - 1]}}};
}

Cost cost(const TypeArgs& args) {
  return {.flops = static_cast<double>(args.in[1].elements()), .bytes = tensor_bytes(args)};
}

// Added as embedding_grad adds them: in the order of tokens, those of bf16 in f32, and rounded once.
template <class T>
void list_rows(const KernelArgs& args, std::span<const int64_t> ids) {
  const auto numbers = args.out[0].as<int64_t>();
  const auto dy = args.in[1].as<T>();
  const auto rows = args.out[1].as<T>();
  const auto width = static_cast<size_t>(args.out[1].type.shape[1]);
  std::fill(numbers.begin(), numbers.end(), -1);
  std::vector<Statistic<T>> sums(rows.size(), 0);
  std::vector<size_t> order(ids.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t token) { return ids[token]; });
  size_t row = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && ids[order[i]] != ids[order[i - 1]]) ++row;
    numbers[row] = ids[order[i]];
    for (size_t k = 0; k < width; ++k)
      sums[row * width + k] += static_cast<Statistic<T>>(load(dy[order[i] * width + k]));
  }
  std::ranges::transform(sums, rows.begin(), [](Statistic<T> sum) { return store<T>(sum); });
}

void kernel(const KernelArgs& args) {
  const int64_t vocabulary = args.attrs.as<EmbeddingGradRowsAttrs>().vocabulary;
  std::vector<int64_t> ids;
  with_index("embedding_grad_rows", args.in[0].type.dtype, [&](auto zero) {
    for (const auto id : args.in[0].as<decltype(zero)>()) ids.push_back(static_cast<int64_t>(id));
  });
  for (size_t token = 0; token < ids.size(); ++token) {
    require(ids[token] >= 0 && ids[token] < vocabulary,
            "embedding_grad_rows: id {} at position {} of a vocabulary of {}; use 0 to {}", ids[token], token,
            vocabulary, vocabulary - 1);
  }
  with_floating("embedding_grad_rows", args.out[1].type.dtype,
                [&](auto zero) { list_rows<decltype(zero)>(args, ids); });
}

std::vector<Example> examples() {
  return {{.in = {i32({2, 6}), f32({2, 6, 6})},
           .attrs = Attrs::of(EmbeddingGradRowsAttrs{30, 12}),
           .fill = {integers(0, 30)}},
          {.in = {i64({6}), f32({6, 3})}, .attrs = Attrs::of(EmbeddingGradRowsAttrs{5, 5}), .fill = {integers(0, 5)}}};
}

}  // namespace embedding_grad_rows_op

namespace ops {
extern const OpDef embedding_grad_rows{
    {"embedding_grad_rows", &Attrs::parse<EmbeddingGradRowsAttrs>},
    {
        .doc = "numbers = ids in ascending order, each once; rows[r,d] = sum of dy[*,d] where ids[*] = numbers[r]",
        .inputs = "ids, dy",
        .infer = embedding_grad_rows_op::infer,
        .grad = Facet<GradFn>::none("stands in programs, which are made after gradients are"),
        .shard = Facet<ShardFn>::none("works on the pieces of ranks"),
        .cost = embedding_grad_rows_op::cost,
        .kernel = embedding_grad_rows_op::kernel,
        .traits = {.reads_place = true},
        .examples = embedding_grad_rows_op::examples,
    },
};
}  // namespace ops

}  // namespace trireme
