#include "trireme/train/report/utilisation.h"

#include <optional>
#include <vector>

#include "trireme/op/op_def.h"

namespace trireme {

double flops_of(const Graph& graph) {
  double out = 0;
  for (const Node& node : graph.nodes()) {
    const OpDef& op = def_of(node);
    if (!op.cost) continue;
    std::vector<TensorType> in, results;
    for (const ValueId id : node.inputs) in.push_back(graph.type(id));
    for (const ValueId id : node.outputs) results.push_back(graph.type(id));
    out += op.cost.get()({in, results, node.attrs}).flops;
  }
  return out;
}

double peak_flops_per_s(comm::World* world, ThreadPool& pool, const Device& device, DType compute) {
  const std::optional<Peak> peak =
      device.measure_peak(pool, {.bytes = int64_t{1} << 20, .turns = 200'000, .repetitions = 3});
  if (!peak) return 0;
  auto own = static_cast<float>(compute == DType::kBF16 ? peak->bf16_flops_per_s : peak->f32_flops_per_s);
  if (world != nullptr)
    world->all().all_reduce({reinterpret_cast<std::byte*>(&own), {DType::kF32, {1}}}, comm::Reduce::kSum).wait();
  return own;
}

}  // namespace trireme
