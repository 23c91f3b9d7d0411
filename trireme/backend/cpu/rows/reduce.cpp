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

// A table that is a list of rows (op/structural.h) in chunks as square_sum takes it whole. A vector of zeros changes no
// sum of lanes, so of a chunk only blocks in which a listed row has a part are added. Blocks have whole groups of
// vectors, of any instruction set, and each lane keeps its terms in their order.
constexpr int64_t kListed = 64;
static_assert(kGrain % kListed == 0);

template <class T>
struct ListedRows {
  std::span<const int64_t> numbers;
  const T* rows;
  int64_t width;

  // Elements from `begin` to `end` of the table in `room`, without blocks that have no listed row; returns how many.
  int64_t gather(int64_t begin, int64_t end, T* room) const {
    const auto ends_before = [&](int64_t number) { return number >= 0 && (number + 1) * width <= begin; };
    int64_t filled = 0, last = -1, last_at = 0;  // the last block, and where it lies in the room
    for (auto of = std::ranges::partition_point(numbers, ends_before);
         of != numbers.end() && *of >= 0 && *of * width < end; ++of) {
      const int64_t row = *of * width - begin;  // it may begin in a chunk before
      const int64_t from = std::max<int64_t>(0, row), to = std::min(end - begin, row + width);
      const int64_t block = from / kListed;
      const int64_t at = block == last ? last_at : filled;
      const int64_t now = at + std::min(end - begin, (to + kListed - 1) / kListed * kListed) - block * kListed;
      std::fill(room + filled, room + now, T{});
      std::copy_n(rows + (of - numbers.begin()) * width + from - row, to - from, room + at + from - block * kListed);
      last = (to - 1) / kListed;
      last_at = at + (last - block) * kListed;
      filled = now;
    }
    return filled;
  }
};

std::string rows_not_float(const TypeArgs& args) {
  return operand_not_float(args, 1);
}

int64_t elements_of_table(const TypeArgs& args) {
  const int64_t places = args.in[0].elements();
  return places == 0 ? 0 : args.attrs.as<SquareSumRowsAttrs>().table * (args.in[1].elements() / places);
}

int64_t square_sum_rows_scratch(const TypeArgs& args, int threads) {
  return chunks_of(elements_of_table(args)) * static_cast<int64_t>(sizeof(float)) +
         threads * kGrain * size_of(args.in[1].dtype);
}

template <class T>
void square_sum_rows(const KernelArgs& args) {
  const int64_t places = args.in[0].elements();
  const int64_t width = places == 0 ? 0 : args.in[1].elements() / places;
  const ListedRows<T> listed{args.in[0].as<const int64_t>(), data_of<T>(args.in[1]), width};
  const int64_t n = args.attrs.as<SquareSumRowsAttrs>().table * width;
  const int64_t chunks = chunks_of(n);
  auto* parts = reinterpret_cast<float*>(args.scratch.data());
  auto* rooms = reinterpret_cast<T*>(parts + chunks);
  run_tasks(args.pool, chunks, [&](int64_t chunk, int thread) {
    T* room = rooms + thread * kGrain;
    const int64_t count = listed.gather(chunk * kGrain, std::min(n, (chunk + 1) * kGrain), room);
    parts[chunk] = loops_on<T>().square_sum(count, room);
  });
  data_of<float>(args.out[0])[0] = total_of({parts, static_cast<size_t>(chunks)});
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
      {
          .op = "square_sum_rows",
          .name = "square_sum_rows.parts",
          .why_not = rows_not_float,
          .scratch = square_sum_rows_scratch,
          .run = by_storage<square_sum_rows<float>, square_sum_rows<Bf16>, 1>,
          .bits = Bits::kShape,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
