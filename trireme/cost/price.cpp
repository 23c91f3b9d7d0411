#include "trireme/cost/price.h"

#include <cmath>
#include <numeric>

#include "trireme/base/error.h"

namespace trireme {

CostModel::CostModel(Mesh mesh, const Rates& rates)
    : mesh_(std::move(mesh)), links_(rates.links), machine_(rates.machine ? *rates.machine : Machine::this_host()) {}

int64_t CostModel::op_ps(const OpDef& op, const TypeArgs& types) const {
  const double taken_s =
      is_communication(op) ? collective_seconds(op, types, mesh_, links_) : compute_seconds(op, types, machine_);
  const double taken_ps = std::round(taken_s * 1e12);
  require(taken_ps >= 0 && taken_ps < 9e18, "{} takes {} s by the rates of machine '{}'; they must be above 0", op.name,
          taken_s, machine_.name);
  return static_cast<int64_t>(taken_ps);
}

int64_t CostModel::node_ps(const Program& program, const Node& node) const {
  std::vector<TensorType> in, out;
  for (const ValueId id : node.inputs) in.push_back(program.graph.type(id));
  for (const ValueId id : node.outputs) out.push_back(program.graph.type(id));
  return op_ps(def_of(node), {in, out, node.attrs});
}

std::vector<int64_t> node_prices_ps(const Program& program, const CostModel& model) {
  invariant(program.mesh == model.mesh(), "a program over mesh '{}' is priced for mesh '{}'", to_string(program.mesh),
            to_string(model.mesh()));
  std::vector<int64_t> out;
  for (const Node& node : program.graph.nodes()) out.push_back(model.node_ps(program, node));
  return out;
}

int64_t price_ps(const Program& program, const CostModel& model) {
  const std::vector<int64_t> prices = node_prices_ps(program, model);
  return std::accumulate(prices.begin(), prices.end(), int64_t{0});
}

}  // namespace trireme
