#include "trireme/partition/partition.h"

#include <algorithm>
#include <map>
#include <optional>

#include "trireme/base/error.h"
#include "trireme/op/build.h"
#include "trireme/op/op_attrs.h"
#include "trireme/op/structural.h"
#include "trireme/partition/copies.h"
#include "trireme/partition/frames.h"

namespace trireme {
namespace {

class Partitioner {
 public:
  Partitioner(const Graph& graph, const Strategy& strategy, const PartitionOptions& options)
      : graph_(graph),
        strategy_(strategy),
        options_(options),
        planner_(strategy.mesh, options.costs),
        wants_(graph.values().size()),
        placed_(graph.values().size()) {
    program_.graph = Graph(graph.name());
    program_.mesh = strategy.mesh;
    if (!strategy.stages.empty()) stages_ = stages_of(graph, strategy.stages);
  }

  Program run() {
    collect_wants();
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const Input& input = graph_.inputs()[i];
      const Layout& layout = strategy_.inputs[i];
      const TensorType local = local_type(input.value, layout);
      const ValueId made =
          program_.graph.add_input(input.name, local, input.role, input.init, input.saved_as, input.piece);
      record(made, layout, graph_.type(input.value).shape);
      placed_[static_cast<size_t>(input.value)].push_back({layout, made});
    }
    for (size_t i = 0; i < graph_.nodes().size(); ++i) add_node(graph_.nodes()[i], strategy_.nodes[i]);
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      const Output& output = graph_.outputs()[i];
      const auto mean = strategy_.means.find(i);
      program_.graph.set_stage(stage_of(graph_.value(output.value).producer));
      const ValueId value = mean == strategy_.means.end() ? find(output.value, strategy_.outputs[i], Phase::kUpdate)
                                                          : mean_of(output.value, mean->second, strategy_.outputs[i]);
      program_.graph.add_output(output.name, value, output.updates == kNoValue ? kNoValue : as_made(output.updates));
    }
    std::vector<ValueId> became;
    for (size_t id = 0; id < graph_.values().size(); ++id) became.push_back(as_made(static_cast<ValueId>(id)));
    program_.graph.carry_gradients(graph_, became);
    for (const auto& [value, read] : read_by_update_) became[static_cast<size_t>(value)] = read;
    program_.graph.carry_updates(graph_, became);
    return std::move(program_);
  }

 private:
  struct Placed {
    Layout layout;
    ValueId id;
    Phase phase = Phase::kForward;  // that it is made for
    int stage = -1;                 // that it is made on
  };

  int stage_of(NodeId node) const { return node < 0 || stages_.empty() ? -1 : stages_[static_cast<size_t>(node)]; }

  ValueId as_made(ValueId whole_id) const { return placed_[static_cast<size_t>(whole_id)].front().id; }

  // Which layouts each value is read in. Values that nodes make are resharded right after; inputs where they are read.
  void collect_wants() {
    const auto want = [&](ValueId id, const Layout& layout) {
      std::vector<Layout>& wants = wants_[static_cast<size_t>(id)];
      if (std::find(wants.begin(), wants.end(), layout) == wants.end()) wants.push_back(layout);
    };
    rules_.reserve(graph_.nodes().size());
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      rules_.push_back(rule_of(graph_, node));
      const std::string illegal = why_illegal(*rules_.back(), strategy_.nodes[i], strategy_.mesh);
      require(illegal.empty(), "strategy of {} at '{}': {}", node.op->name, graph_.scope_of(node), illegal);
      const std::vector<Layout> layouts = operand_layouts(*rules_.back(), strategy_.nodes[i]);
      for (size_t k = 0; k < node.inputs.size(); ++k) want(node.inputs[k], layouts[k]);
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      if (!strategy_.means.contains(i)) want(graph_.outputs()[i].value, strategy_.outputs[i]);
    }
  }

  void add_node(const Node& node, const FactorCuts& cuts) {
    const ShardingRule& rule = *rules_[static_cast<size_t>(&node - graph_.nodes().data())];
    const std::vector<Layout> in = operand_layouts(rule, cuts);
    const std::vector<Layout> out = result_layouts(rule, cuts);
    program_.graph.mark_as(graph_, node, node.gradient_of < 0 ? -1 : made_of_[static_cast<size_t>(node.gradient_of)]);
    program_.graph.set_stage(stage_of(static_cast<NodeId>(&node - graph_.nodes().data())));
    std::vector<ValueId> inputs;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const ValueId read = find(node.inputs[i], in[i], node.phase);
      if (node.phase == Phase::kUpdate && graph_.value(node.inputs[i]).producer >= 0)
        read_by_update_[node.inputs[i]] = read;
      inputs.push_back(ready_to_read(program_, {node, rule, cuts}, i, read));
    }
    if (is_ring(rule, cuts) && !goes_by_chunks(rule, cuts, program_.mesh))
      return add_ring({node, rule, cuts}, inputs, out);
    std::vector<TensorType> whole;
    for (const ValueId id : node.outputs) whole.push_back(graph_.type(id));
    Attrs attrs =
        cuts.vouched && cuts.vouched->parts > 1 ? def_of(node).in_part(node.attrs, cuts.vouched->parts) : node.attrs;
    const std::vector<Windowed> windows = windows_of(rule, cuts);
    for (const Windowed& w : windows) {
      const auto tensor = static_cast<size_t>(w.dim.tensor);
      attrs = def_of(node).in_window(attrs, w.dim.dim, w.attrs.length);
      if (w.attrs.cut().is_plain()) continue;
      if (w.dim.is_result) {
        whole[tensor].shape[w.dim.dim] = w.attrs.size * w.attrs.length;
      } else {
        inputs[tensor] = take_windows(inputs[tensor], w.attrs);
      }
    }
    made_of_.push_back(static_cast<NodeId>(program_.graph.nodes().size()));
    std::vector<ValueId> results;
    if (cuts.copies > 1) {
      made_of_.back() = add_copies(program_, {node, rule, cuts, inputs, out, whole}, results);
    } else {
      results = add_to(program_, *node.op, attrs, inputs, out, whole);
    }
    for (const Windowed& w : windows) {
      if (!w.dim.is_result || w.attrs.cut().is_plain()) continue;
      ValueId& result = results[static_cast<size_t>(w.dim.tensor)];
      result = add_exchange(structural().add_windows, result, w.attrs, w.attrs.extent);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      place(node.outputs[i], cleared(program_, {node, rule, cuts}, i, scaled(results[i], cuts)), out[i]);
    }
  }

  // A rank's own term, times the number of terms it stands for.
  ValueId scaled(ValueId id, const FactorCuts& cuts) {
    if (!cuts.vouched || cuts.vouched->factor == 1) return id;
    return scaled(id, cuts.vouched->factor, program_.layouts[static_cast<size_t>(id)]);
  }
  ValueId scaled(ValueId id, double factor, const Layout& result) {
    const TensorType whole{program_.graph.type(id).dtype, program_.whole[static_cast<size_t>(id)]};
    return add_to(program_, structural().scale, Attrs::of(ScalarAttrs{factor}), {&id, 1}, {result}, {whole}).front();
  }

  // The mean of a value over axes whose ranks have each their own.
  ValueId mean_of(ValueId whole_id, const std::vector<int>& axes, const Layout& want) {
    const Placed own = placed_[static_cast<size_t>(whole_id)].front();
    Layout have = own.layout;
    for (const int axis : axes) {
      require(!have.uses(axis),
              "the mean of %{} over ranks that have each a part of it; it is for values that each has of its own",
              whole_id);
      have.add_partial(axis, Reduction::kSum);
    }
    ValueId id = scaled(own.id, 1 / static_cast<double>(strategy_.mesh.size_of(axes)), have);
    for (const ReshardStep& step : planner_.plan(have, want, graph_.type(whole_id)).steps)
      id = add_step(id, step, graph_.type(whole_id));
    return id;
  }

  // A dimension of a node that its cuts make it see through windows.
  struct Windowed {
    WindowedDim dim;
    WindowAttrs attrs;
  };

  std::vector<Windowed> windows_of(const ShardingRule& rule, const FactorCuts& cuts) const {
    std::vector<Windowed> out;
    for (const WindowedDim& windowed : cut_windows(rule, cuts)) {
      const std::vector<int>& axes = cuts.axes[static_cast<size_t>(windowed.factor)];
      const WindowCut cut = window_cut(rule, windowed, strategy_.mesh.size_of(axes));
      out.push_back({windowed,
                     {.axes = {axes.begin(), axes.end()},
                      .size = cut.parts,
                      .dim = windowed.dim,
                      .extent = cut.extent,
                      .offset = cut.offset,
                      .step = cut.step,
                      .length = cut.length,
                      .fill = windowed.window.fill}});
    }
    return out;
  }

  // The windows of a value, taken once for all that read them.
  ValueId take_windows(ValueId id, const WindowAttrs& attrs) {
    ValueId& known = windows_.try_emplace({id, Attrs::of(attrs).text()}, kNoValue).first->second;
    const bool is_there = known != kNoValue && phase_of(known) <= program_.graph.mark().phase;
    if (!is_there) known = add_exchange(structural().take_windows, id, attrs, attrs.size * attrs.length);
    return known;
  }

  Phase phase_of(ValueId id) const { return program_.graph.node(program_.graph.value(id).producer).phase; }

  // The dimension becomes `extent` long.
  ValueId add_exchange(const OpDef& op, ValueId id, const WindowAttrs& attrs, int64_t extent) {
    const Layout layout = program_.layouts[static_cast<size_t>(id)];
    Shape whole = program_.whole[static_cast<size_t>(id)];
    whole[static_cast<int>(attrs.dim)] = extent;
    const TensorType local{program_.graph.type(id).dtype, local_shape(whole, layout, strategy_.mesh)};
    const NodeId node = program_.graph.add_node(op, Attrs::of(attrs), std::span<const ValueId>(&id, 1),
                                                std::span<const TensorType>(&local, 1));
    const ValueId made = program_.graph.node(node).outputs[0];
    record(made, layout, whole);
    return made;
  }

  // The steps of an op in a ring.
  void add_ring(const CutNode& cut, const std::vector<ValueId>& inputs, const std::vector<Layout>& out) {
    const Node& node = cut.node;
    const std::vector<int>& axes = cut.cuts.axes[static_cast<size_t>(cut.rule.ring->first)];
    CollectiveAttrs group;
    group.axes.assign(axes.begin(), axes.end());
    group.size = strategy_.mesh.size_of(axes);
    std::vector<Tensor> in;
    for (const ValueId id : inputs) in.emplace_back(program_.graph, id);
    const auto first = static_cast<NodeId>(program_.graph.nodes().size());
    invariant(def_of(node).ring != nullptr, "{} has a rule with a ring and no steps", node.op->name);
    const std::vector<Tensor> made = def_of(node).ring({in, node.attrs, Attrs::of(group), group.size});
    for (auto id = first; id < static_cast<NodeId>(program_.graph.nodes().size()); ++id) {
      record_step(program_.graph.node(id));
    }
    made_of_.push_back(first);
    for (size_t i = 0; i < made.size(); ++i) {
      invariant(made[i].type() == local_type(node.outputs[i], out[i]), "the ring of {} makes {} for result {}",
                node.op->name, to_string(made[i].type()), i);
      program_.layouts[static_cast<size_t>(made[i].id())] = out[i];
      program_.whole[static_cast<size_t>(made[i].id())] = graph_.type(node.outputs[i]).shape;
      place(node.outputs[i], cleared(program_, cut, i, made[i].id()), out[i]);
    }
  }

  // A node of a ring's steps: a collective leaves the layout as it is, other ops cut their results as their operands
  // come.
  void record_step(const Node& node) {
    const auto layout_of_input = [&](size_t i) -> const Layout& {
      return program_.layouts[static_cast<size_t>(node.inputs[i])];
    };
    std::vector<Layout> layouts(node.outputs.size(), layout_of_input(0));
    if (!def_of(node).collective) {
      const RuleOf computed = rule_of(program_.graph, node);
      const ShardingRule& rule = *computed;
      FactorCuts cuts;
      cuts.axes.resize(rule.factors.size());
      for (size_t i = 0; i < rule.in.size(); ++i) {
        for (size_t dim = 0; dim < rule.in[i].size(); ++dim) {
          if (rule.in[i][dim].empty()) continue;
          std::vector<int>& axes = cuts.axes[static_cast<size_t>(rule.in[i][dim].front())];
          if (axes.empty()) axes = layout_of_input(i).dims[dim];
        }
      }
      layouts = result_layouts(rule, cuts);
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      Shape whole = program_.graph.type(node.outputs[i]).shape;
      for (int dim = 0; dim < whole.rank(); ++dim) whole[dim] *= layouts[i].cuts(dim, program_.mesh);
      record(node.outputs[i], layouts[i], whole);
    }
  }

  // Notes where a value is, and makes every other layout it is read in.
  void place(ValueId whole_id, ValueId id, const Layout& layout) {
    placed_[static_cast<size_t>(whole_id)].push_back({layout, id});
    for (const Layout& want : wants_[static_cast<size_t>(whole_id)]) {
      if (want != layout) reshard(whole_id, id, layout, want, Phase::kForward);
    }
  }

  // Layouts whose frames differ meet where the dimensions in question are whole.
  ValueId reshard(ValueId whole_id, ValueId id, const Layout& have, const Layout& want, Phase phase) {
    const TensorType& whole = graph_.type(whole_id);
    const Shape from = frame(whole.shape, have, program_.mesh);
    const Shape to = frame(whole.shape, want, program_.mesh);
    if (from == to) return take_steps(whole_id, id, have, want, phase);
    const Layout middle = whole_where_differ(have, from, to);
    const Shape between = frame(whole.shape, middle, program_.mesh);
    if (const ValueId known = lookup(whole_id, middle, phase); known != kNoValue) {
      id = known;
    } else {
      id = resized(program_, take_steps(whole_id, id, have, middle, phase), from, between, whole.shape);
      placed_[static_cast<size_t>(whole_id)].push_back({middle, id, phase, program_.graph.mark().stage});
    }
    Shape widened = between;
    for (int dim = 0; dim < to.rank(); ++dim) {
      if (from[dim] != to[dim]) widened[dim] = to[dim];
    }
    return take_steps(whole_id, resized(program_, id, between, widened, widened), middle, want, phase);
  }

  // Steps between layouts of one frame. What is not cut as the frame has it is of the frame's size.
  ValueId take_steps(ValueId whole_id, ValueId id, Layout have, const Layout& want, Phase phase) {
    const TensorType whole{graph_.type(whole_id).dtype,
                           frame(program_.whole[static_cast<size_t>(id)], have, program_.mesh)};
    for (const ReshardStep& step : planner_.plan(have, want, whole).steps) {
      const bool natural = frame(graph_.type(whole_id).shape, step.after, program_.mesh) == whole.shape;
      if (const ValueId known = natural ? lookup(whole_id, step.after, phase) : kNoValue; known != kNoValue) {
        id = known;
      } else {
        id = add_step_in(sum_type(whole_id, step), id, step, natural ? graph_.type(whole_id) : whole);
        if (natural)
          placed_[static_cast<size_t>(whole_id)].push_back({step.after, id, phase, program_.graph.mark().stage});
      }
      have = step.after;
    }
    invariant(have == want, "reshard of %{} ends in another layout", whole_id);
    return id;
  }

  // The type in which the step moves a value.
  DType sum_type(ValueId whole_id, const ReshardStep& step) const {
    const bool reduces = step.kind == ReshardStep::Kind::kAllReduce || step.kind == ReshardStep::Kind::kReduceScatter;
    const auto other = options_.sum_types.find(whole_id);
    return reduces && other != options_.sum_types.end() ? other->second : graph_.type(whole_id).dtype;
  }

  ValueId add_step_in(DType dtype, ValueId id, const ReshardStep& step, const TensorType& whole) {
    if (dtype == whole.dtype) return add_step(id, step, whole);
    return add_cast(add_step(add_cast(id, dtype), step, {dtype, whole.shape}), whole.dtype);
  }

  ValueId add_cast(ValueId id, DType dtype) {
    const auto at = static_cast<size_t>(id);
    const Layout layout = program_.layouts[at];
    const Shape whole = program_.whole[at];
    return add_to(program_, structural().cast, Attrs::of(CastAttrs{dtype}), {&id, 1}, {layout}, {{dtype, whole}})
        .front();
  }

  ValueId add_step(ValueId id, const ReshardStep& step, const TensorType& whole) {
    CollectiveAttrs attrs;
    attrs.axes.assign(step.axes.begin(), step.axes.end());
    attrs.dim = std::max(step.dim, 0);
    attrs.from_dim = std::max(step.from_dim, 0);
    attrs.size = strategy_.mesh.size_of(step.axes);
    attrs.reduction = std::string(to_string(step.reduction));
    return add_to(program_, structural().step(step.kind), Attrs::of(attrs), {&id, 1}, {step.after}, {whole}).front();
  }

  // An input of the graph in another layout is made once for the forward and once for the backward pass of a stage,
  // each time where it is first read: a weight gathered from its slices is not kept in between.
  ValueId lookup(ValueId whole_id, const Layout& layout, Phase phase) const {
    const std::vector<Placed>& all = placed_[static_cast<size_t>(whole_id)];
    const bool per_pass = graph_.value(whole_id).producer < 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const bool same_pass = (all[i].phase == Phase::kBackward) == (phase == Phase::kBackward) &&
                             all[i].phase <= phase && all[i].stage == program_.graph.mark().stage;
      if (all[i].layout == layout && (!per_pass || i == 0 || same_pass)) return all[i].id;
    }
    return kNoValue;
  }

  ValueId find(ValueId whole_id, const Layout& layout, Phase phase) {
    const ValueId id = lookup(whole_id, layout, phase);
    if (id != kNoValue) return id;
    invariant(graph_.value(whole_id).producer < 0, "%{} is not placed as {}", whole_id,
              to_string(layout, strategy_.mesh));
    const Placed own = placed_[static_cast<size_t>(whole_id)].front();
    return reshard(whole_id, own.id, own.layout, layout, phase);
  }

  TensorType local_type(ValueId whole_id, const Layout& layout) const {
    const TensorType& whole = graph_.type(whole_id);
    return {whole.dtype, local_shape(whole.shape, layout, strategy_.mesh)};
  }

  void record(ValueId id, const Layout& layout, const Shape& whole) {
    invariant(id == static_cast<ValueId>(program_.layouts.size()), "values are recorded out of order");
    program_.layouts.push_back(layout);
    program_.whole.push_back(whole);
  }

  const Graph& graph_;
  const Strategy& strategy_;
  const PartitionOptions& options_;
  ReshardPlanner planner_;
  std::vector<int> stages_;  // of the graph's nodes; empty: there is no pipeline
  std::vector<std::vector<Layout>> wants_;
  std::vector<std::vector<Placed>> placed_;  // per whole value: where it is already; the first is its own
  std::vector<RuleOf> rules_;
  std::vector<NodeId> made_of_;  // per node of the graph
  std::map<std::pair<ValueId, std::string>, ValueId> windows_;
  std::map<ValueId, ValueId> read_by_update_;  // values of the graph, as the update phase reads them last
  Program program_;
};

}  // namespace

Program partition(const Graph& graph, const Strategy& strategy, const PartitionOptions& options) {
  return Partitioner(graph, strategy, options).run();
}

}  // namespace trireme
