// Sums in f32. Parts of fixed size are summed in f32, and the parts in their order.
#include <algorithm>

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/parallel.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/backend/kernels.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

constexpr int64_t kRows = 256;  // rows of a part where rows are summed

// The operand seen as [before, summed, after].
struct Split {
  int64_t before = 1, summed = 1, after = 1;
  bool regular = true;  // false: kept dimensions lie between the summed ones
};

Split split_of(const Shape& x, const ReduceAttrs& attrs) {
  Split s;
  int stage = 0;  // 0 before, 1 summed, 2 after
  for (int dim = 0; dim < x.rank(); ++dim) {
    if (x[dim] == 1) continue;
    const bool summed = std::ranges::find(attrs.dims, dim) != attrs.dims.end();
    if (summed && stage == 0) stage = 1;
    if (!summed && stage == 1) stage = 2;
    if (summed && stage == 2) s.regular = false;
    (stage == 0 ? s.before : stage == 1 ? s.summed : s.after) *= x[dim];
  }
  return s;
}

int64_t parts_of(const Split& s) {
  return (s.summed + kRows - 1) / kRows;
}

std::string sum_why_not(const TypeArgs& args) {
  std::string reason = not_all_f32(args);
  if (!reason.empty()) return reason;
  if (split_of(args.in[0].shape, args.attrs.as<ReduceAttrs>()).regular) return "";
  return fmt::format("kept dimensions of {} lie between summed ones", to_string(args.in[0]));
}

// Sums of chunks of a contiguous range.
int64_t chunks_of(int64_t n) {
  return (n + kGrain - 1) / kGrain;
}

int64_t sum_scratch(const TypeArgs& args, int) {
  const Split s = split_of(args.in[0].shape, args.attrs.as<ReduceAttrs>());
  const int64_t floats =
      s.after == 1 ? s.before * chunks_of(s.summed) : s.before * parts_of(s) * s.after;
  return floats * static_cast<int64_t>(sizeof(float));
}

// f(n, x) of chunks of each of `rows` rows, then each row's chunks added in order.
template <class Loop>
void sum_contiguous(const KernelArgs& args, int64_t rows, int64_t n, Loop&& f) {
  const float* x = args.in[0].as<float>().data();
  float* y = args.out[0].as<float>().data();
  auto* parts = reinterpret_cast<float*>(args.scratch.data());
  const int64_t chunks = chunks_of(n);
  for_range(args, rows * chunks, rows_per_task(n), [&](int64_t item, int64_t end) {
    for (; item < end; ++item) {
      const int64_t from = item % chunks * kGrain;
      parts[item] = f(std::min(kGrain, n - from), x + item / chunks * n + from);
    }
  });
  for (int64_t row = 0; row < rows; ++row) {
    double total = 0;
    for (int64_t i = 0; i < chunks; ++i) total += static_cast<double>(parts[row * chunks + i]);
    y[row] = static_cast<float>(total);
  }
}

void sum_rows(const KernelArgs& args, const Split& s) {
  const float* x = args.in[0].as<float>().data();
  float* y = args.out[0].as<float>().data();
  auto* sums = reinterpret_cast<float*>(args.scratch.data());
  const int64_t parts = parts_of(s);
  run_tasks(args.pool, s.before * parts, [&](int64_t task, int) {
    const int64_t first = task % parts * kRows;
    const int64_t end = std::min(s.summed, first + kRows);
    const float* from = x + task / parts * s.summed * s.after;
    float* to = sums + task * s.after;
    std::copy_n(from + first * s.after, s.after, to);
    for (int64_t row = first + 1; row < end; ++row)
      loops().accumulate(s.after, from + row * s.after, to);
  });
  for_range(args, s.before, rows_per_task(parts * s.after), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* to = y + i * s.after;
      std::fill_n(to, s.after, 0.0F);
      for (int64_t part = 0; part < parts; ++part)
        loops().accumulate(s.after, sums + (i * parts + part) * s.after, to);
    }
  });
}

void run_sum(const KernelArgs& args) {
  const Split s = split_of(args.in[0].type.shape, args.attrs.as<ReduceAttrs>());
  if (s.after == 1) return sum_contiguous(args, s.before, s.summed, loops().sum);
  sum_rows(args, s);
}

int64_t square_sum_scratch(const TypeArgs& args, int) {
  return chunks_of(args.in[0].elements()) * static_cast<int64_t>(sizeof(float));
}

void run_square_sum(const KernelArgs& args) {
  sum_contiguous(args, 1, args.in[0].elements(), loops().square_sum);
}

}  // namespace

extern const Kernel reduce_sum_parts{"reduce_sum", "reduce_sum.parts", sum_why_not, sum_scratch,
                                     run_sum};
extern const Kernel square_sum_parts{"square_sum", "square_sum.parts", not_all_f32,
                                     square_sum_scratch, run_square_sum};

}  // namespace trireme::cpu
