#include "trireme/train/report/utilisation.h"

#include <vector>

#include "trireme/backend/cpu/device/peak.h"
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

double peak_flops_per_s(comm::World* world, ThreadPool& pool, DType compute) {
  const Peak peak = measure_peak(pool, {.bytes = int64_t{1} << 20, .turns = 200'000, .repetitions = 3});
  auto own = static_cast<float>(compute == DType::kBF16 ? peak.bf16_flops_per_s : peak.f32_flops_per_s);
  if (world != nullptr)
    world->all().all_reduce({reinterpret_cast<std::byte*>(&own), {DType::kF32, {1}}}, comm::Reduce::kSum).wait();
  return own;
}

}  // namespace trireme
