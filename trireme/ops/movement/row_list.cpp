// Lists of rows (op/structural.h), for tables of which few rows are read and replaced:
//   take_rows   y[r,...] = x[numbers[r],...], zeros where there is no such row
//   put_rows    y = x with rows[r,...] in the place of x[numbers[r],...]
//   add_rows    y = x with rows[r,...] added to x[numbers[r],...]
//   merge_rows  the list of the sum of tables of which each is a list
//
// Numbers are those of the whole table: of a piece of it the rows that are not there are left out.
#include <algorithm>
#include <numeric>

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace row_list_op {

constexpr const char* kInProgramsOnly = "stands in programs, which are made after gradients are";
constexpr const char* kOnPiecesOnly = "works on the pieces of ranks";

void check_list(std::string_view op, const TensorType& numbers, const TensorType& rows) {
  require(numbers.dtype == DType::kI64 && numbers.shape.rank() == 1 && rows.shape.rank() >= 1 &&
              rows.shape[0] == numbers.shape[0],
          "{}: a list of rows is i64[n] and [n, ...] (numbers {}, rows {})", op, said(numbers), said(rows));
}

TensorType of_rows(TensorType x, int64_t rows) {
  x.shape[0] = rows;
  return x;
}

std::vector<TensorType> infer_take(const InferArgs& args) {
  const TensorType& x = args.in[0];
  require(x.shape.rank() >= 1, "take_rows: x {} has no rows", said(x));
  require(args.in[1].shape.rank() == 1, "take_rows: numbers {}; they must be i64[n]", said(args.in[1]));
  const TensorType y = of_rows(x, args.in[1].shape[0]);
  check_list("take_rows", args.in[1], y);
  return {y};
}

TensorType with_list(std::string_view op, const InferArgs& args) {
  const TensorType& x = args.in[0];
  const TensorType& rows = args.in[2];
  check_list(op, args.in[1], rows);
  require(x.shape.rank() >= 1 && of_rows(x, rows.shape[0]) == rows, "{}: rows {} are not rows of x {}", op, said(rows),
          said(x));
  return x;
}

std::vector<TensorType> infer_put(const InferArgs& args) {
  return {with_list("put_rows", args)};
}
std::vector<TensorType> infer_add(const InferArgs& args) {
  require(is_floating(args.in[0].dtype), "add_rows: x {} must be floating", said(args.in[0]));
  return {with_list("add_rows", args)};
}

std::vector<TensorType> infer_merge(const InferArgs& args) {
  const auto& attrs = args.attrs.as<MergeRowsAttrs>();
  require(!args.in.empty() && args.in.size() % 2 == 0, "merge_rows: {} operands; it takes numbers, rows, ...",
          args.in.size());
  require(attrs.pieces >= 1 && attrs.rows >= 1, "merge_rows: pieces is {} and rows is {}; both must be 1 or more",
          attrs.pieces, attrs.rows);
  for (size_t i = 0; i < args.in.size(); i += 2) {
    const TensorType& rows = args.in[i + 1];
    check_list("merge_rows", args.in[i], rows);
    require(is_floating(rows.dtype) && of_rows(rows, attrs.rows) == of_rows(args.in[1], attrs.rows) &&
                rows.shape[0] % attrs.pieces == 0,
            "merge_rows: rows {} and {}; all must be rows of one floating type, and {} pieces divide their number",
            said(args.in[1]), said(rows), attrs.pieces);
  }
  return {{DType::kI64, {attrs.rows}}, of_rows(args.in[1], attrs.rows)};
}

// Only the rows of the list are read or written.
Cost cost_take(const TypeArgs& args) {
  return {.flops = 0, .bytes = static_cast<double>(args.in[1].bytes() + 2 * args.out[0].bytes())};
}
Cost cost_put(const TypeArgs& args) {
  return {.flops = 0, .bytes = static_cast<double>(args.in[1].bytes() + 2 * args.in[2].bytes())};
}
Cost cost_add(const TypeArgs& args) {
  return {.flops = static_cast<double>(args.in[2].elements()),
          .bytes = static_cast<double>(args.in[1].bytes() + 3 * args.in[2].bytes())};
}
Cost cost_merge(const TypeArgs& args) {
  double sums = 0;
  for (size_t i = 1; i < args.in.size(); i += 2) sums += static_cast<double>(args.in[i].elements());
  return {.flops = sums, .bytes = tensor_bytes(args)};
}

// Calls fn(place in the list, row of the piece).
template <class Fn>
void each_listed(const View& numbers, int64_t start, int64_t rows, Fn&& fn) {
  const auto values = numbers.as<int64_t>();
  for (size_t place = 0; place < values.size(); ++place) {
    const int64_t row = values[place] - start;
    if (values[place] >= 0 && row >= 0 && row < rows) fn(static_cast<int64_t>(place), row);
  }
}

int64_t row_bytes(const TensorType& type) {
  return type.shape[0] == 0 ? 0 : type.bytes() / type.shape[0];
}

void take(const KernelArgs& args) {
  const int64_t bytes = row_bytes(args.in[0].type);
  std::ranges::fill(args.out[0].raw(), std::byte{0});
  each_listed(args.in[1], args.in_start(0, 0), args.in[0].type.shape[0], [&](int64_t place, int64_t row) {
    std::copy_n(args.in[0].raw().data() + row * bytes, bytes, args.out[0].raw().data() + place * bytes);
  });
}

void put(const KernelArgs& args) {
  const int64_t bytes = row_bytes(args.in[0].type);
  if (args.in[0].data != args.out[0].data) std::ranges::copy(args.in[0].raw(), args.out[0].raw().begin());
  each_listed(args.in[1], args.in_start(0, 0), args.in[0].type.shape[0], [&](int64_t place, int64_t row) {
    std::copy_n(args.in[2].raw().data() + place * bytes, bytes, args.out[0].raw().data() + row * bytes);
  });
}

// Zero is added to rows that are not in the list, as a sum with the whole table does: -0 becomes +0.
template <class T>
void add(const KernelArgs& args) {
  const auto x = args.in[0].as<T>();
  const auto rows = args.in[2].as<T>();
  const int64_t width = x.empty() ? 0 : args.in[0].elements() / args.in[0].type.shape[0];
  std::vector<int64_t> place_of(static_cast<size_t>(args.in[0].type.shape[0]), -1);
  each_listed(args.in[1], args.in_start(0, 0), args.in[0].type.shape[0],
              [&](int64_t place, int64_t row) { place_of[static_cast<size_t>(row)] = place; });
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t place = place_of[i / static_cast<size_t>(width)];
    const size_t at = static_cast<size_t>(place * width) + i % static_cast<size_t>(width);
    args.out[0].as<T>()[i] = store<T>(load(x[i]) + (place < 0 ? 0.0 : load(rows[at])));
  }
}

void add_kernel(const KernelArgs& args) {
  with_floating("add_rows", args.out[0].type.dtype, [&](auto zero) { add<decltype(zero)>(args); });
}

// Where a row of the sum comes from.
struct Term {
  int64_t number = 0;
  size_t source = 0;  // of the lists
  size_t operand = 0;
  int64_t place = 0;
};

std::vector<Term> terms_of(const KernelArgs& args, int64_t pieces) {
  std::vector<Term> out;
  for (size_t i = 0; i < args.in.size(); i += 2) {
    const auto numbers = args.in[i].as<int64_t>();
    const size_t length = numbers.size() / static_cast<size_t>(pieces);
    for (size_t at = 0; at < numbers.size(); ++at) {
      if (numbers[at] < 0) continue;
      const size_t source = i / 2 * static_cast<size_t>(pieces) + at / length;
      out.push_back({numbers[at], source, i + 1, static_cast<int64_t>(at)});
    }
  }
  std::ranges::stable_sort(out, {}, [](const Term& term) { return std::pair(term.number, term.source); });
  return out;
}

// The sum of one element over the lists, in the tree in which ranks add (comm/reduce.h): neighbours first, in f32, or
// f64 for f64. Lists that have no such row give zero.
template <class Sum>
Sum in_tree(std::vector<Sum> sums) {
  while (sums.size() > 1) {
    std::vector<Sum> next;
    for (size_t i = 0; i < sums.size(); i += 2) next.push_back(i + 1 < sums.size() ? sums[i] + sums[i + 1] : sums[i]);
    sums = std::move(next);
  }
  return sums[0];
}

template <class T>
void merge(const KernelArgs& args) {
  using Sum = Statistic<T>;
  const int64_t pieces = args.attrs.as<MergeRowsAttrs>().pieces;
  const auto numbers = args.out[0].as<int64_t>();
  const auto rows = args.out[1].as<T>();
  const auto width = static_cast<size_t>(rows.empty() ? 0 : args.out[1].type.elements() / args.out[1].type.shape[0]);
  std::ranges::fill(numbers, -1);
  std::fill(rows.begin(), rows.end(), store<T>(0));
  const std::vector<Term> terms = terms_of(args, pieces);
  std::vector<Sum> sums;
  size_t row = 0;
  for (size_t first = 0, end = 0; first < terms.size(); first = end, ++row) {
    while (end < terms.size() && terms[end].number == terms[first].number) ++end;
    require(row < numbers.size(), "merge_rows: the lists have more than {} rows together", numbers.size());
    numbers[row] = terms[first].number;
    for (size_t k = 0; k < width; ++k) {
      sums.assign(args.in.size() / 2 * static_cast<size_t>(pieces), Sum{0});
      for (size_t i = first; i < end; ++i) {
        const auto from = args.in[terms[i].operand].as<T>();
        const bool is_next = i > first && terms[i].source == terms[i - 1].source;
        const auto term = static_cast<Sum>(from[static_cast<size_t>(terms[i].place) * width + k]);
        Sum& sum = sums[terms[i].source];
        sum = is_next ? sum + term : term;
      }
      rows[row * width + k] = static_cast<T>(in_tree(sums));
    }
  }
}

void merge_kernel(const KernelArgs& args) {
  with_floating("merge_rows", args.out[1].type.dtype, [&](auto zero) { merge<decltype(zero)>(args); });
}

std::vector<Example> take_examples() {
  return {{.in = {f32({6, 4}), i64({3})}, .fill = {{}, distinct(0, 6)}},
          {.in = {f32({5}), i64({6})}, .fill = {{}, integers(-1, 5)}}};
}

std::vector<Example> put_examples() {
  return {{.in = {f32({6, 4}), i64({3}), f32({3, 4})}, .fill = {{}, distinct(0, 6)}},
          {.in = {f32({5}), i64({5}), f32({5})}, .fill = {{}, distinct(0, 5)}}};
}

std::vector<Example> merge_examples() {
  return {
      {.in = {i64({6}), f32({6, 4})}, .attrs = Attrs::of(MergeRowsAttrs{3, 6}), .fill = {integers(-1, 7)}},
      {.in = {i64({2}), f32({2, 3}), i64({4}), f32({4, 3})},
       .attrs = Attrs::of(MergeRowsAttrs{1, 6}),
       .fill = {distinct(0, 4), {}, distinct(0, 4)}},
  };
}

}  // namespace row_list_op

namespace ops {
extern const OpDef take_rows{
    {"take_rows", &Attrs::parse<NoAttrs>},
    {
        .doc = "y[r,...] = x[numbers[r],...]",
        .inputs = "x, numbers",
        .infer = row_list_op::infer_take,
        .grad = Facet<GradFn>::none(row_list_op::kInProgramsOnly),
        .shard = Facet<ShardFn>::none(row_list_op::kOnPiecesOnly),
        .cost = row_list_op::cost_take,
        .kernel = row_list_op::take,
        .traits = {.reads_place = true},
        .examples = row_list_op::take_examples,
    },
};
extern const OpDef put_rows{
    {"put_rows", &Attrs::parse<NoAttrs>},
    {
        .doc = "y = x, but y[numbers[r],...] = rows[r,...]",
        .inputs = "x, numbers, rows",
        .infer = row_list_op::infer_put,
        .grad = Facet<GradFn>::none(row_list_op::kInProgramsOnly),
        .shard = Facet<ShardFn>::none(row_list_op::kOnPiecesOnly),
        .cost = row_list_op::cost_put,
        .kernel = row_list_op::put,
        .traits = {.reads_place = true},
        .may_overwrite = {{0, 0}},
        .examples = row_list_op::put_examples,
    },
};
extern const OpDef add_rows{
    {"add_rows", &Attrs::parse<NoAttrs>},
    {
        .doc = "y = x, but y[numbers[r],...] = x[numbers[r],...] + rows[r,...]",
        .inputs = "x, numbers, rows",
        .infer = row_list_op::infer_add,
        .grad = Facet<GradFn>::none(row_list_op::kInProgramsOnly),
        .shard = Facet<ShardFn>::none(row_list_op::kOnPiecesOnly),
        .cost = row_list_op::cost_add,
        .kernel = row_list_op::add_kernel,
        .traits = {.reads_place = true},
        .may_overwrite = {{0, 0}},
        .examples = row_list_op::put_examples,
    },
};
extern const OpDef merge_rows{
    {"merge_rows", &Attrs::parse<MergeRowsAttrs>},
    {
        .doc = "the list of the sum of tables that are lists",
        .inputs = "numbers, rows...",
        .infer = row_list_op::infer_merge,
        .grad = Facet<GradFn>::none(row_list_op::kInProgramsOnly),
        .shard = Facet<ShardFn>::none(row_list_op::kOnPiecesOnly),
        .cost = row_list_op::cost_merge,
        .kernel = row_list_op::merge_kernel,
        .examples = row_list_op::merge_examples,
    },
};
}  // namespace ops

}  // namespace trireme
