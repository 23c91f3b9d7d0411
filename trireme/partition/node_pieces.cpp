#include "trireme/partition/node_pieces.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/op/build.h"
#include "trireme/op/op_attrs.h"
#include "trireme/parallel/strategy/strategy.h"
#include "trireme/partition/copies.h"

namespace trireme {

void record(Program& program, ValueId id, const Layout& layout, const Shape& whole) {
  invariant(id == static_cast<ValueId>(program.layouts.size()), "values are recorded out of order");
  program.layouts.push_back(layout);
  program.whole.push_back(whole);
}

namespace {

// A dimension of a node that its cuts make it see through windows.
struct Windowed {
  WindowedDim dim;
  WindowAttrs attrs;
};

std::vector<Windowed> windows_of(const CutNode& cut, const Mesh& mesh) {
  std::vector<Windowed> out;
  for (const WindowedDim& windowed : cut_windows(cut.rule, cut.cuts)) {
    const Axes& axes = cut.cuts.axes[static_cast<size_t>(windowed.factor)];
    const WindowCut parts = window_cut(cut.rule, windowed, mesh.size_of(axes));
    out.push_back({windowed,
                   {.axes = {axes.begin(), axes.end()},
                    .size = parts.parts,
                    .dim = windowed.dim,
                    .extent = parts.extent,
                    .offset = parts.offset,
                    .step = parts.step,
                    .length = parts.length,
                    .fill = windowed.window.fill}});
  }
  return out;
}

// The dimension becomes `extent` long.
ValueId add_exchange(Program& program, const OpDef& op, ValueId id, const WindowAttrs& attrs, int64_t extent) {
  const auto at = static_cast<size_t>(id);
  const Layout layout = program.layouts[at];
  TensorType whole{program.graph.type(id).dtype, program.whole[at]};
  whole.shape[static_cast<int>(attrs.dim)] = extent;
  return add_to(program, op, Attrs::of(attrs), {&id, 1}, {layout}, {whole}).front();
}

// A node of a ring's steps: a collective leaves the layout as it is, other ops cut their results as their operands
// come.
void record_ring_step(Program& program, const Node& node) {
  const auto layout_of_input = [&](size_t i) -> const Layout& {
    return program.layouts[static_cast<size_t>(node.inputs[i])];
  };
  std::vector<Layout> layouts(node.outputs.size(), layout_of_input(0));
  if (!def_of(node).collective) {
    const RuleOf computed = rule_of(program.graph, node);
    const ShardingRule& rule = *computed;
    FactorCuts cuts;
    cuts.axes.resize(rule.factors.size());
    for (size_t i = 0; i < rule.in.size(); ++i) {
      for (size_t dim = 0; dim < rule.in[i].size(); ++dim) {
        if (rule.in[i][dim].empty()) continue;
        Axes& axes = cuts.axes[static_cast<size_t>(rule.in[i][dim].front())];
        if (axes.empty()) axes = layout_of_input(i).dims[dim];
      }
    }
    layouts = result_layouts(rule, cuts);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    Shape whole = program.graph.type(node.outputs[i]).shape;
    for (int dim = 0; dim < whole.rank(); ++dim) whole[dim] *= layouts[i].cuts(dim, program.mesh);
    record(program, node.outputs[i], layouts[i], whole);
  }
}

// The steps of an op in a ring.
NodePieces add_ring(Program& program, const CutNode& cut, const std::vector<ValueId>& inputs,
                    const std::vector<TensorType>& whole) {
  const Node& node = cut.node;
  const Axes& axes = cut.cuts.axes[static_cast<size_t>(cut.rule.ring->first)];
  const std::vector<Layout> out = result_layouts(cut.rule, cut.cuts);
  CollectiveAttrs group;
  group.axes.assign(axes.begin(), axes.end());
  group.size = program.mesh.size_of(axes);
  std::vector<Tensor> in;
  for (const ValueId id : inputs) in.emplace_back(program.graph, id);
  NodePieces pieces{.first = static_cast<NodeId>(program.graph.nodes().size())};
  invariant(def_of(node).ring != nullptr, "{} has a rule with a ring and no steps", node.op->name);
  const std::vector<Tensor> made = def_of(node).ring({in, node.attrs, Attrs::of(group), group.size});
  for (auto id = pieces.first; id < static_cast<NodeId>(program.graph.nodes().size()); ++id) {
    record_ring_step(program, program.graph.node(id));
  }
  for (size_t i = 0; i < made.size(); ++i) {
    const TensorType local{whole[i].dtype, local_shape(whole[i].shape, out[i], program.mesh)};
    invariant(made[i].type() == local, "the ring of {} makes {} for result {}", node.op->name,
              to_string(made[i].type()), i);
    program.layouts[static_cast<size_t>(made[i].id())] = out[i];
    program.whole[static_cast<size_t>(made[i].id())] = whole[i].shape;
    pieces.results.push_back(cleared(program, cut, i, made[i].id()));
  }
  return pieces;
}

ValueId add_cast(Program& program, ValueId id, DType dtype) {
  const auto at = static_cast<size_t>(id);
  const Layout layout = program.layouts[at];
  const Shape whole = program.whole[at];
  return add_to(program, structural().cast, Attrs::of(CastAttrs{dtype}), {&id, 1}, {layout}, {{dtype, whole}}).front();
}

// One step of a reshard of a value of this whole type.
ValueId add_step(Program& program, ValueId id, const ReshardStep& step, const TensorType& whole) {
  CollectiveAttrs attrs;
  attrs.axes.assign(step.axes.begin(), step.axes.end());
  attrs.dim = std::max(step.dim, 0);
  attrs.from_dim = std::max(step.from_dim, 0);
  attrs.size = program.mesh.size_of(step.axes);
  attrs.reduction = std::string(to_string(step.reduction));
  return add_to(program, structural().step(step.kind), Attrs::of(attrs), {&id, 1}, {step.after}, {whole}).front();
}

// A value times a factor, taken to lie so.
ValueId add_scaled(Program& program, ValueId id, double factor, const Layout& layout) {
  const TensorType whole{program.graph.type(id).dtype, program.whole[static_cast<size_t>(id)]};
  return add_to(program, structural().scale, Attrs::of(ScalarAttrs{factor}), {&id, 1}, {layout}, {whole}).front();
}

}  // namespace

NodePieces add_node_pieces(Program& program, const CutNode& cut, std::vector<ValueId> inputs,
                           const std::vector<TensorType>& whole, const TakeWindows& take_windows) {
  const auto& [node, rule, cuts] = cut;
  for (size_t i = 0; i < inputs.size(); ++i) inputs[i] = ready_to_read(program, cut, i, inputs[i]);
  if (is_ring(rule, cuts) && !goes_by_chunks(rule, cuts, program.mesh)) return add_ring(program, cut, inputs, whole);
  const std::vector<Layout> out = result_layouts(rule, cuts);
  std::vector<TensorType> made = whole;
  Attrs attrs =
      cuts.vouched && cuts.vouched->parts > 1 ? def_of(node).in_part(node.attrs, cuts.vouched->parts) : node.attrs;
  const std::vector<Windowed> windows = windows_of(cut, program.mesh);
  for (const Windowed& w : windows) {
    const auto tensor = static_cast<size_t>(w.dim.tensor);
    attrs = def_of(node).in_window(attrs, w.dim.dim, w.attrs.length);
    if (w.attrs.cut().is_plain()) continue;
    if (w.dim.is_result) {
      made[tensor].shape[w.dim.dim] = w.attrs.size * w.attrs.length;
    } else {
      inputs[tensor] = take_windows(inputs[tensor], w.attrs);
    }
  }
  NodePieces pieces{.first = static_cast<NodeId>(program.graph.nodes().size())};
  if (cuts.copies > 1) {
    pieces.first = add_copies(program, {node, rule, cuts, inputs, out, made}, pieces.results);
  } else {
    pieces.results = add_to(program, *node.op, attrs, inputs, out, made);
  }
  for (const Windowed& w : windows) {
    if (!w.dim.is_result || w.attrs.cut().is_plain()) continue;
    ValueId& result = pieces.results[static_cast<size_t>(w.dim.tensor)];
    result = add_exchange(program, structural().add_windows, result, w.attrs, w.attrs.extent);
  }
  for (size_t i = 0; i < pieces.results.size(); ++i) {
    ValueId& result = pieces.results[i];
    // A rank's own term, times the number of terms it stands for.
    if (cuts.vouched && cuts.vouched->factor != 1)
      result = add_scaled(program, result, cuts.vouched->factor, program.layouts[static_cast<size_t>(result)]);
    result = cleared(program, cut, i, result);
  }
  return pieces;
}

ValueId add_take_windows(Program& program, ValueId id, const WindowAttrs& attrs) {
  return add_exchange(program, structural().take_windows, id, attrs, attrs.size * attrs.length);
}

ValueId add_delivery(Program& program, const Delivery& delivery, ValueId from, DType sums) {
  if (delivery.kind == Delivery::Kind::kResize)
    return resized(program, from, delivery.old_size, delivery.size, delivery.whole);
  const DType own = program.graph.type(from).dtype;
  const ReshardStep::Kind kind = delivery.step.kind;
  const bool reduces = kind == ReshardStep::Kind::kAllReduce || kind == ReshardStep::Kind::kReduceScatter;
  if (!reduces || sums == own) return add_step(program, from, delivery.step, {own, delivery.whole});
  const ValueId widened = add_cast(program, from, sums);
  return add_cast(program, add_step(program, widened, delivery.step, {sums, delivery.whole}), own);
}

ValueId add_mean(Program& program, ValueId id, const Axes& axes, const Layout& want, ReshardPlanner& planner) {
  const TensorType whole{program.graph.type(id).dtype, program.whole[static_cast<size_t>(id)]};
  Layout have = program.layouts[static_cast<size_t>(id)];
  for (const int axis : axes) {
    require(!have.uses(axis),
            "the mean of a value over ranks that have each a part of it; it is for values that each has of its own");
    have.add_partial(axis, Reduction::kSum);
  }
  ValueId out = add_scaled(program, id, 1 / static_cast<double>(program.mesh.size_of(axes)), have);
  for (const ReshardStep& step : planner.plan(have, want, whole).steps) out = add_step(program, out, step, whole);
  return out;
}

}  // namespace trireme
