#include "trireme/train/step/graphs/hand_cut.h"

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/ir/gradient_scope.h"
#include "trireme/ops/ops.h"
#include "trireme/partition/by_hand.h"

namespace trireme {
namespace {

const Input& input_of(const Tensor& x) {
  return x.graph().inputs()[static_cast<size_t>(x.graph().value(x.id()).index)];
}

Tensor sum_over(const Tensor& x, const Axes& axes, const Mesh& mesh) {
  if (axes.empty()) return x;
  return all_reduce({&x, 1}, {.axes = {axes.begin(), axes.end()}, .size = mesh.size_of(axes)})[0];
}

}  // namespace

HandCut cut_by_hand(const Parallel& parallel, int64_t ranks, std::vector<BatchField>& batch) {
  if (!parallel.by_hand) return {};
  batch = batch_of_rank(batch, parallel, ranks);
  return {parallel.mesh.empty() ? Mesh({{"dp", ranks}}) : parallel.mesh.whole(), parallel.layerwise};
}

Tensor sum_over_ranks(const Tensor& x, const Mesh& mesh, double parts) {
  const Tensor sum = sum_over(x, Layout::replicated(0).replica_axes(mesh), mesh);
  return parts == 1 ? sum : scale(sum, 1 / parts);
}

void mark_layerwise(const std::vector<Tensor>& parameters, const std::vector<PieceRule>& rules) {
  std::vector<std::string> names;
  for (const Tensor& parameter : parameters) names.push_back(input_of(parameter).name);
  for (const PieceRule& rule : rules) {
    require(!rule.piece.empty(), "layerwise rule '{}' says of no pieces how they lie; give a layout, or 'own'",
            rule.pattern);
    bool any = false;
    for (const Tensor& parameter : parameters) {
      if (!matches(rule.pattern, input_of(parameter).name)) continue;
      any = true;
      parameter.graph().set_piece(parameter.id(), rule.piece);
    }
    require(any, "layerwise rule '{}' matches no parameter.{}", rule.pattern, suggestion(rule.pattern, names));
  }
}

Tensor sum_over_holders(const Tensor& gradient, const Tensor& parameter, const Mesh& mesh) {
  gradient.graph().set_scope(gradient_scope(input_of(parameter).name));
  const Tensor sum =
      sum_over(gradient, piece_layout(input_of(parameter), parameter.shape(), mesh).replica_axes(mesh), mesh);
  sum.graph().add_gradient(parameter.id(), sum.id());
  return sum;
}

Tensor mean_over_holders(const Tensor& value, const Tensor& buffer, const Mesh& mesh) {
  const Axes axes = piece_layout(input_of(buffer), buffer.shape(), mesh).replica_axes(mesh);
  const int64_t holders = mesh.size_of(axes);
  return holders == 1 ? value : scale(sum_over(value, axes, mesh), 1 / static_cast<double>(holders));
}

Tensor sum_over_pieces(const Tensor& x, const Tensor& parameter, const Mesh& mesh) {
  Axes axes;
  for (const Axes& of_dim : piece_layout(input_of(parameter), parameter.shape(), mesh).dims) {
    axes.append(of_dim.begin(), of_dim.end());
  }
  return sum_over(x, axes, mesh);
}

std::vector<BatchField> batch_of_rank(const std::vector<BatchField>& batch, const Parallel& parallel, int64_t ranks) {
  Graph inputs("batch");
  for (const BatchField& field : batch) inputs.add_input(field.name, field.type, Role::kData);
  const Strategy strategy =
      semi_auto(inputs, ranks, {.mesh = parallel.mesh, .dataset = parallel.dataset, .fields = parallel.fields});
  std::vector<BatchField> out;
  for (size_t i = 0; i < batch.size(); ++i) {
    const Layout& layout = strategy.inputs[i];
    const TensorType& whole = batch[i].type;
    out.push_back({batch[i].name,
                   {whole.dtype, local_shape(whole.shape, layout, strategy.mesh)},
                   layout.is_replicated() ? Piece() : Piece(NamedLayout(layout, strategy.mesh))});
  }
  return out;
}

}  // namespace trireme
