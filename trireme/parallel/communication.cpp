// Settings of what ranks exchange (Communication of parallel.h): their keys, what reshards cost, the types of sums.
#include "trireme/base/error.h"
#include "trireme/op/structural.h"
#include "trireme/parallel/parallel.h"

namespace trireme {
namespace {

constexpr int64_t kMostReused = int64_t{1} << 31;

bool is_narrow(DType dtype) {
  return is_floating(dtype) && size_of(dtype) < size_of(DType::kF32);
}

// Of each value, whether layers compute with a narrower copy of it.
std::vector<char> computed_narrow(const Graph& graph) {
  std::vector<char> out(graph.values().size(), 0);
  for (const Node& node : graph.nodes()) {
    if (is_cast(node) && is_narrow(graph.type(node.outputs[0]).dtype)) out[static_cast<size_t>(node.inputs[0])] = 1;
  }
  return out;
}

// The value that the gradient is a wider copy of, or the gradient itself.
ValueId before_casts(const Graph& graph, ValueId id) {
  for (NodeId producer = graph.value(id).producer; producer >= 0 && is_cast(graph.node(producer));
       producer = graph.value(id).producer) {
    id = graph.node(producer).inputs[0];
  }
  return id;
}

}  // namespace

std::vector<Key> keys_of(Communication& options) {
  return {
      {.name = "enable_alltoall",
       .target = &options.all_to_all,
       .doc = "false: where ranks would exchange pieces, an all-gather and a slice are used instead",
       .of_ranks = true},
      {.name = "gradient_fp32_sync",
       .target = &options.gradients_in_f32,
       .doc = "false: gradients of layers in bf16 are summed over ranks in bf16",
       .of_ranks = true,
       .of_training = true},
      {.name = "force_fp32_communication",
       .target = &options.all_in_f32,
       .doc = "every sum over ranks is taken in f32",
       .of_ranks = true},
      {.name = "gradient_accumulation_shard",
       .target = &options.shard_accumulation,
       .doc =
           "what ranks keep slices of, gradients with zero 2 or 3 and tokens of experts in one group, is summed over "
           "ranks for every micro-batch; false: once a step, so that a rank accumulates all of it (always with "
           "numerics = 'invariant')",
       .of_ranks = true,
       .of_training = true},
      {.name = "collective_reuse",
       .target = &options.reuse,
       .doc = "equal collectives of a step are said once in its plan, and bound once to their ranks: the most that "
              "are; 0: none; -1: 1000",
       .check = [](const std::string& name, const KeyTarget& target) { check_range(name, target, -1, kMostReused); },
       .of_ranks = true},
      {.name = "collective_reuse_above",
       .target = &options.reuse_above,
       .doc = "of these, the collectives that stand in the step more often than this",
       .check = check_count,
       .no_effect_with = "collective_reuse = 0",
       .of_ranks = true}};
}

ReshardCosts reshard_costs(const Communication& communication, const Mesh& mesh) {
  ReshardCosts costs;
  if (const std::optional<Machine>& machine = communication.machine) {
    const Mesh ranks = without_micro_batches(mesh);
    require(machine->devices() >= ranks.devices(),
            "machine '{}' has {} devices but the job has {} ranks; name a machine of {} or more", machine->name,
            machine->devices(), ranks.devices(), ranks.devices());
    costs = trireme::reshard_costs(*machine, ranks);
    costs.axes.resize(static_cast<size_t>(mesh.axes()));  // nothing is sent over the others
  }
  costs.enable_all_to_all = communication.all_to_all;
  costs.sum_micro_batches_late = communication.shard_accumulation;
  return costs;
}

std::map<ValueId, DType> sum_types(const Graph& graph, const Communication& communication) {
  std::map<ValueId, DType> out;
  if (communication.all_in_f32) {
    for (size_t id = 0; id < graph.values().size(); ++id) {
      if (is_narrow(graph.values()[id].type->dtype)) out.emplace(static_cast<ValueId>(id), DType::kF32);
    }
    return out;
  }
  const std::vector<char> narrow_copies = computed_narrow(graph);
  for (const Update& update : graph.updates()) {
    if (narrow_copies[static_cast<size_t>(update.parameter)] == 0) continue;
    const ValueId made = before_casts(graph, update.gradient);
    const bool narrow = is_narrow(graph.type(made).dtype);
    if (communication.gradients_in_f32 && narrow) out.emplace(made, DType::kF32);
    if (!communication.gradients_in_f32 && !narrow) out.emplace(made, DType::kBF16);
  }
  return out;
}

}  // namespace trireme
