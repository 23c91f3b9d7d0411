// Sums of f32 tensors whose bits do not depend on cuts: reduce_sum in leaves (leaves.h), and exact_square_sum.
#include <algorithm>

#include "trireme/backend/cpu/isa/loops.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/leaves.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/op/exact_sum.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

// The operand seen as [before, leaf, inner, after]: summed over leaf and inner, in leaves of the
// dimension `dim`.
struct Sum {
  int64_t before = 1, leaf = 1, inner = 1, after = 1;
  bool contiguous =
      true;             // what is summed lies side by side in the whole, not in the piece alone: that decides the order
  int dim = -1;         // of the leaves; -1: nothing is summed
  bool regular = true;  // false: kept dimensions lie between the summed ones
};

Sum sum_of(const Shape& x, const Shape& whole, const ReduceAttrs& attrs) {
  Sum s;
  bool ended = false;
  for (int dim = 0; dim < x.rank(); ++dim) {
    if (whole[dim] == 1) continue;
    const bool summed = std::ranges::find(attrs.dims, dim) != attrs.dims.end();
    if (!summed) {
      ended = s.dim >= 0;
      (ended ? s.after : s.before) *= x[dim];
      if (ended) s.contiguous = false;
    } else if (s.dim < 0) {
      s.dim = dim;
      s.leaf = x[dim];
    } else {
      if (ended) s.regular = false;
      s.inner *= x[dim];
    }
  }
  return s;
}

std::string sum_why_not(const TypeArgs& args) {
  std::string reason = not_all_f32(args);
  if (!reason.empty()) return reason;
  if (sum_of(args.in[0].shape, args.in[0].shape, args.attrs.as<ReduceAttrs>()).regular) return "";
  return fmt::format("kept dimensions of {} lie between summed ones", to_string(args.in[0]));
}

int64_t sum_scratch(const TypeArgs& args, int) {
  const Sum s = sum_of(args.in[0].shape, args.in[0].shape, args.attrs.as<ReduceAttrs>());
  return s.before * kLeaves * s.after * static_cast<int64_t>(sizeof(float));
}

// Sums of `rows` rows of `after` elements.
void sum_rows(int64_t rows, int64_t after, bool contiguous, const float* x, float* to) {
  if (contiguous) {
    *to = loops().f32.sum(rows, x);
    return;
  }
  std::fill_n(to, after, 0.0F);
  for (int64_t row = 0; row < rows; ++row) loops().f32.accumulate(after, x + row * after, to);
}

void reduce_sum_in_leaves(const KernelArgs& args) {
  const Sum s = sum_of(args.in[0].type.shape, args.in_whole(0), args.attrs.as<ReduceAttrs>());
  const float* x = args.in[0].as<float>().data();
  float* y = args.out[0].as<float>().data();
  const Leaves leaves = s.dim < 0 ? Leaves(1, 0, 1) : Leaves(args.in_whole(0)[s.dim], args.in_start(0, s.dim), s.leaf);
  const int64_t count = leaves.count();
  auto* sums = reinterpret_cast<float*>(args.scratch.data());
  const int64_t row = s.inner * s.after;
  for_range(args, s.before * count, rows_per_task(s.leaf * row / count), [&](int64_t item, int64_t end) {
    for (; item < end; ++item) {
      const int64_t leaf = item % count;
      sum_rows(leaves.size(leaf) * s.inner, s.after, s.contiguous,
               x + (item / count * s.leaf + leaves.begin(leaf)) * row, sums + item * s.after);
    }
  });
  for_range(args, s.before, rows_per_task(count * s.after), [&](int64_t i, int64_t end) {
    for (; i < end; ++i) {
      float* mine = sums + i * count * s.after;
      add_in_tree(count, [&](int64_t to, int64_t from) {
        loops().f32.accumulate(s.after, mine + from * s.after, mine + to * s.after);
      });
      std::copy_n(mine, s.after, y + i * s.after);
    }
  });
}

int64_t exact_chunks(int64_t n) {
  return (n + kGrain - 1) / kGrain;
}

int64_t exact_scratch(const TypeArgs& args, int) {
  return exact_chunks(args.in[0].elements()) * kSumDigits * static_cast<int64_t>(sizeof(double));
}

// Digits are added exactly, so the order of the chunks is of no matter.
void exact_square_sum(const KernelArgs& args) {
  const int64_t n = args.in[0].elements();
  const float* x = args.in[0].as<float>().data();
  auto* parts = reinterpret_cast<double*>(args.scratch.data());
  std::fill_n(parts, exact_chunks(n) * kSumDigits, 0.0);
  for_range(args, n, kGrain, [&](int64_t begin, int64_t end) {
    loops().exact_squares(end - begin, x + begin, kSumGrids.data(), kSumLimit, kSumDigits,
                          parts + begin / kGrain * kSumDigits);
  });
  double* sums = args.out[0].as<double>().data();
  std::fill_n(sums, kSumDigits, 0.0);
  for (int64_t i = 0; i < exact_chunks(n) * kSumDigits; ++i) sums[i % kSumDigits] += parts[i];
}

}  // namespace

std::span<const Kernel> reduce_leaves_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "reduce_sum",
          .name = "reduce_sum.leaves",
          .why_not = sum_why_not,
          .scratch = sum_scratch,
          .run = reduce_sum_in_leaves,
          .bits = Bits::kLeaves,
      },
      {
          .op = "exact_square_sum",
          .name = "exact_square_sum.simd",
          .scratch = exact_scratch,
          .run = exact_square_sum,
          .bits = Bits::kExact,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
