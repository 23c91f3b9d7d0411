#include "trireme/nn/optimizer.h"

#include <algorithm>
#include <limits>

#include "trireme/base/error.h"
#include "trireme/ir/graph.h"
#include "trireme/op/build.h"
#include "trireme/op/structural.h"
#include "trireme/ops/ops.h"

namespace trireme {

double learning_rate(const Optimizer& optimizer) {
  return optimizer.spec().learning_rate();
}

void check(const Optimizer& optimizer) {
  const double rate = learning_rate(optimizer);
  constexpr double kMost = std::numeric_limits<float>::max();  // updates are computed in f32
  require(rate <= kMost && static_cast<float>(rate) > 0,
          "optimizer: learning rate {}; it must be above 0, within what f32 holds", rate);
  nn::check_numbers(optimizer.spec(), "optimizer: ");
}

namespace nn {
namespace {

const Input& input_of(const Tensor& tensor) {
  const Graph& graph = tensor.graph();
  return graph.inputs()[static_cast<size_t>(graph.value(tensor.id()).index)];
}

// The gradient's rows are sums over lookups: each with a gradient of one is counted. Empty: it has other terms.
Tensor lookups_of(const Tensor& gradient) {
  Graph& graph = gradient.graph();
  const NodeId producer = graph.value(gradient.id()).producer;
  if (producer < 0 || gradient.rank() != 2) return {};
  const Node node = graph.node(producer);
  const auto of = [&](size_t i) { return lookups_of({graph, node.inputs[i]}); };
  if (def_of(node).as_rows) {
    const Tensor ids(graph, node.inputs[0]);
    Shape ones = ids.shape();
    ones.push_back(1);
    return embedding_grad(ids, full(graph, {DType::kF32, ones}, 1), gradient.size(0));
  }
  if (node.op == &structural().add) {
    const Tensor a = of(0), b = a ? of(1) : Tensor();
    return b ? add(a, b) : Tensor();
  }
  if (is_cast(node)) return of(0);
  if (!does(node, ReshardStep::Kind::kAllReduce) || node.inputs.size() != 1) return {};
  const Tensor own = of(0);
  return own ? apply1(def_of(node), {own}, node.attrs) : Tensor();
}

}  // namespace

Tensor UpdateBuilder::lookups() const {
  Graph& graph = in.param.graph();
  const Mark outer = graph.mark();
  Mark mark = outer;
  mark.phase = Phase::kBackward;  // of each micro-batch, as gradients are
  graph.set_mark(mark);
  const Tensor out = lookups_of(in.grad);
  graph.set_mark(outer);
  return out;
}

Tensor UpdateBuilder::state(std::string_view suffix) {
  const Input param = input_of(in.param);
  states_.push_back(in.param.graph().add_input(fmt::format("{}.{}", in.name, suffix), in.param.type(), Role::kState, {},
                                               param.saved_as, param.piece));
  return {in.param.graph(), states_.back()};
}

void UpdateBuilder::replace(const Tensor& old, const Tensor& value) {
  in.param.graph().add_output(old.id() == in.param.id() ? in.name : input_of(old).name, value.id(), old.id());
}

void check_numbers(const OptimizerSpec& spec, const std::string& where) {
  const auto copy = spec.copy();
  for (const Key& key : copy->keys()) {
    if (key.check != nullptr) key.check(where + std::string(key.name), key.target);
  }
  spec.check(where);
}

std::string describe(const OptimizerSpec& spec) {
  std::string out(spec.title());
  const auto copy = spec.copy();
  for (const Key& key : copy->keys()) {
    std::string name(key.name);
    std::ranges::replace(name, '_', ' ');
    if (auto* const* number = std::get_if<double*>(&key.target)) {
      if (**number != 0) out += fmt::format(", {} {}", name, **number);
    } else if (auto* const* is_on = std::get_if<bool*>(&key.target)) {
      if (**is_on) out += ", " + name;
    } else {
      invariant(false, "optimizer '{}': key '{}' is neither a number nor true or false", spec.kind(), name);
    }
  }
  return out;
}

void add_update(const Optimizer& optimizer, const UpdateOperands& in) {
  Graph& graph = in.param.graph();
  const Mark outer = graph.mark();
  graph.set_mark({.phase = Phase::kUpdate});
  graph.set_scope("update/" + in.name);
  UpdateBuilder build(in);
  optimizer.spec().update(build);
  graph.add_update({.parameter = in.param.id(), .gradient = in.grad.id(), .states = build.states()});
  graph.set_mark(outer);
}

}  // namespace nn
}  // namespace trireme
