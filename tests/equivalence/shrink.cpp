#include "tests/equivalence/shrink.h"

#include <algorithm>
#include <map>

namespace trireme::equivalence {
namespace {

// What is done to a case's graph.
struct Edit {
  std::vector<char> keep_output;    // of graph.outputs()
  std::map<size_t, ValueId> moved;  // outputs that become other values
  ValueId becomes_input = kNoValue;
  ValueId left_out = kNoValue;  // its readers read `instead`
  ValueId instead = kNoValue;
};

// Rebuilds graph and strategy side by side, with the nodes and inputs that the kept outputs need.
class Editor {
 public:
  Editor(const Case& test, const Edit& edit)
      : test_(test),
        from_(test.graph),
        edit_(edit),
        needed_(from_.values().size(), 0),
        map_(from_.values().size(), kNoValue),
        nodes_(from_.nodes().size(), -1) {}

  Case run() {
    mark_needed();
    out_ = test_;
    out_.graph = Graph(from_.name());
    out_.strategy = {.mesh = test_.strategy.mesh, .stages = test_.strategy.stages};
    layouts_ = value_layouts(from_, test_.strategy);
    for (size_t id = 0; id < from_.values().size(); ++id) {
      if (needed_[id]) add(static_cast<ValueId>(id));
    }
    for (size_t i = 0; i < from_.outputs().size(); ++i) {
      const Output& output = from_.outputs()[i];
      if (!edit_.keep_output[i]) continue;
      const ValueId updates = updated_by(i) == kNoValue ? kNoValue : mapped(updated_by(i));
      out_.graph.add_output(output.name, mapped(value_of(i)), updates);
      out_.strategy.outputs.push_back(edit_.moved.contains(i) ? Layout::replicated(from_.type(value_of(i)).shape.rank())
                                                              : test_.strategy.outputs[i]);
    }
    out_.graph.carry_gradients(from_, map_);
    for (const Update& update : from_.updates()) carry(update);
    return std::move(out_);
  }

 private:
  ValueId source(ValueId id) const { return id == edit_.left_out ? edit_.instead : id; }
  ValueId mapped(ValueId id) const { return map_[static_cast<size_t>(source(id))]; }

  ValueId value_of(size_t output) const {
    const auto moved = edit_.moved.find(output);
    return moved == edit_.moved.end() ? from_.outputs()[output].value : moved->second;
  }

  // A moved output is another value than the one that replaces the input.
  ValueId updated_by(size_t output) const {
    return edit_.moved.contains(output) ? kNoValue : from_.outputs()[output].updates;
  }

  // An update of which a part is gone is one no more.
  void carry(Update update) {
    bool whole = true;
    const auto keep = [&](ValueId& id, bool replaced) {
      id = mapped(id);
      whole =
          whole && id != kNoValue &&
          (!replaced || std::ranges::any_of(out_.graph.outputs(), [&](const Output& o) { return o.updates == id; }));
    };
    keep(update.parameter, true);
    keep(update.gradient, false);
    for (ValueId& state : update.states) keep(state, true);
    if (whole) out_.graph.add_update(std::move(update));
  }

  void mark_needed() {
    const auto need = [&](ValueId id) { needed_[static_cast<size_t>(source(id))] = 1; };
    for (size_t i = 0; i < from_.outputs().size(); ++i) {
      if (!edit_.keep_output[i]) continue;
      need(value_of(i));
      if (updated_by(i) != kNoValue) need(updated_by(i));
    }
    for (size_t id = from_.values().size(); id-- > 0;) {
      const Value& value = from_.values()[id];
      if (!needed_[id] || value.producer < 0 || static_cast<ValueId>(id) == edit_.becomes_input) continue;
      for (const ValueId input : from_.node(value.producer).inputs) need(input);
    }
  }

  std::string fresh_name() const {
    for (size_t n = 0;; ++n) {
      const std::string name = fmt::format("cut{}", n);
      if (std::ranges::none_of(from_.inputs(), [&](const Input& input) { return input.name == name; })) return name;
    }
  }

  void add(ValueId id) {
    const Value& value = from_.value(id);
    const auto i = static_cast<size_t>(id);
    if (id == edit_.becomes_input) {
      map_[i] = out_.graph.add_input(fresh_name(), value.type, Role::kData);
      Layout layout = layouts_[i];
      layout.partial.clear();
      if (!fits(layout, value.type->shape, out_.strategy.mesh)) layout = Layout::replicated(layout.rank());
      out_.strategy.inputs.push_back(layout);
    } else if (value.producer < 0) {
      const Input& input = from_.inputs()[static_cast<size_t>(value.index)];
      map_[i] = out_.graph.add_input(input.name, value.type, input.role, input.init, input.saved_as, input.piece);
      out_.strategy.inputs.push_back(test_.strategy.inputs[static_cast<size_t>(value.index)]);
    } else if (nodes_[static_cast<size_t>(value.producer)] < 0) {
      add_node(value.producer);
    }
  }

  void add_node(NodeId id) {
    const Node& node = from_.node(id);
    std::vector<ValueId> in;
    std::vector<TensorType> types;
    for (const ValueId input : node.inputs) in.push_back(mapped(input));
    for (const ValueId output : node.outputs) types.push_back(from_.type(output));
    out_.graph.mark_as(from_, node, node.gradient_of < 0 ? -1 : nodes_[static_cast<size_t>(node.gradient_of)]);
    const NodeId made = out_.graph.add_node(*node.op, node.attrs, in, types);
    nodes_[static_cast<size_t>(id)] = made;
    out_.strategy.nodes.push_back(test_.strategy.nodes[static_cast<size_t>(id)]);
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (node.outputs[k] != edit_.becomes_input) {
        map_[static_cast<size_t>(node.outputs[k])] = out_.graph.node(made).outputs[k];
      }
    }
  }

  const Case& test_;
  const Graph& from_;
  const Edit& edit_;
  std::vector<char> needed_;
  std::vector<ValueId> map_;
  std::vector<NodeId> nodes_;
  std::vector<Layout> layouts_;
  Case out_;
};

void drop_axis(Axes& axes, int axis) {
  erase_if(axes, [&](int other) { return other == axis; });
  for (int& other : axes) other -= other > axis ? 1 : 0;
}

void drop_axis(PartialAxes& partial, int axis) {
  erase_if(partial, [&](const PartialAxis& p) { return p.axis == axis; });
  for (PartialAxis& other : partial) other.axis -= other.axis > axis ? 1 : 0;
}

Case without_axis(Case test, int axis) {
  std::vector<MeshAxis> axes;
  int64_t parts = 1, chunks = 1;
  for (int i = 0; i < test.strategy.mesh.axes(); ++i) {
    if (i == axis) continue;
    const int64_t size = test.strategy.mesh.axis(i).size;
    if (is_micro_batch_axis(test.strategy.mesh, i)) {
      parts *= size;
      if (is_seq_chunk_axis(test.strategy.mesh, i)) chunks *= size;
    } else {
      axes.push_back({fmt::format("a{}", axes.size()), size});
    }
  }
  test.strategy.mesh = with_micro_batches(Mesh(axes), parts, chunks);
  if (chunks == 1 && test.schedule == "seq-1f1b") test.schedule = "1f1b";
  if (parts / chunks < test.crews) test.crews = 1, test.strategy.stages.clear();
  for (std::vector<Layout>* layouts : {&test.strategy.inputs, &test.strategy.outputs}) {
    for (Layout& layout : *layouts) {
      for (Axes& dim : layout.dims) drop_axis(dim, axis);
    }
  }
  for (FactorCuts& cuts : test.strategy.nodes) {
    for (Axes& factor : cuts.axes) drop_axis(factor, axis);
    drop_axis(cuts.through, axis);
    if (cuts.through.empty()) cuts.linear_set = -1;
  }
  return test;
}

class Shrinker {
 public:
  Shrinker(Case test, const std::function<bool(const Case&)>& goes_wrong)
      : best_(std::move(test)), goes_wrong_(goes_wrong) {}

  Case run() {
    for (bool changed = true; changed && tries_ < kTries;) {
      changed = fewer_steps();
      changed = without_passes() || changed;
      changed = fewer_options() || changed;
      changed = fewer_outputs() || changed;
      changed = earlier_outputs() || changed;
      changed = fewer_nodes() || changed;
      changed = fewer_axes() || changed;
      changed = fewer_cuts() || changed;
    }
    return std::move(best_);
  }

 private:
  static constexpr int kTries = 1500;

  bool attempt(Case candidate) {
    if (gives_inputs_back(candidate.graph)) return false;
    if (++tries_ > kTries || !goes_wrong_(candidate)) return false;
    best_ = std::move(candidate);
    return true;
  }

  // An output that is an input is found as the step leaves it, which is another matter.
  static bool gives_inputs_back(const Graph& graph) {
    return std::any_of(graph.outputs().begin(), graph.outputs().end(),
                       [&](const Output& output) { return graph.value(output.value).producer < 0; });
  }

  Edit all_outputs() const { return {.keep_output = std::vector<char>(best_.graph.outputs().size(), 1)}; }

  bool fewer_steps() {
    if (best_.steps == 1) return false;
    Case candidate = best_;
    candidate.steps = 1;
    return attempt(std::move(candidate));
  }

  bool without_passes() {
    if (!best_.passes) return false;
    Case candidate = best_;
    candidate.passes = false;
    return attempt(std::move(candidate));
  }

  bool fewer_options() {
    bool changed = false;
    const auto with = [&](auto change) {
      Case candidate = best_;
      change(candidate);
      if (to_string(candidate) != to_string(best_)) changed = attempt(std::move(candidate)) || changed;
    };
    with([](Case& c) { c.bucket_ends.clear(); });
    with([](Case& c) { c.fusion = "sizes"; });
    with([](Case& c) { c.reuse = 0; });
    with([](Case& c) { c.transport = "threads"; });
    with([](Case& c) { c.threads = 1; });
    with([](Case& c) { c.recompute = "none"; });
    with([](Case& c) { c.homes = "device"; });
    with([](Case& c) { c.home_tier = "host"; });
    with([](Case& c) { c.homed = "state"; });
    with([](Case& c) { c.on_host = "none"; });
    with([](Case& c) { c.loss_pieces = 1; });
    with([](Case& c) { c.is_saved = false; });
    with([](Case& c) { c.sums = "own"; });
    with([](Case& c) { c.rates = "usual"; });
    with([](Case& c) { c.isa = "machine"; });
    with([](Case& c) { c.device = "cpu"; });
    with([](Case& c) { c.lingers = false; });
    with([](Case& c) { c.slices = false; });
    with([](Case& c) { c.evaluates = false; });
    return changed;
  }

  bool fewer_outputs() {
    const size_t count = best_.graph.outputs().size();
    for (size_t only = 0; count > 1 && only < count; ++only) {
      Edit edit{.keep_output = std::vector<char>(count, 0)};
      edit.keep_output[only] = 1;
      if (attempt(Editor(best_, edit).run())) return true;
    }
    bool changed = false;
    for (size_t i = best_.graph.outputs().size(); i-- > 0 && best_.graph.outputs().size() > 1;) {
      Edit edit = all_outputs();
      edit.keep_output[i] = 0;
      changed = attempt(Editor(best_, edit).run()) || changed;
    }
    return changed;
  }

  // An output becomes an operand of the node that makes it.
  bool earlier_outputs() {
    bool changed = false;
    for (size_t i = 0; i < best_.graph.outputs().size(); ++i) {
      for (bool moved = true; moved;) moved = move_output(i), changed = changed || moved;
    }
    return changed;
  }

  bool move_output(size_t i) {
    const Output& output = best_.graph.outputs()[i];
    const NodeId producer = best_.graph.value(output.value).producer;
    if (producer < 0) return false;
    const std::vector<ValueId> operands = best_.graph.node(producer).inputs;
    return std::any_of(operands.begin(), operands.end(), [&](ValueId operand) {
      Edit edit = all_outputs();
      edit.moved[i] = operand;
      return attempt(Editor(best_, edit).run());
    });
  }

  bool fewer_nodes() {
    bool changed = false;
    for (size_t id = best_.graph.values().size(); id-- > 0;) {
      if (id >= best_.graph.values().size() || best_.graph.values()[id].producer < 0) continue;
      const auto value = static_cast<ValueId>(id);
      changed = attempt(Editor(best_, with_input(value)).run()) || leave_out(value) || changed;
    }
    return changed;
  }

  Edit with_input(ValueId value) const {
    Edit edit = all_outputs();
    edit.becomes_input = value;
    return edit;
  }

  bool leave_out(ValueId value) {
    const Value& v = best_.graph.value(value);
    if (v.producer < 0) return false;
    const std::vector<ValueId> operands = best_.graph.node(v.producer).inputs;
    for (const ValueId operand : operands) {
      if (best_.graph.type(operand) != best_.graph.type(value)) continue;
      Edit edit = all_outputs();
      edit.left_out = value;
      edit.instead = operand;
      if (attempt(Editor(best_, edit).run())) return true;
    }
    return false;
  }

  bool fewer_axes() {
    if (best_.by_hand) return false;  // its collectives are over the mesh as it is
    bool changed = false;
    for (int axis = best_.strategy.mesh.axes(); axis-- > 0;) changed = attempt(without_axis(best_, axis)) || changed;
    return changed;
  }

  bool fewer_cuts() {
    bool changed = false;
    for (size_t i = 0; i < best_.strategy.nodes.size(); ++i) changed = uncut_node(i) || changed;
    for (size_t i = 0; i < best_.strategy.inputs.size(); ++i) changed = uncut_input(i) || changed;
    for (size_t i = 0; i < best_.strategy.outputs.size(); ++i) {
      Layout& layout = best_.strategy.outputs[i];
      if (layout.is_replicated() || best_.graph.outputs()[i].updates != kNoValue) continue;
      Case candidate = best_;
      candidate.strategy.outputs[i] = Layout::replicated(layout.rank());
      changed = attempt(std::move(candidate)) || changed;
    }
    return changed;
  }

  bool uncut_node(size_t i) {
    const FactorCuts& cuts = best_.strategy.nodes[i];
    const bool any = std::any_of(cuts.axes.begin(), cuts.axes.end(), [](const auto& axes) { return !axes.empty(); });
    if (!any && cuts.linear_set < 0) return false;
    Case candidate = best_;
    candidate.strategy.nodes[i] = {.axes = std::vector<Axes>(cuts.axes.size())};
    return attempt(std::move(candidate));
  }

  bool uncut_input(size_t i) {
    const Layout& layout = best_.strategy.inputs[i];
    if (layout.is_replicated()) return false;
    Case candidate = best_;
    candidate.strategy.inputs[i] = Layout::replicated(layout.rank());
    for (size_t k = 0; k < best_.graph.outputs().size(); ++k) {
      if (best_.graph.outputs()[k].updates == best_.graph.inputs()[i].value) {
        candidate.strategy.outputs[k] = candidate.strategy.inputs[i];
      }
    }
    return attempt(std::move(candidate));
  }

  Case best_;
  const std::function<bool(const Case&)>& goes_wrong_;
  int tries_ = 0;
};

}  // namespace

Case with_outputs(const Case& test, const std::vector<char>& keep) {
  return Editor(test, {.keep_output = keep}).run();
}

Case shrunk(Case test, const std::function<bool(const Case&)>& goes_wrong) {
  return Shrinker(std::move(test), goes_wrong).run();
}

}  // namespace trireme::equivalence
