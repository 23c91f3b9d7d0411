// A model whose parameters and state have homes, for tests: products of square weights one after the other, trained by
// Adam.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "trireme/grad/gradients.h"
#include "trireme/nn/optimizer.h"
#include "trireme/op/structural.h"
#include "trireme/ops/ops.h"

namespace trireme {

// The weights are "w0", "w1" and so on, f32; `in_modules`: each is in one of its own, "h.0.w". The products are
// computed in `dtype`.
inline Graph adam_layers(int layers, int64_t side, bool in_modules, DType dtype = DType::kF32) {
  const auto name = [&](int i) { return in_modules ? fmt::format("h.{}.w", i) : fmt::format("w{}", i); };
  Graph graph("layers");
  Tensor x(graph, graph.add_input("x", {DType::kF32, {2, side}}, Role::kData));
  std::vector<Tensor> weights;
  for (int i = 0; i < layers; ++i) {
    if (in_modules) graph.set_scope(fmt::format("h.{}", i));
    weights.emplace_back(graph, graph.add_input(name(i), {DType::kF32, {side, side}}, Role::kParameter, {}, {}));
    x = tanh(matmul(cast_to(x, dtype), cast_to(weights.back(), dtype)));
  }
  if (in_modules) graph.set_scope("loss");
  const Tensor loss = mean(square(cast_to(x, DType::kF32)));
  graph.add_output("loss", loss.id());
  const std::vector<Tensor> grads = gradients(loss, weights);
  const Tensor lr(graph, graph.add_input("lr", {DType::kF32, {}}, Role::kSchedule));
  const Tensor step(graph, graph.add_input("step", {DType::kI64, {}}, Role::kSchedule));
  graph.set_phase(Phase::kUpdate);
  const Tensor factor = constant(graph, {DType::kF32, {}}, 1);
  for (int i = 0; i < layers; ++i) {
    const auto k = static_cast<size_t>(i);
    nn::add_update(AdamW{}, {name(i), weights[k], grads[k], lr, step, factor});
  }
  return graph;
}

}  // namespace trireme
