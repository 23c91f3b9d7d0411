// transpose, slice, split, concat, pad and broadcast_to: elements of any type moved between boxes,
// in runs where both sides are contiguous, in square blocks where the contiguous dimensions differ.
#include <algorithm>
#include <array>
#include <cstring>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/movement/fill.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

constexpr int64_t kBlock = 32;

struct MovedDim {
  int64_t size = 1;
  int64_t from = 0, to = 0;  // elements to step
};

// A box seen from both sides, innermost dimension first; dimensions that both cross in equal steps
// are one.
struct Move {
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  int64_t item = 1;  // bytes of an element
  std::array<MovedDim, Shape::kMaxRank> dims{};
  int rank = 0;

  void add_outer(MovedDim next) {
    if (next.size == 1) return;
    if (rank > 0) {
      MovedDim& last = dims[static_cast<size_t>(rank - 1)];
      if (next.from == last.from * last.size && next.to == last.to * last.size) {
        last.size *= next.size;
        return;
      }
    }
    dims[static_cast<size_t>(rank++)] = next;
  }
};

// Calls fn(from, to, index) for the positions of dimensions `first` and further, in tasks of about
// `inside` elements a position; `index` is that in dimension `first`.
template <class Fn>
void each_position(const KernelArgs& args, const Move& move, int first, int64_t inside, Fn&& fn) {
  int64_t count = 1;
  for (int i = first; i < move.rank; ++i) count *= move.dims[static_cast<size_t>(i)].size;
  for_range(args, count, rows_per_task(inside), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      int64_t rest = at;
      int64_t from = 0;
      int64_t to = 0;
      for (int i = first; i < move.rank; ++i) {
        const MovedDim& dim = move.dims[static_cast<size_t>(i)];
        from += rest % dim.size * dim.from;
        to += rest % dim.size * dim.to;
        rest /= dim.size;
      }
      fn(from, to, first < move.rank ? at % move.dims[static_cast<size_t>(first)].size : 0);
    }
  });
}

// A strip of at most kBlock rows, in square blocks.
template <class T>
void copy_strip(const T* from, T* to, const MovedDim& rows, const MovedDim& columns) {
  for (int64_t j = 0; j < columns.size; j += kBlock) {
    const int64_t end = std::min(columns.size, j + kBlock);
    for (int64_t r = 0; r < rows.size; ++r) {
      for (int64_t c = j; c < end; ++c) to[r * rows.to + c * columns.to] = from[r * rows.from + c * columns.from];
    }
  }
}

template <class T>
void move_elements(const KernelArgs& args, Move move) {
  if (move.rank == 1) move.dims[static_cast<size_t>(move.rank++)] = MovedDim{};
  // The dimension that is contiguous where it is read comes next to the one contiguous where it is
  // written.
  const auto begin = move.dims.begin();
  const auto read = std::find_if(begin + 1, begin + move.rank, [](const MovedDim& d) { return d.from == 1; });
  if (read != begin + move.rank) std::swap(*(begin + 1), *read);
  const MovedDim columns = move.dims[0];
  const MovedDim rows = move.dims[1];
  move.dims[1] = {(rows.size + kBlock - 1) / kBlock, kBlock * rows.from, kBlock * rows.to};
  each_position(args, move, 1, kBlock * columns.size, [&](int64_t from, int64_t to, int64_t strip) {
    copy_strip(reinterpret_cast<const T*>(move.from) + from, reinterpret_cast<T*>(move.to) + to,
               {std::min(kBlock, rows.size - strip * kBlock), rows.from, rows.to}, columns);
  });
}

void run_move(const KernelArgs& args, const Move& move) {
  for (int i = 0; i < move.rank; ++i) {
    if (move.dims[static_cast<size_t>(i)].size == 0) return;
  }
  const MovedDim& inner = move.dims[0];
  if (move.rank == 0 || (inner.from == 1 && inner.to == 1)) {
    const int64_t n = move.rank == 0 ? 1 : inner.size;
    each_position(args, move, 1, n, [&](int64_t from, int64_t to, int64_t) {
      std::memcpy(move.to + to * move.item, move.from + from * move.item, static_cast<size_t>(n * move.item));
    });
    return;
  }
  switch (move.item) {
    case 1:
      return move_elements<uint8_t>(args, move);
    case 2:
      return move_elements<uint16_t>(args, move);
    case 4:
      return move_elements<uint32_t>(args, move);
    default:
      return move_elements<uint64_t>(args, move);
  }
}

// A move whose box has the shape `size`; steps(dim) gives the elements to step in the source.
template <class Steps>
Move make_move(const std::byte* from, const View& to, const Shape& size, Steps&& steps) {
  Move move{.from = from, .to = to.data, .item = size_of(to.type.dtype)};
  const auto strides = to.type.shape.strides();
  for (int dim = size.rank() - 1; dim >= 0; --dim) {
    move.add_outer({size[dim], steps(dim), strides[static_cast<size_t>(dim)]});
  }
  return move;
}

void run_transpose(const KernelArgs& args) {
  const auto& perm = args.attrs.as<TransposeAttrs>().perm;
  const auto strides = args.in[0].type.shape.strides();
  run_move(args, make_move(args.in[0].data, args.out[0], args.out[0].type.shape,
                           [&](int dim) { return strides[static_cast<size_t>(perm[static_cast<size_t>(dim)])]; }));
}

void run_slice(const KernelArgs& args) {
  const auto& starts = args.attrs.as<SliceAttrs>().starts;
  const auto strides = args.in[0].type.shape.strides();
  int64_t first = 0;
  for (size_t dim = 0; dim < starts.size(); ++dim) first += starts[dim] * strides[dim];
  run_move(args, make_move(args.in[0].data + first * size_of(args.out[0].type.dtype), args.out[0],
                           args.out[0].type.shape, [&](int dim) { return strides[static_cast<size_t>(dim)]; }));
}

void run_concat(const KernelArgs& args) {
  const auto dim = static_cast<size_t>(args.attrs.as<ConcatAttrs>().dim);
  const auto out_strides = args.out[0].type.shape.strides();
  View to = args.out[0];
  for (const View& x : args.in) {
    const auto strides = x.type.shape.strides();
    run_move(args, make_move(x.data, to, x.type.shape, [&](int d) { return strides[static_cast<size_t>(d)]; }));
    to.data += x.type.shape[static_cast<int>(dim)] * out_strides[dim] * size_of(to.type.dtype);
  }
}

void run_split(const KernelArgs& args) {
  const auto dim = static_cast<size_t>(args.attrs.as<SplitAttrs>().dim);
  const auto strides = args.in[0].type.shape.strides();
  const std::byte* from = args.in[0].data;
  for (const View& y : args.out) {
    run_move(args, make_move(from, y, y.type.shape, [&](int d) { return strides[static_cast<size_t>(d)]; }));
    from += y.type.shape[static_cast<int>(dim)] * strides[dim] * size_of(y.type.dtype);
  }
}

void run_pad(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<PadAttrs>();
  const View& x = args.in[0];
  View y = args.out[0];
  fill(args, y, attrs.value);
  const auto strides = x.type.shape.strides();
  const auto out_strides = y.type.shape.strides();
  for (size_t dim = 0; dim < attrs.before.size(); ++dim)
    y.data += attrs.before[dim] * out_strides[dim] * size_of(y.type.dtype);
  run_move(args, make_move(x.data, y, x.type.shape, [&](int dim) { return strides[static_cast<size_t>(dim)]; }));
}

void run_broadcast_to(const KernelArgs& args) {
  const Shape& x = args.in[0].type.shape;
  const Shape& y = args.out[0].type.shape;
  const auto strides = x.strides();
  run_move(args, make_move(args.in[0].data, args.out[0], y, [&](int dim) {
             const int own = dim - (y.rank() - x.rank());
             return own < 0 || x[own] == 1 ? 0 : strides[static_cast<size_t>(own)];
           }));
}

}  // namespace

std::span<const Kernel> movement_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "transpose",
          .name = "transpose.blocks",
          .run = run_transpose,
          .bits = Bits::kElement,
      },
      {
          .op = "slice",
          .name = "slice.runs",
          .run = run_slice,
          .bits = Bits::kElement,
      },
      {
          .op = "concat",
          .name = "concat.runs",
          .run = run_concat,
          .bits = Bits::kElement,
      },
      {
          .op = "split",
          .name = "split.runs",
          .run = run_split,
          .bits = Bits::kElement,
      },
      {
          .op = "pad",
          .name = "pad.runs",
          .why_not = any_f16,
          .run = run_pad,
          .bits = Bits::kElement,
      },
      {
          .op = "broadcast_to",
          .name = "broadcast_to.runs",
          .run = run_broadcast_to,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
