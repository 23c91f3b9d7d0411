// fused_rows: each step's own kernel on a block of rows that fits the second-level cache, block after block. So every
// element goes through the same operations as in a kernel of its own, and has the same bits.
#include <algorithm>

#include "trireme/backend/cpu/kernels.h"
#include "trireme/backend/cpu/tasks.h"
#include "trireme/op/row_steps.h"

namespace trireme::cpu {
namespace {

constexpr int64_t kAlign = 64;

int64_t aligned(int64_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

// How a call works, from types alone.
struct Work {
  RowSteps steps;
  std::vector<RowValue> values;
  std::vector<const Kernel*> kernels;  // of steps
  int64_t rows = 0;
  int64_t block = 1;      // rows of a block
  std::vector<int> slot;  // of values in scratch; -1: operands and results
  int slots = 0;
  int64_t slot_bytes = 0;
  int64_t step_bytes = 0;  // scratch of a step's kernel

  int64_t row_elements(size_t id) const { return rows == 0 ? 0 : values[id].type.elements() / rows; }
  int64_t row_bytes(size_t id) const { return row_elements(id) * size_of(values[id].type.dtype); }
  int64_t thread_bytes() const { return slots * slot_bytes + aligned(step_bytes); }

  // The type of so many rows of a value.
  TensorType piece(size_t id, int64_t count) const {
    TensorType type = values[id].type;
    if (!values[id].by_row) return type;
    for (int dim = 0; dim < steps.row_dims; ++dim) type.shape[dim] = dim + 1 < steps.row_dims ? 1 : count;
    return type;
  }
};

// Values between steps share slots: one is free after the last step that reads its value.
void give_slots(Work& work) {
  work.slot.assign(work.values.size(), -1);
  std::vector<size_t> last(work.values.size(), 0);
  for (size_t s = 0; s < work.steps.steps.size(); ++s) {
    const RowStep& step = work.steps.steps[s];
    for (const int id : step.in) last[static_cast<size_t>(id)] = s;
    for (const int id : step.out) last[static_cast<size_t>(id)] = s;
  }
  std::vector<size_t> free_after;  // of slots
  for (size_t s = 0; s < work.steps.steps.size(); ++s) {
    for (const int id : work.steps.steps[s].out) {
      if (std::find(work.steps.results.begin(), work.steps.results.end(), id) != work.steps.results.end()) continue;
      const auto value = static_cast<size_t>(id);
      const auto found = std::find_if(free_after.begin(), free_after.end(), [&](size_t after) { return after < s; });
      work.slot[value] = static_cast<int>(found - free_after.begin());
      if (found == free_after.end())
        free_after.push_back(last[value]);
      else
        *found = last[value];
      work.slot_bytes = std::max(work.slot_bytes, aligned(work.block * work.row_bytes(value)));
    }
  }
  work.slots = static_cast<int>(free_after.size());
}

Work work_of(std::span<const TensorType> in, const Attrs& attrs) {
  Work work{.steps = parse_row_steps(attrs.as<FusedRowsAttrs>())};
  work.values = row_values(work.steps, in);
  const auto first = static_cast<size_t>(work.steps.results[0]);
  work.rows = count_rows(work.values[first].type.shape, work.steps.row_dims);
  int64_t width = 1;
  for (size_t id = 0; id < work.values.size(); ++id) {
    if (work.values[id].by_row) width = std::max(width, work.row_elements(id));
  }
  work.block = rows_per_task(width);
  for (const RowStep& step : work.steps.steps) {
    std::vector<TensorType> from, to;
    for (const int id : step.in) from.push_back(work.piece(static_cast<size_t>(id), work.block));
    for (const int id : step.out) to.push_back(work.piece(static_cast<size_t>(id), work.block));
    const TypeArgs types{from, to, step.attrs};
    work.kernels.push_back(&choose_kernel(*step.op, types, Numerics::kInvariant));
    work.step_bytes = std::max(work.step_bytes, work.kernels.back()->scratch_bytes(types, 1));
  }
  give_slots(work);
  return work;
}

int64_t fused_rows_scratch(const TypeArgs& args, int threads) {
  return threads * work_of(args.in, args.attrs).thread_bytes();
}

// The work with a thread's views of a block, made once.
struct Bound {
  struct Step {
    std::vector<View> in, out;
  };
  Work work;
  std::vector<std::vector<Step>> of_threads;

  explicit Bound(const KernelArgs& args) {
    std::vector<TensorType> in;
    for (const View& view : args.in) in.push_back(view.type);
    work = work_of(in, args.attrs);
    std::vector<Step> steps;
    for (const RowStep& step : work.steps.steps)
      steps.push_back({std::vector<View>(step.in.size()), std::vector<View>(step.out.size())});
    of_threads.assign(static_cast<size_t>(threads_of(args)), steps);
  }
};

// One block in the hands of one thread.
class FusedBlock {
 public:
  FusedBlock(const KernelArgs& args, const Work& work, int64_t block, int thread)
      : args_(args),
        work_(work),
        first_(block * work.block),
        count_(std::min(work.rows - first_, work.block)),
        scratch_(args.scratch.subspan(static_cast<size_t>(thread * work.thread_bytes()),
                                      static_cast<size_t>(work.thread_bytes()))) {}

  void run(std::vector<Bound::Step>& views) const {
    for (size_t s = 0; s < work_.steps.steps.size(); ++s) {
      const RowStep& step = work_.steps.steps[s];
      Bound::Step& at = views[s];
      for (size_t i = 0; i < at.in.size(); ++i) at.in[i] = view(static_cast<size_t>(step.in[i]));
      for (size_t i = 0; i < at.out.size(); ++i) at.out[i] = view(static_cast<size_t>(step.out[i]));
      std::shared_ptr<void> state;
      work_.kernels[s]->run({.in = at.in,
                             .out = at.out,
                             .in_place = {},
                             .out_place = {},
                             .attrs = step.attrs,
                             .scratch = scratch_.subspan(static_cast<size_t>(work_.slots * work_.slot_bytes)),
                             .state = &state});
    }
  }

 private:
  View view(size_t id) const { return {data(id), work_.piece(id, count_)}; }
  std::byte* data(size_t id) const {
    if (work_.slot[id] >= 0) return scratch_.data() + work_.slot[id] * work_.slot_bytes;
    const int64_t offset = work_.values[id].by_row ? first_ * work_.row_bytes(id) : 0;
    if (id < args_.in.size()) return args_.in[id].data + offset;
    const auto& results = work_.steps.results;
    const auto result = std::find(results.begin(), results.end(), static_cast<int>(id)) - results.begin();
    return args_.out[static_cast<size_t>(result)].data + offset;
  }

  const KernelArgs& args_;
  const Work& work_;
  int64_t first_;
  int64_t count_;
  std::span<std::byte> scratch_;
};

void run_fused_rows(const KernelArgs& args) {
  std::shared_ptr<void> own;
  std::shared_ptr<void>& state = args.state != nullptr ? *args.state : own;
  if (!state) state = std::make_shared<Bound>(args);
  Bound& bound = *static_cast<Bound*>(state.get());
  run_tasks(args.pool, (bound.work.rows + bound.work.block - 1) / bound.work.block, [&](int64_t block, int thread) {
    FusedBlock(args, bound.work, block, thread).run(bound.of_threads[static_cast<size_t>(thread)]);
  });
}

}  // namespace

std::span<const Kernel> fused_rows_kernels() {
  static constexpr Kernel kAll[] = {
      {
          .op = "fused_rows",
          .name = "fused_rows.blocks",
          .scratch = fused_rows_scratch,
          .run = run_fused_rows,
          .bits = Bits::kElement,
      },
  };
  return kAll;
}

}  // namespace trireme::cpu
