// Graphs that are cut by hand: every rank's inputs are its own pieces, and the collectives between
// ranks stand in the graph. The compiler is told that everything is replicated, so it adds nothing.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/comm/comm.h"
#include "trireme/exec/lowering/plan_execution.h"
#include "trireme/exec/run/executor.h"
#include "trireme/ops/ops.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/passes.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::testing_support {

inline ExecutionPlan plan_by_hand(const Graph& graph, const Mesh& mesh) {
  std::vector<Layout> layouts;
  for (const Input& input : graph.inputs()) {
    layouts.push_back(Layout::replicated(graph.type(input.value).shape.rank()));
  }
  return plan_execution(run_passes(partition(graph, propagate(graph, mesh, layouts))));
}

using Pieces = std::map<std::string, HostTensor>;  // of one rank, by name

// One step on the inputs of this rank.
inline Pieces run_step(Executor& executor, const Pieces& inputs) {
  for (const auto& [name, tensor] : inputs) {
    const auto bytes = tensor.view().raw();
    std::copy(bytes.begin(), bytes.end(), executor.input(name).raw().begin());
  }
  executor.run();
  Pieces out;
  for (const PlanOutput& output : executor.plan().outputs) {
    const View view = executor.output(output.name);
    HostTensor piece(view.type);
    std::copy(view.raw().begin(), view.raw().end(), piece.view().raw().begin());
    out.emplace(output.name, std::move(piece));
  }
  return out;
}

// One step on ranks that are threads: `inputs` and the result have an entry a rank.
inline std::vector<Pieces> run_on_ranks(const ExecutionPlan& plan, const std::vector<Pieces>& inputs) {
  std::vector<Pieces> out(inputs.size());
  std::mutex mutex;
  comm::spawn_ranks(static_cast<int>(inputs.size()), "threads", [&](comm::World& world) {
    const auto rank = static_cast<size_t>(world.rank());
    Executor executor(plan, {.world = &world});
    Pieces pieces = run_step(executor, inputs[rank]);
    const std::lock_guard lock(mutex);
    out[rank] = std::move(pieces);
  });
  return out;
}

inline Tensor data_input(Graph& graph, const std::string& name, const TensorType& type) {
  return {graph, graph.add_input(name, type, Role::kData)};
}

using Step = std::function<Tensor(const Tensor& x)>;

// What the step makes on every rank of an operand of this type that holds `value(rank, i)`.
inline std::vector<std::vector<int64_t>> results_of(const Mesh& mesh, const TensorType& type,
                                                    const std::function<int64_t(int64_t, int64_t)>& value,
                                                    const Step& step) {
  Graph graph("values");
  const Tensor x = data_input(graph, "x", {DType::kI64, type.shape});
  graph.add_output("y", cast(step(cast(x, type.dtype)), DType::kI64).id());
  const ExecutionPlan plan = plan_by_hand(graph, mesh);
  std::vector<Pieces> inputs(static_cast<size_t>(mesh.devices()));
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    HostTensor own(TensorType{DType::kI64, type.shape});
    for (int64_t i = 0; i < type.elements(); ++i) {
      own.as<int64_t>()[static_cast<size_t>(i)] = value(static_cast<int64_t>(rank), i);
    }
    inputs[rank].emplace("x", std::move(own));
  }
  std::vector<std::vector<int64_t>> out;
  for (const Pieces& pieces : run_on_ranks(plan, inputs)) {
    const auto y = pieces.at("y").as<int64_t>();
    out.emplace_back(y.begin(), y.end());
  }
  return out;
}

// What an op says to an operand that it does not take; "none" when it takes it.
inline std::string refusal(const TensorType& type, const Step& step) {
  Graph graph("refused");
  try {
    step(data_input(graph, "x", type));
  } catch (const Error& e) {
    return e.kind() == ErrorKind::kInvalidArgument ? e.text() : "of another kind: " + e.text();
  }
  return "none";
}

}  // namespace trireme::testing_support
