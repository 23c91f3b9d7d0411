// gather_rows and scatter_rows of f32 and bf16 tensors.
#include <algorithm>
#include <array>

#include "trireme/backend/cpu/index.h"
#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"

namespace trireme::cpu {
namespace {

int64_t checked_position(const char* op, const Indices& ids, int64_t at, int64_t positions, int64_t rows) {
  const int64_t id = ids[at];
  require(id >= 0 && id < rows, "{}: id {} at position {} of {} rows; use 0 to {}", op, id, at % positions, rows,
          rows - 1);
  return id;
}

std::string gather_why_not(const TypeArgs& args) {
  std::string reason = operand_not_float(args, 0);
  return reason.empty() ? operand_not_index(args, 1) : reason;
}

std::string scatter_why_not(const TypeArgs& args) {
  std::string reason = operand_not_index(args, 0);
  return reason.empty() ? operand_not_float(args, 1) : reason;
}

template <class T>
void gather_rows(const KernelArgs& args) {
  const Indices ids(args.in[1]);
  const Shape& table = args.in[0].type.shape;
  const int64_t positions = args.in[1].type.shape[1];
  const T* from = data_of<T>(args.in[0]);
  T* y = data_of<T>(args.out[0]);
  for_range(args, ids.size(), rows_per_task(table[2]), [&](int64_t at, int64_t end) {
    for (; at < end; ++at) {
      const int64_t row = at / positions * table[1] + checked_position("gather_rows", ids, at, positions, table[1]);
      std::copy_n(from + row * table[2], table[2], y + at * table[2]);
    }
  });
}

// Sums of a batch's columns are taken in f32: in the table, or in the thread's scratch.
constexpr int64_t kRowColumns = 64;

int64_t scatter_scratch(const TypeArgs& args, int threads) {
  if (args.in[1].dtype == DType::kF32) return 0;
  return threads * args.out[0].shape[1] * kRowColumns * static_cast<int64_t>(sizeof(float));
}

template <class T>
void scatter_rows(const KernelArgs& args) {
  const Indices ids(args.in[0]);
  const Shape& table = args.out[0].type.shape;
  const int64_t positions = args.in[0].type.shape[1];
  const T* x = data_of<T>(args.in[1]);
  T* y = data_of<T>(args.out[0]);
  for (int64_t at = 0; at < ids.size(); ++at) checked_position("scatter_rows", ids, at, positions, table[1]);
  const int64_t parts = (table[2] + kRowColumns - 1) / kRowColumns;
  run_tasks(args.pool, table[0] * parts, [&](int64_t task, int thread) {
    const int64_t batch = task / parts;
    const int64_t column = task % parts * kRowColumns;
    const int64_t width = std::min(kRowColumns, table[2] - column);
    constexpr bool kInPlace = std::is_same_v<T, float>;
    T* to = y + batch * table[1] * table[2] + column;
    float* sums = nullptr;
    if constexpr (kInPlace)
      sums = to;
    else
      sums = reinterpret_cast<float*>(args.scratch.data()) + thread * table[1] * kRowColumns;
    const int64_t stride = kInPlace ? table[2] : kRowColumns;
    for (int64_t row = 0; row < table[1]; ++row) std::fill_n(sums + row * stride, width, 0.0F);
    for (int64_t at = batch * positions; at < (batch + 1) * positions; ++at) {
      float* sum = sums + ids[at] * stride;
      for (int64_t i = 0; i < width; ++i) sum[i] += number(x[at * table[2] + column + i]);
    }
    if constexpr (!kInPlace) {
      for (int64_t row = 0; row < table[1]; ++row) {
        for (int64_t i = 0; i < width; ++i) to[row * table[2] + i] = stored<T>(sums[row * stride + i]);
      }
    }
  });
}

}  // namespace

std::span<const Kernel> batch_rows_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "gather_rows",
          .name = "gather_rows.copy",
          .why_not = gather_why_not,
          .run = by_storage<gather_rows<float>, gather_rows<Bf16>>,
          .bits = Bits::kElement,
      },
      {
          .op = "scatter_rows",
          .name = "scatter_rows.sum",
          .why_not = scatter_why_not,
          .scratch = scatter_scratch,
          .run = by_storage<scatter_rows<float>, scatter_rows<Bf16>, 1>,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
