// Graphs of plain ops on ranks that are threads: what each rank holds of the outputs, joined, and what was sent.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <mutex>

#include "trireme/base/hash.h"
#include "trireme/base/rng.h"
#include "trireme/comm/comm.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/run/executor.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::testing_support {

// Element i of the tensor `name` is a function of both only.
inline float element_of(std::string_view name, int64_t i) {
  return normal({7, hash64(name)}, static_cast<uint64_t>(i), 0);
}

inline int64_t whole_index(const Shape& whole, const Box& box, int64_t local) {
  int64_t at = 0;
  int64_t stride = 1;
  for (int dim = whole.rank(); dim-- > 0; stride *= whole[dim]) {
    at += (box.start[dim] + local % box.size[dim]) * stride;
    local /= box.size[dim];
  }
  return at;
}

struct OnRanks {
  std::map<std::string, std::vector<float>> outputs;  // of rank 0, whole
  std::map<std::string, int64_t> bytes;               // sent by rank 0 in the run, by collective
  std::map<std::string, int64_t> calls;
  Program program;
  Strategy strategy;
  int64_t total_bytes() const {
    int64_t out = 0;
    for (const auto& [kind, sent] : bytes) out += sent;
    return out;
  }
};

inline void fill_inputs(Executor& executor) {
  const ExecutionPlan& plan = executor.plan();
  for (const PlanInput& input : plan.inputs) {
    const View view = executor.input(input.name);
    const Box box = executor.input_box(input.name);
    const Shape& whole = plan.values[static_cast<size_t>(input.value)].whole;
    for (int64_t i = 0; i < view.elements(); ++i) {
      const int64_t at = whole_index(whole, box, i);
      if (view.type.dtype == DType::kF32) {
        view.as<float>()[static_cast<size_t>(i)] = element_of(input.name, at);
      } else {
        view.as<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(at % 7);
      }
    }
  }
}

inline OnRanks run_on_ranks(const Graph& graph, int ranks, const Parallel& parallel,
                            const std::function<void(Executor&)>& fill = fill_inputs) {
  OnRanks out;
  out.strategy = semi_auto(graph, ranks, parallel);
  out.program = partition(graph, out.strategy,
                          {.costs = reshard_costs(parallel.communication, out.strategy.mesh),
                           .sum_types = sum_types(graph, parallel.communication),
                           .summed_once = summed_once(graph, out.strategy.sums)});
  const std::vector<std::string> wrong = verify(out.program);
  invariant(wrong.empty(), "{}", wrong.empty() ? "" : wrong.front());
  const ExecutionPlan plan = plan_execution(run_passes(out.program));
  const auto body = [&](comm::World* world) {
    Executor executor(plan, {.world = world});
    fill(executor);
    const auto before = world ? world->traffic() : std::vector<comm::World::Traffic>{};
    executor.run();
    if (world && world->rank() != 0) return;
    for (const PlanOutput& output : plan.outputs) {
      const auto values = executor.output(output.name).as<float>();
      out.outputs[output.name].assign(values.begin(), values.end());
    }
    if (!world) return;
    for (const auto& t : world->traffic()) {
      out.bytes[t.kind] += t.bytes;
      out.calls[t.kind] += t.calls;
    }
    for (const auto& t : before) {
      out.bytes[t.kind] -= t.bytes;
      out.calls[t.kind] -= t.calls;
    }
  };
  if (ranks == 1) {
    body(nullptr);
  } else {
    comm::spawn_ranks(ranks, "threads", [&](comm::World& world) { body(&world); });
  }
  return out;
}

}  // namespace trireme::testing_support
