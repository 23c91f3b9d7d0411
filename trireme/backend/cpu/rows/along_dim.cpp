// argmax and cumsum along one dimension of f32 and bf16 tensors.
#include <algorithm>
#include <array>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"
#include "trireme/op/op_attrs.h"

namespace trireme::cpu {
namespace {

constexpr int64_t kTaskColumns = 256;  // of a task

// The tensor as [before, size, after].
struct Lines3 {
  int64_t before = 1, size, after = 1;
  Lines3(const Shape& shape, int64_t dim) : size(shape[static_cast<int>(dim)]) {
    for (int d = 0; d < shape.rank(); ++d) {
      if (d < dim) before *= shape[d];
      if (d > dim) after *= shape[d];
    }
  }
};

// Calls fn(first element of the columns, their number, first of their results in [before, after])
// for stretches of columns along the dimension.
template <class Fn>
void each_stretch(const KernelArgs& args, const Lines3& n, Fn&& fn) {
  const int64_t pieces = (n.after + kTaskColumns - 1) / kTaskColumns;
  const int64_t width = std::min(n.after, kTaskColumns);
  for_range(args, n.before * pieces, rows_per_task(n.size * width), [&](int64_t i, int64_t end) {
    for (; i < end; ++i) {
      const int64_t row = i / pieces;
      const int64_t column = i % pieces * kTaskColumns;
      fn(row * n.size * n.after + column, std::min(kTaskColumns, n.after - column), row * n.after + column);
    }
  });
}

template <class T>
void argmax(const KernelArgs& args) {
  const Lines3 n(args.in[0].type.shape, args.attrs.as<ArgmaxAttrs>().dim);
  const T* x = data_of<T>(args.in[0]);
  int32_t* y = args.out[0].as<int32_t>().data();
  if (n.after == 1) {
    for_range(args, n.before, rows_per_task(n.size), [&](int64_t row, int64_t end) {
      for (; row < end; ++row) y[row] = static_cast<int32_t>(loops_on<T>().argmax(n.size, x + row * n.size));
    });
    return;
  }
  each_stretch(args, n, [&](int64_t from, int64_t columns, int64_t to) {
    std::array<float, kTaskColumns> most;
    for (int64_t c = 0; c < columns; ++c) {
      most[static_cast<size_t>(c)] = number(x[from + c]);
      y[to + c] = 0;
    }
    for (int64_t i = 1; i < n.size; ++i) {
      for (int64_t c = 0; c < columns; ++c) {
        const float next = number(x[from + i * n.after + c]);
        float& best = most[static_cast<size_t>(c)];
        y[to + c] = next > best ? static_cast<int32_t>(i) : y[to + c];
        best = next > best ? next : best;
      }
    }
  });
}

template <class T>
void cumsum(const KernelArgs& args) {
  const auto& attrs = args.attrs.as<CumsumAttrs>();
  const Lines3 n(args.in[0].type.shape, attrs.dim);
  const T* x = data_of<T>(args.in[0]);
  T* y = data_of<T>(args.out[0]);
  const int64_t first = attrs.reverse ? n.size - 1 : 0;
  const int64_t step = attrs.reverse ? -1 : 1;
  if (n.after == 1) {
    for_range(args, n.before, rows_per_task(n.size), [&](int64_t row, int64_t end) {
      for (; row < end; ++row) {
        double sum = 0;
        int64_t at = row * n.size + first;
        for (int64_t i = 0; i < n.size; ++i, at += step) {
          sum += static_cast<double>(number(x[at]));
          y[at] = stored<T>(static_cast<float>(sum));
        }
      }
    });
    return;
  }
  each_stretch(args, n, [&](int64_t from, int64_t columns, int64_t) {
    std::array<double, kTaskColumns> sums{};
    for (int64_t i = 0; i < n.size; ++i) {
      const int64_t row = from + (first + step * i) * n.after;
      for (int64_t c = 0; c < columns; ++c) {
        double& sum = sums[static_cast<size_t>(c)];
        sum += static_cast<double>(number(x[row + c]));
        y[row + c] = stored<T>(static_cast<float>(sum));
      }
    }
  });
}

}  // namespace

std::span<const Kernel> along_dim_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "argmax",
          .name = "argmax.lines",
          .why_not = first_not_float,
          .run = by_storage<argmax<float>, argmax<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "cumsum",
          .name = "cumsum.lines",
          .why_not = first_not_float,
          .run = by_storage<cumsum<float>, cumsum<Bf16>>,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
