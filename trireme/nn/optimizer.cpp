#include "trireme/nn/optimizer.h"

#include <limits>

#include "trireme/base/error.h"
#include "trireme/ops/ops.h"

namespace trireme {

double learning_rate(const Optimizer& optimizer) {
  return std::visit([](const auto& o) { return o.lr; }, optimizer);
}

namespace {

constexpr double kMost = std::numeric_limits<float>::max();  // updates are computed in f32

void check_at_least_0(std::string_view what, double value) {
  require(value >= 0 && value <= kMost, "optimizer: {} {}; it must be 0 or more, within what f32 holds", what, value);
}
void check_share(std::string_view what, double value) {
  require(value >= 0 && static_cast<float>(value) < 1, "optimizer: {} {}; it must be from 0 to below 1 in f32", what,
          value);
}

}  // namespace

void check(const Optimizer& optimizer) {
  std::visit(
      [](const auto& o) {
        require(o.lr <= kMost && static_cast<float>(o.lr) > 0,
                "optimizer: learning rate {}; it must be above 0, within what f32 holds", o.lr);
        check_at_least_0("weight decay", o.weight_decay);
        if constexpr (requires { o.momentum; }) {
          check_share("momentum", o.momentum);
        } else {
          check_share("beta1", o.beta1);
          check_share("beta2", o.beta2);
          check_at_least_0("eps", o.eps);
        }
      },
      optimizer);
}

namespace nn {
namespace {

Tensor state(const UpdateOperands& in, std::string_view suffix, std::vector<ValueId>& states) {
  Graph& graph = in.param.graph();
  const Input param = graph.inputs()[static_cast<size_t>(graph.value(in.param.id()).index)];
  states.push_back(graph.add_input(fmt::format("{}.{}", in.name, suffix), in.param.type(), Role::kState, {},
                                   param.saved_as, param.piece));
  return {graph, states.back()};
}

void replace(const UpdateOperands& in, std::string_view suffix, const Tensor& value, const Tensor& old) {
  Graph& graph = in.param.graph();
  graph.add_output(suffix.empty() ? in.name : fmt::format("{}.{}", in.name, suffix), value.id(), old.id());
}

void update(const Sgd& o, const UpdateOperands& in, std::vector<ValueId>& states) {
  if (o.momentum == 0) {
    replace(in, "", sgd_plain_update(in.param, in.grad, in.lr, in.scale, o.weight_decay), in.param);
    return;
  }
  const Tensor velocity = state(in, "velocity", states);
  const SgdUpdate out = sgd_update({in.param, in.grad, velocity, in.lr, in.step, in.scale},
                                   {.momentum = o.momentum, .weight_decay = o.weight_decay, .nesterov = o.nesterov});
  replace(in, "", out.param, in.param);
  replace(in, "velocity", out.velocity, velocity);
}

template <class Options>
void update_adam(const Options& o, const UpdateOperands& in, bool decoupled, std::vector<ValueId>& states) {
  const Tensor m = state(in, "m", states);
  const Tensor v = state(in, "v", states);
  const AdamUpdate out = adam_update({in.param, in.grad, m, v, in.lr, in.step, in.scale},
                                     {o.beta1, o.beta2, o.eps, o.weight_decay, decoupled});
  replace(in, "", out.param, in.param);
  replace(in, "m", out.m, m);
  replace(in, "v", out.v, v);
}

void update(const Adam& o, const UpdateOperands& in, std::vector<ValueId>& states) {
  update_adam(o, in, false, states);
}
void update(const AdamW& o, const UpdateOperands& in, std::vector<ValueId>& states) {
  update_adam(o, in, true, states);
}

void update(const Lamb& o, const UpdateOperands& in, std::vector<ValueId>& states) {
  const Tensor m = state(in, "m", states);
  const Tensor v = state(in, "v", states);
  const AdamUpdate out =
      lamb_update({in.param, in.grad, m, v, in.lr, in.step, in.scale}, {o.beta1, o.beta2, o.eps, o.weight_decay, true});
  replace(in, "", out.param, in.param);
  replace(in, "m", out.m, m);
  replace(in, "v", out.v, v);
}

}  // namespace

void add_update(const Optimizer& optimizer, const UpdateOperands& in) {
  Graph& graph = in.param.graph();
  const Mark outer = graph.mark();
  graph.set_mark({.phase = Phase::kUpdate});
  graph.set_scope("update/" + in.name);
  Update made{.parameter = in.param.id(), .gradient = in.grad.id()};
  std::visit([&](const auto& o) { update(o, in, made.states); }, optimizer);
  graph.add_update(std::move(made));
  graph.set_mark(outer);
}

}  // namespace nn
}  // namespace trireme
