// attention_merge of f32 and bf16 tensors, a row of a head at a time.
#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/storage.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/backend/cpu/why_not.h"

namespace trireme::cpu {
namespace {

template <class T>
void merge(const KernelArgs& args) {
  const Shape& shape = args.out[0].type.shape;  // [b,s,h,d]
  const T* a = data_of<T>(args.in[0]);
  const float* lse_a = data_of<float>(args.in[1]);
  const T* b = data_of<T>(args.in[2]);
  const float* lse_b = data_of<float>(args.in[3]);
  T* out = data_of<T>(args.out[0]);
  float* lse = data_of<float>(args.out[1]);
  const int64_t width = shape[3];
  for_range(args, shape[0] * shape[1] * shape[2], rows_per_task(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t head = row % shape[2];
      const int64_t query = row / shape[2] % shape[1];
      const int64_t line = (row / shape[2] / shape[1] * shape[2] + head) * shape[1] + query;
      const float max = std::max(lse_a[line], lse_b[line]);
      const bool none = max == -std::numeric_limits<float>::infinity();
      const float of_a = none ? 0 : std::exp(lse_a[line] - max);
      const float of_b = none ? 0 : std::exp(lse_b[line] - max);
      const float down = none ? 0 : 1 / (of_a + of_b);
      for (int64_t i = row * width; i < (row + 1) * width; ++i)
        out[i] = stored<T>((of_a * number(a[i]) + of_b * number(b[i])) * down);
      lse[line] = none ? max : max + std::log(of_a + of_b);
    }
  });
}

}  // namespace

std::span<const Kernel> attention_merge_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "attention_merge",
          .name = "attention_merge.rows",
          .why_not = first_not_float,
          .run = by_storage<merge<float>, merge<Bf16>>,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
