#include "trireme/backend/cpu/products/row_product.h"

#include <algorithm>

#include "trireme/backend/cpu/tasks.h"

namespace trireme::cpu {
namespace {

constexpr int64_t kLeastOfTask = 64;  // columns

}  // namespace

std::string not_one_row(const Product& p) {
  constexpr int64_t kMostFloats = (1 << 20) / sizeof(float) - 1;
  if (p.m != 1 || p.batch != 1) return fmt::format("there are {} rows, not one", p.m * p.batch);
  if (p.n > kMostFloats) return fmt::format("its result has {} elements, more than {}", p.n, kMostFloats);
  return "";
}

int64_t row_product_scratch(const Product& p) {
  return (p.k + p.n) * static_cast<int64_t>(sizeof(float));
}

// No bit depends on the tasks: an element's sum is taken by one of them.
template <class T>
void multiply_row(const Product& p, const Matrices<T>& at, const KernelArgs& args) {
  const float* row = nullptr;
  float* sums = nullptr;
  if constexpr (std::is_same_v<T, float>) {
    row = at.a;
    sums = at.c;
  } else {
    auto* const room = reinterpret_cast<float*>(args.scratch.data());
    loops_on<T>().to_f32(p.k, at.a, room);
    row = room;
    sums = room + p.k;
  }
  const int threads = threads_of(args);
  const int64_t tasks = threads == 1 ? 1 : std::clamp<int64_t>(p.n / kLeastOfTask, 1, 2 * threads);
  run_tasks(args.pool, tasks, [&](int64_t task, int) {
    const int64_t first = task * p.n / tasks;
    const int64_t count = (task + 1) * p.n / tasks - first;
    if (p.transpose_b) {
      loops_on<T>().dots_of_rows({count, p.k}, p.k, row, at.b + first * p.k, sums + first);
    } else {
      loops_on<T>().sum_of_rows({p.k, count}, p.n, row, at.b + first, sums + first);
    }
    if constexpr (!std::is_same_v<T, float>) loops_on<T>().from_f32(count, sums + first, at.c + first);
  });
}

template void multiply_row(const Product&, const Matrices<float>&, const KernelArgs&);
template void multiply_row(const Product&, const Matrices<Bf16>&, const KernelArgs&);

}  // namespace trireme::cpu
