// Cutting a kernel's work into tasks. How it is cut depends on sizes alone, never on the number of
// threads, so that the bits of a result do not depend on it.
#pragma once

#include "trireme/base/thread_pool.h"
#include "trireme/op/op_def.h"

namespace trireme::cpu {

// Elements of one task of an elementwise loop: its operands fit the second-level cache.
inline constexpr int64_t kGrain = 16384;

inline void run_tasks(ThreadPool* pool, int64_t tasks, FunctionRef<void(int64_t task, int thread)> fn) {
  if (pool != nullptr) return pool->run(tasks, fn);
  for (int64_t task = 0; task < tasks; ++task) fn(task, 0);
}

// fn(begin, end) over [0, n) in chunks of `grain`.
template <class F>
void for_range(const KernelArgs& args, int64_t n, int64_t grain, F&& fn) {
  run_tasks(args.pool, (n + grain - 1) / grain,
            [&](int64_t task, int) { fn(task * grain, std::min(n, (task + 1) * grain)); });
}

// Rows of `width` elements to a task, so that a task has about kGrain elements.
inline int64_t rows_per_task(int64_t width) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width));
}

// A tensor as rows along its last dimension.
inline int64_t last_size(const Shape& shape) {
  return shape[shape.rank() - 1];
}
inline int64_t rows_of(const TensorType& type) {
  const int64_t size = last_size(type.shape);
  return size == 0 ? 0 : type.elements() / size;
}

inline int threads_of(const KernelArgs& args) {
  return args.pool == nullptr ? 1 : args.pool->size();
}

}  // namespace trireme::cpu
