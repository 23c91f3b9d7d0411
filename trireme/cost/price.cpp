#include "trireme/cost/price.h"

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/op/call_kinds.h"

namespace trireme {
namespace {

constexpr int64_t kMostPs = int64_t{100} * 24 * 3600 * 1'000'000'000'000;

[[noreturn]] void fail_too_long() {
  fail(ErrorKind::kInvalidArgument,
       "a training step takes more than 100 days by the rates of its machine; take a smaller batch (train.batch counts "
       "samples, not tokens), more ranks, or the rates of a faster machine");
}

}  // namespace

CostModel::CostModel(Mesh mesh, const Rates& rates)
    : mesh_(std::move(mesh)), links_(rates.links), machine_(rates.machine ? *rates.machine : Machine::this_host()) {}

int64_t CostModel::op_ps(const OpDef& op, const TypeArgs& types, bool on_host) const {
  const double taken_s = is_communication(op)
                             ? collective_seconds(op, types, mesh_, links_) + packing_seconds(op, types, machine_)
                         : is_move(op) ? move_seconds(move_of(types.attrs), types.out[0].bytes(), machine_)
                         : on_host     ? compute_seconds_on_host(op, types, machine_)
                                       : compute_seconds(op, types, machine_);
  const double taken_ps = std::round(taken_s * 1e12);
  require(taken_ps >= 0 && std::isfinite(taken_ps), "{} takes {} s by the rates of machine '{}'; they must be above 0",
          op.name, taken_s, machine_.name);
  if (taken_ps > static_cast<double>(kMostPs)) fail_too_long();
  return static_cast<int64_t>(taken_ps);
}

int64_t CostModel::node_ps(const Program& program, const Node& node) const {
  std::vector<TensorType> in, out;
  for (const ValueId id : node.inputs) in.push_back(program.graph.type(id));
  for (const ValueId id : node.outputs) out.push_back(program.graph.type(id));
  return op_ps(def_of(node), {in, out, node.attrs}, node.on_host);
}

void check_step(double seconds) {
  if (!(seconds * 1e12 <= static_cast<double>(kMostPs))) fail_too_long();
}

int64_t sum_ps(int64_t a, int64_t b) {
  if (a > kMostPs - b) fail_too_long();
  return a + b;
}

std::vector<int64_t> node_prices_ps(const Program& program, const CostModel& model) {
  if (program.mesh != model.mesh())
    fail(ErrorKind::kInternal, "a program over mesh '{}' is priced for mesh '{}'", to_string(program.mesh),
         to_string(model.mesh()));
  CallKinds kinds;
  OfKind<int64_t> on_device, on_host;
  std::vector<int64_t> out;
  out.reserve(program.graph.nodes().size());
  for (const Node& node : program.graph.nodes()) {
    const int kind = kinds.of(program.graph, node);
    OfKind<int64_t>& ps = node.on_host ? on_host : on_device;
    out.push_back(ps.get(kind, [&] { return model.op_ps(*kinds[kind].op, kinds[kind].types(), node.on_host); }));
  }
  return out;
}

int64_t price_ps(const Program& program, const CostModel& model) {
  int64_t out = 0;
  for (const int64_t ps : node_prices_ps(program, model)) out = sum_ps(out, ps);
  return out;
}

}  // namespace trireme
