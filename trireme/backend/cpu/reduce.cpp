// Sums and extremes of f32 and bf16 tensors, accumulated in f32; sums are given in it too. Parts of
// fixed size are reduced first, and the parts in their order.
#include <algorithm>
#include <bit>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

enum class Fold { kSum, kLargest, kSmallest };

// The loops of a fold: a row to a number, and a row into another.
template <class T>
struct FoldLoops {
  float (*row)(int64_t n, const T* x);
  void (*into)(int64_t n, const T* x, float* y);
};

template <class T>
FoldLoops<T> loops_of(Fold fold) {
  const TensorLoops<T>& all = loops_on<T>();
  if (fold == Fold::kSum) return {all.sum, all.accumulate};
  const int at = fold == Fold::kLargest ? 0 : 1;
  return {all.extreme[at], all.accumulate_extreme[at]};
}

// The operand seen as [before, reduced, after].
struct Split {
  int64_t before = 1, reduced = 1, after = 1;
  bool regular = true;  // false: kept dimensions lie between the reduced ones
};

Split split_of(const Shape& x, const ReduceAttrs& attrs) {
  Split s;
  int stage = 0;  // 0 before, 1 reduced, 2 after
  for (int dim = 0; dim < x.rank(); ++dim) {
    if (x[dim] == 1) continue;
    const bool reduced = std::ranges::find(attrs.dims, dim) != attrs.dims.end();
    if (reduced && stage == 0) stage = 1;
    if (!reduced && stage == 1) stage = 2;
    if (reduced && stage == 2) s.regular = false;
    (stage == 0 ? s.before : stage == 1 ? s.reduced : s.after) *= x[dim];
  }
  return s;
}

// How rows of `after` elements are reduced to one: in parts of so many rows, of which `wide` are
// taken together, so that loops are long; the wide row is folded to one at the end of a part.
struct Cut {
  int64_t part, wide, parts;
};

Cut cut_of(const Split& s) {
  constexpr int64_t kRows = 256;
  constexpr int64_t kWide = 512;
  const auto at_once = static_cast<uint64_t>(std::max<int64_t>(1, kWide / s.after));
  const int64_t part = std::max(kRows, kGrain / s.after);
  return {part, std::min<int64_t>(s.reduced, static_cast<int64_t>(std::bit_floor(at_once))),
          (s.reduced + part - 1) / part};
}

std::string reduce_why_not(const TypeArgs& args) {
  std::string reason = first_not_float(args);
  if (!reason.empty()) return reason;
  if (split_of(args.in[0].shape, args.attrs.as<ReduceAttrs>()).regular) return "";
  return fmt::format("kept dimensions of {} lie between reduced ones", to_string(args.in[0]));
}

// Chunks of a contiguous range.
int64_t chunks_of(int64_t n) {
  return (n + kGrain - 1) / kGrain;
}

int64_t reduce_scratch(const TypeArgs& args, int threads) {
  const Split s = split_of(args.in[0].shape, args.attrs.as<ReduceAttrs>());
  if (args.out[0].elements() == 0) return 0;
  const Cut cut = cut_of(s);
  const int64_t floats =
      s.after == 1 ? s.before * chunks_of(s.reduced) : (s.before * cut.parts + threads * cut.wide) * s.after;
  return floats * static_cast<int64_t>(sizeof(float));
}

// finish(parts of a row) gives the row's result of its chunks' f(n, x).
template <class T, class Y, class Finish>
void reduce_contiguous(const KernelArgs& args, int64_t rows, int64_t n, float (*f)(int64_t n, const T* x),
                       Finish&& finish) {
  const T* x = data_of<T>(args.in[0]);
  Y* y = data_of<Y>(args.out[0]);
  auto* parts = reinterpret_cast<float*>(args.scratch.data());
  const int64_t chunks = chunks_of(n);
  for_range(args, rows * chunks, rows_per_task(n), [&](int64_t item, int64_t end) {
    for (; item < end; ++item) {
      const int64_t from = item % chunks * kGrain;
      parts[item] = f(std::min(kGrain, n - from), x + item / chunks * n + from);
    }
  });
  for (int64_t row = 0; row < rows; ++row) {
    const std::span<const float> mine(parts + row * chunks, static_cast<size_t>(chunks));
    y[row] = stored<Y>(finish(mine));
  }
}

float total_of(std::span<const float> parts) {
  double total = 0;
  for (const float part : parts) total += static_cast<double>(part);
  return static_cast<float>(total);
}

// Rows of a part to one, at the beginning of `to`, which has room for `wide` rows.
template <class T>
void reduce_part(Fold fold, int64_t rows, int64_t wide, int64_t width, const T* from, float* to) {
  wide = std::min(wide, rows);
  loops_on<T>().to_f32(wide * width, from, to);
  for (int64_t row = wide; row < rows; row += wide) {
    loops_of<T>(fold).into(std::min(wide, rows - row) * width, from + row * width, to);
  }
  for (int64_t left = wide; left > 1; left -= left / 2) {
    const int64_t half = left / 2;
    loops_of<float>(fold).into(half * width, to + (left - half) * width, to);
  }
}

template <class T, class Y>
void reduce_rows(const KernelArgs& args, const Split& s, Fold fold) {
  const T* x = data_of<T>(args.in[0]);
  Y* y = data_of<Y>(args.out[0]);
  const Cut cut = cut_of(s);
  auto* results = reinterpret_cast<float*>(args.scratch.data());
  float* rooms = results + s.before * cut.parts * s.after;
  const int64_t items = s.before * cut.parts;
  const int64_t group = rows_per_task(std::min(cut.part, s.reduced) * s.after);
  run_tasks(args.pool, (items + group - 1) / group, [&](int64_t task, int thread) {
    float* room = rooms + thread * cut.wide * s.after;
    for (int64_t item = task * group; item < std::min(items, (task + 1) * group); ++item) {
      const int64_t first = item % cut.parts * cut.part;
      reduce_part(fold, std::min(s.reduced - first, cut.part), cut.wide, s.after,
                  x + (item / cut.parts * s.reduced + first) * s.after, room);
      std::copy_n(room, s.after, results + item * s.after);
    }
  });
  for_range(args, s.before, rows_per_task(cut.parts * s.after), [&](int64_t i, int64_t end) {
    for (; i < end; ++i) {
      float* result = results + i * cut.parts * s.after;
      for (int64_t part = 1; part < cut.parts; ++part)
        loops_of<float>(fold).into(s.after, result + part * s.after, result);
      loops_on<Y>().from_f32(s.after, result, y + i * s.after);
    }
  });
}

template <Fold fold, class T>
void reduce(const KernelArgs& args) {
  using Y = std::conditional_t<fold == Fold::kSum, float, T>;
  const Split s = split_of(args.in[0].type.shape, args.attrs.as<ReduceAttrs>());
  const int64_t results = args.out[0].elements();
  if (results == 0 || s.reduced == 0) {
    std::fill_n(data_of<Y>(args.out[0]), results, Y{});
  } else if (s.after > 1) {
    reduce_rows<T, Y>(args, s, fold);
  } else {
    reduce_contiguous<T, Y>(args, s.before, s.reduced, loops_of<T>(fold).row, [](std::span<const float> parts) {
      if (fold == Fold::kSum) return total_of(parts);
      return loops_of<float>(fold).row(std::ssize(parts), parts.data());
    });
  }
}

int64_t square_sum_scratch(const TypeArgs& args, int) {
  return chunks_of(args.in[0].elements()) * static_cast<int64_t>(sizeof(float));
}

template <class T>
void square_sum(const KernelArgs& args) {
  reduce_contiguous<T, float>(args, 1, args.in[0].elements(), loops_on<T>().square_sum, total_of);
}

template <Fold fold>
constexpr Kernel reduction(std::string_view op, std::string_view name) {
  return {
      .op = op,
      .name = name,
      .why_not = reduce_why_not,
      .scratch = reduce_scratch,
      .run = by_storage<reduce<fold, float>, reduce<fold, Bf16>>,
      .bits = fold == Fold::kSum ? Bits::kShape : Bits::kElement,
  };
}

}  // namespace

std::span<const Kernel> reduce_kernels() {
  static constexpr Kernel kAll[] = {
      reduction<Fold::kSum>("reduce_sum", "reduce_sum.parts"),
      reduction<Fold::kLargest>("reduce_max", "reduce_max.parts"),
      reduction<Fold::kSmallest>("reduce_min", "reduce_min.parts"),
      {
          .op = "square_sum",
          .name = "square_sum.parts",
          .why_not = first_not_float,
          .scratch = square_sum_scratch,
          .run = by_storage<square_sum<float>, square_sum<Bf16>>,
          .bits = Bits::kShape,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
