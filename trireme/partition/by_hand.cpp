#include "trireme/partition/by_hand.h"

#include "trireme/base/error.h"
#include "trireme/partition/partition.h"

namespace trireme {
namespace {

// The tensor that all pieces of one shape make.
Shape whole_of(Shape piece, const Layout& layout, const Mesh& mesh) {
  for (int dim = 0; dim < piece.rank(); ++dim) piece[dim] *= layout.cuts(dim, mesh);
  return piece;
}

}  // namespace

Layout piece_layout(const Input& input, const Shape& piece, const Mesh& mesh) {
  if (input.piece.empty()) return Layout::replicated(piece.rank());
  if (input.piece.is_own()) {
    require(piece.rank() > 0, "{} '{}' is a scalar of each rank's own; give it a dimension, of size 1",
            to_string(input.role), input.name);
    Layout layout = Layout::replicated(piece.rank());
    for (int axis = 0; axis < mesh.axes(); ++axis) layout.dims[0].push_back(axis);
    return layout;
  }
  Layout layout = input.piece.layout()->on(mesh);
  layout.dims.resize(static_cast<size_t>(piece.rank()));
  require(!layout.is_partial(), "{} '{}' lies as {}: a piece can be a part of a cut dimension, not a term of a sum",
          to_string(input.role), input.name, to_string(input.piece));
  check(layout, whole_of(piece, layout, mesh), mesh, input.name);
  return layout;
}

Program by_hand(const Graph& graph, const Strategy& uncut) {
  Program program = partition(graph, uncut);
  program.by_hand = true;
  const auto lay = [&](ValueId id, const Input& input) {
    const auto i = static_cast<size_t>(id);
    const Shape piece = program.graph.type(id).shape;
    program.layouts[i] = piece_layout(input, piece, program.mesh);
    program.whole[i] = whole_of(piece, program.layouts[i], program.mesh);
  };
  for (const Input& input : program.graph.inputs()) lay(input.value, input);
  for (const Output& output : program.graph.outputs()) {
    if (output.updates == kNoValue) continue;
    lay(output.value, program.graph.inputs()[static_cast<size_t>(program.graph.value(output.updates).index)]);
  }
  return program;
}

}  // namespace trireme
