// fused_rows: the steps one after the other, each by the kernel that its op has; steps on elements that follow each
// other in one shape are one kernel (chain.h).
#include "trireme/backend/cuda/chain.h"
#include "trireme/backend/cuda/element_code.h"
#include "trireme/backend/cuda/kernels.h"
#include "trireme/backend/cuda/state.h"
#include "trireme/base/error.h"
#include "trireme/op/row_steps.h"

namespace trireme::cuda {
namespace {

// Steps that one kernel does.
struct Group {
  bool is_chain = false;
  std::vector<size_t> steps;
};

struct FusedWork {
  RowSteps steps;
  std::vector<TensorType> types;  // of values
  std::vector<Group> groups;
  std::vector<int64_t> offsets;  // of values between steps, in the scratch; -1: not there
  int64_t between_bytes = 0;     // of all of them
  int64_t kernel_bytes = 0;      // then, what one kernel needs at most
  std::string why_not;
};

std::vector<TensorType> types_of_values(const FusedWork& work, std::span<const int> values) {
  std::vector<TensorType> out;
  for (const int value : values) out.push_back(work.types[static_cast<size_t>(value)]);
  return out;
}

bool is_on_elements(const FusedWork& work, const RowStep& step) {
  const auto in = types_of_values(work, step.in), out = types_of_values(work, step.out);
  return !reads_coordinates(step.op->name) && element_code({step.op->name, {in, out, step.attrs}}).has_value();
}

void make_groups(FusedWork& work) {
  const Shape* shape = nullptr;  // of the chain that goes on
  for (size_t i = 0; i < work.steps.steps.size(); ++i) {
    const RowStep& step = work.steps.steps[i];
    const bool is_chain = is_on_elements(work, step);
    const Shape& made = work.types[static_cast<size_t>(step.out[0])].shape;
    if (!is_chain || shape == nullptr || !(*shape == made)) work.groups.push_back({is_chain, {}});
    work.groups.back().steps.push_back(i);
    shape = is_chain ? &made : nullptr;
  }
}

// Values that a group makes and something outside of it reads.
std::vector<int> results_of(const FusedWork& work, const Group& group) {
  std::vector<int> out;
  for (const size_t made : group.steps) {
    for (const int value : work.steps.steps[made].out) {
      bool is_read = std::ranges::count(work.steps.results, value) > 0;
      for (size_t i = group.steps.back() + 1; i < work.steps.steps.size() && !is_read; ++i)
        is_read = std::ranges::count(work.steps.steps[i].in, value) > 0;
      if (is_read || !group.is_chain) out.push_back(value);
    }
  }
  return out;
}

std::vector<int> operands_of(const FusedWork& work, const Group& group) {
  std::vector<int> made, out;
  for (const size_t i : group.steps) {
    const RowStep& step = work.steps.steps[i];
    for (const int value : step.in) {
      if (std::ranges::count(made, value) == 0 && std::ranges::count(out, value) == 0) out.push_back(value);
    }
    made.insert(made.end(), step.out.begin(), step.out.end());
  }
  return out;
}

int64_t rounded_up(int64_t bytes) {
  constexpr int64_t kAligned = 256;
  return (bytes + kAligned - 1) / kAligned * kAligned;
}

FusedWork work_of(std::span<const TensorType> in, const Attrs& attrs) {
  FusedWork work{.steps = parse_row_steps(attrs.as<FusedRowsAttrs>())};
  for (const RowValue& value : row_values(work.steps, in)) work.types.push_back(value.type);
  work.offsets.assign(work.types.size(), -1);
  make_groups(work);
  for (const Group& group : work.groups) {
    for (const int value : results_of(work, group)) {
      const auto v = static_cast<size_t>(value);
      if (std::ranges::count(work.steps.results, value) > 0) continue;
      work.offsets[v] = work.between_bytes;
      work.between_bytes += rounded_up(work.types[v].bytes());
    }
    if (group.is_chain) continue;
    const RowStep& step = work.steps.steps[group.steps[0]];
    const auto of_step = types_of_values(work, step.in), made = types_of_values(work, step.out);
    const CudaKernel* const kernel = kernel_for(*step.op, {of_step, made, step.attrs});
    if (kernel == nullptr) {
      work.why_not = fmt::format("{} has no kernel here", step.op->name);
      continue;
    }
    work.kernel_bytes = std::max(work.kernel_bytes, kernel->scratch_bytes({of_step, made, step.attrs}));
  }
  return work;
}

// -- in a call ---------------------------------------------------------------------------------------

struct BoundGroup {
  std::optional<BoundChain> chain;
  KernelFn* kernel = nullptr;
  std::vector<int> in, out;
  std::shared_ptr<void> state;
};

struct BoundFused {
  FusedWork work;
  std::vector<BoundGroup> groups;
};

Chain chain_of_group(const FusedWork& work, const Group& group, std::span<const int> in, std::span<const int> out) {
  Chain chain{.shape = work.types[static_cast<size_t>(work.steps.steps[group.steps[0]].out[0])].shape};
  std::vector<int> number(work.types.size(), -1);  // in the chain
  const auto add = [&](int value) {
    number[static_cast<size_t>(value)] = static_cast<int>(chain.values.size());
    chain.values.push_back(work.types[static_cast<size_t>(value)]);
  };
  const auto numbers = [&](std::span<const int> values) {
    std::vector<int> all;
    for (const int value : values) all.push_back(number[static_cast<size_t>(value)]);
    return all;
  };
  for (const int value : in) add(value);
  chain.operands = in.size();
  for (const size_t i : group.steps) {
    const RowStep& step = work.steps.steps[i];
    for (const int value : step.out) add(value);
    const auto of_step = types_of_values(work, step.in), made = types_of_values(work, step.out);
    chain.steps.push_back({.code = element_code({step.op->name, {of_step, made, step.attrs}}).value(),
                           .in = numbers(step.in),
                           .out = numbers(step.out)});
  }
  chain.results = numbers(out);
  return chain;
}

BoundFused bound_to(Gpu& gpu, const KernelArgs& args) {
  std::vector<TensorType> in;
  for (const View& view : args.in) in.push_back(view.type);
  BoundFused out{.work = work_of(in, args.attrs)};
  for (const Group& group : out.work.groups) {
    BoundGroup bound;
    const RowStep& step = out.work.steps.steps[group.steps[0]];
    bound.in = group.is_chain ? operands_of(out.work, group) : step.in;
    bound.out = group.is_chain ? results_of(out.work, group) : step.out;
    const auto of_step = types_of_values(out.work, bound.in), made = types_of_values(out.work, bound.out);
    if (group.is_chain) {
      bound.chain.emplace(gpu, chain_of_group(out.work, group, bound.in, bound.out));
    } else {
      bound.kernel = kernel_for(*step.op, {of_step, made, step.attrs})->run;
    }
    out.groups.push_back(std::move(bound));
  }
  return out;
}

View view_of(const BoundFused& bound, const KernelArgs& args, int value) {
  const auto v = static_cast<size_t>(value);
  if (v < args.in.size()) return args.in[v];
  const auto& results = bound.work.steps.results;
  if (const auto at = std::ranges::find(results, value); at != results.end())
    return args.out[static_cast<size_t>(at - results.begin())];
  return {args.scratch.data() + bound.work.offsets[v], bound.work.types[v], Memory::kDevice};
}

void run_fused_rows(const KernelArgs& args) {
  CudaStream& stream = CudaStream::of(args);
  const auto bound = kept<BoundFused>(args, [&] { return bound_to(stream.gpu(), args); });
  for (size_t i = 0; i < bound->groups.size(); ++i) {
    BoundGroup& group = bound->groups[i];
    std::vector<View> in, out;
    for (const int value : group.in) in.push_back(view_of(*bound, args, value));
    for (const int value : group.out) out.push_back(view_of(*bound, args, value));
    if (group.chain) {
      group.chain->run(stream, in, out);
      continue;
    }
    const RowStep& step = bound->work.steps.steps[bound->work.groups[i].steps[0]];
    group.kernel({.in = in,
                  .out = out,
                  .in_place = {},
                  .out_place = {},
                  .attrs = step.attrs,
                  .scratch = args.scratch.subspan(static_cast<size_t>(bound->work.between_bytes)),
                  .pool = args.pool,
                  .state = &group.state,
                  .stream = args.stream});
  }
}

std::string why_no_fused_rows(const TypeArgs& args) {
  return work_of(args.in, args.attrs).why_not;
}

int64_t fused_rows_scratch(const TypeArgs& args) {
  const FusedWork work = work_of(args.in, args.attrs);
  return work.between_bytes + work.kernel_bytes;
}

}  // namespace

std::span<const CudaKernel> fused_rows_kernels() {
  static const CudaKernel kernels[] = {{"fused_rows", "steps", run_fused_rows, why_no_fused_rows, fused_rows_scratch}};
  return kernels;
}

}  // namespace trireme::cuda
