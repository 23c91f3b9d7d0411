#include "tests/equivalence/random_updates.h"

#include <algorithm>

#include "trireme/nn/optimizer.h"
#include "trireme/ops/ops.h"
#include "trireme/train/step/by_hand.h"

namespace trireme::equivalence {
namespace {

// Often one that leaves rows alone which have no gradient, where there is a table of many rows.
Optimizer random_optimizer(const std::vector<Tensor>& parameters, Draw& draw) {
  Draw own = draw.beside(2);
  const double eps = draw.of(std::vector<double>{1, 1e-2});
  const Optimizer any = draw.of(std::vector<Optimizer>{
      Sgd{.weight_decay = 0.01}, Sgd{.momentum = 0.9}, Sgd{.momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
      AdamW{.eps = eps}, Adam{.eps = eps, .weight_decay = 0.01}, Lamb{.eps = eps}, LazyAdam{.eps = eps}});
  const bool has_table = std::ranges::any_of(
      parameters, [](const Tensor& each) { return each.rank() == 2 && each.size(0) >= kTableRows; });
  if (!has_table || own.chance(30)) return any;
  return own.of(std::vector<Optimizer>{Sgd{}, LazyAdam{.eps = eps}});
}

Tensor clipping(Graph& graph, const std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients,
                Numerics numerics, const Mesh* mesh, Draw& draw) {
  graph.set_scope("clip");
  const DType stored = parameters.empty() ? DType::kF32 : parameters[0].dtype();
  const bool exact = numerics == Numerics::kInvariant && stored == DType::kF32;
  Tensor sum;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!gradients[i]) continue;
    Tensor squares = exact ? exact_square_sum(gradients[i]) : square_sum(gradients[i]);
    if (mesh != nullptr) squares = sum_over_pieces(squares, parameters[i], *mesh);
    sum = sum ? add(sum, squares) : squares;
  }
  if (!sum) return constant(graph, {stored, {}}, 1);
  if (exact) sum = total_of_digits(sum);
  if (draw.chance(50)) return clip_scale(sum, 0.5);
  return clamp(scale(reciprocal(sqrt(sum) + 1e-6), 0.5), 0, 1);
}

}  // namespace

Tensor schedule(Graph& graph, const std::string& name, DType dtype) {
  for (const Input& input : graph.inputs()) {
    if (input.name == name) return {graph, input.value};
  }
  return {graph, graph.add_input(name, {dtype, {}}, Role::kSchedule)};
}

void add_random_updates(Graph& graph, const std::vector<Tensor>& parameters, const std::vector<Tensor>& gradients,
                        Numerics numerics, const Mesh* mesh, Draw& draw) {
  const Tensor lr = schedule(graph, "lr", DType::kF32);
  const Tensor step = schedule(graph, "step", DType::kI64);
  graph.set_phase(Phase::kUpdate);
  const Tensor factor = draw.chance(40) ? clipping(graph, parameters, gradients, numerics, mesh, draw)
                                        : constant(graph, {DType::kF32, {}}, 1);
  const Optimizer how = random_optimizer(parameters, draw);
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!gradients[i]) continue;
    const std::string name = graph.inputs()[static_cast<size_t>(graph.value(parameters[i].id()).index)].name;
    const bool exact = numerics == Numerics::kInvariant && parameters[i].dtype() == DType::kF32;
    nn::add_update(how, {.name = name,
                         .param = parameters[i],
                         .grad = gradients[i],
                         .lr = lr,
                         .step = step,
                         .scale = factor,
                         .exact_norms = exact});
  }
}

}  // namespace trireme::equivalence
