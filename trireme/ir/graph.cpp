#include "trireme/ir/graph.h"

#include <algorithm>
#include <iterator>
#include <unordered_set>

#include "trireme/base/error.h"

namespace trireme {

std::string_view to_string(Role role) {
  switch (role) {
    case Role::kData:
      return "data";
    case Role::kParameter:
      return "parameter";
    case Role::kState:
      return "state";
    case Role::kSchedule:
      return "schedule";
  }
  return "?";
}

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kUpdate:
      return "update";
  }
  return "?";
}

std::string to_string(const Init& init) {
  switch (init.kind) {
    case Init::Kind::kConstant:
      return fmt::format("constant({})", init.a);
    case Init::Kind::kNormal:
      return fmt::format("normal({},{})", init.a, init.b);
    case Init::Kind::kUniform:
      return fmt::format("uniform({},{})", init.a, init.b);
  }
  return "?";
}

ValueId Graph::add_input(std::string name, TensorType type, Role role, Init init, Shape saved_as, Piece piece) {
  const auto id = static_cast<ValueId>(values_.size());
  values_.push_back({type, -1, static_cast<int>(inputs_.size())});
  inputs_.push_back({id, role, std::move(name), init, saved_as, std::move(piece)});
  return id;
}

void Graph::set_piece(ValueId input, Piece piece) {
  const Value& value = this->value(input);
  invariant(value.producer < 0, "%{} is no input", input);
  inputs_[static_cast<size_t>(value.index)].piece = std::move(piece);
}

NodeId Graph::add_node(const OpBase& op, Attrs attrs, std::span<const ValueId> inputs,
                       std::span<const TensorType> types) {
  return add_node(op, std::move(attrs), inputs, Few<Shared<TensorType>, 4>(types.begin(), types.end()));
}

NodeId Graph::add_node(const OpBase& op, Attrs attrs, std::span<const ValueId> inputs,
                       std::span<const Shared<TensorType>> types) {
  const auto id = static_cast<NodeId>(nodes_.size());
  for (const ValueId input : inputs) {
    invariant(input >= 0 && input < static_cast<ValueId>(values_.size()), "{}: operand %{} does not exist", op.name,
              input);
  }
  Node& node = nodes_.emplace_back(Node{mark_, &op, std::move(attrs), inputs, {}});
  node.outputs.reserve(types.size());
  for (const Shared<TensorType>& type : types) {
    node.outputs.push_back(static_cast<ValueId>(values_.size()));
    values_.push_back({type, id, static_cast<int>(node.outputs.size()) - 1});
  }
  return id;
}

void Graph::add_output(std::string name, ValueId value, ValueId updates) {
  invariant(value >= 0 && value < static_cast<ValueId>(values_.size()), "output '{}': no value %{}", name, value);
  outputs_.push_back({value, std::move(name), updates});
}

void Graph::set_scope(std::string_view scope) {
  const auto name_of = [&](int id) -> std::string_view { return scopes_[static_cast<size_t>(id)]; };
  const auto at = std::lower_bound(scopes_by_name_.begin(), scopes_by_name_.end(), scope,
                                   [&](int id, std::string_view name) { return name_of(id) < name; });
  if (at != scopes_by_name_.end() && name_of(*at) == scope) {
    mark_.scope = *at;
    return;
  }
  mark_.scope = static_cast<int>(scopes_.size());
  scopes_by_name_.insert(at, mark_.scope);
  scopes_.emplace_back(scope);
}

void Graph::take_scopes(const Graph& from) {
  invariant(nodes_.empty(), "graph '{}' has nodes of its own scopes", name_);
  scopes_ = from.scopes_;
  scopes_by_name_ = from.scopes_by_name_;
}

void Graph::mark_as(const Graph& from, const Node& node, NodeId gradient_of) {
  const SharedText& scope = from.scopes_[static_cast<size_t>(node.scope)];
  const auto same = static_cast<size_t>(node.scope);  // a graph made of another mostly has its scopes in its order
  if (same < scopes_.size() && scopes_[same] == scope) {
    mark_.scope = node.scope;
  } else {
    set_scope(scope);
  }
  mark_ = {mark_.scope, node.phase, gradient_of, node.again, node.stage, node.micro_batch, node.on_host};
}

void Graph::add_fusion_request(FusionRequest request) {
  const auto after = std::ranges::upper_bound(fusion_requests_, request.order, {}, &FusionRequest::order);
  fusion_requests_.insert(after, std::move(request));
}

void Graph::add_gradient(ValueId of, ValueId gradient) {
  invariant(of >= 0 && gradient >= 0 && std::max(of, gradient) < static_cast<ValueId>(values_.size()),
            "no values %{} and %{}, of which one would be the gradient of the other", of, gradient);
  if (is_gradient(gradient, of)) return;
  gradients_.insert(std::ranges::upper_bound(gradients_, gradient, {}, &GradientOf::gradient), {gradient, of});
}

std::span<const GradientOf> Graph::gradients_that_are(ValueId gradient) const {
  const auto found = std::ranges::equal_range(gradients_, gradient, {}, &GradientOf::gradient);
  return {found.begin(), found.end()};
}

bool Graph::is_gradient(ValueId gradient, ValueId of) const {
  return std::ranges::count(gradients_that_are(gradient), of, &GradientOf::of) > 0;
}

const Update* Graph::update_of(ValueId parameter) const {
  const auto found = std::find_if(updates_.begin(), updates_.end(),
                                  [&](const Update& update) { return update.parameter == parameter; });
  return found == updates_.end() ? nullptr : &*found;
}

void Graph::carry_gradients(const Graph& from, std::span<const ValueId> became) {
  std::vector<GradientOf> carried;
  carried.reserve(from.gradients().size());
  for (const auto& [gradient, value] : from.gradients()) {
    const GradientOf each{became[static_cast<size_t>(gradient)], became[static_cast<size_t>(value)]};
    if (each.gradient != kNoValue && each.of != kNoValue) carried.push_back(each);
  }
  add_gradients(std::move(carried));
}

void Graph::add_gradients(std::vector<GradientOf> added) {
  std::ranges::stable_sort(added, {}, &GradientOf::gradient);
  std::vector<GradientOf> all;
  all.reserve(gradients_.size() + added.size());
  std::ranges::merge(gradients_, added, std::back_inserter(all), {}, &GradientOf::gradient, &GradientOf::gradient);
  gradients_.clear();
  for (const GradientOf& each : all) {
    bool is_known = false;
    for (size_t i = gradients_.size(); i > 0 && gradients_[i - 1].gradient == each.gradient; --i) {
      is_known = is_known || gradients_[i - 1] == each;
    }
    if (!is_known) gradients_.push_back(each);
  }
}

void Graph::carry_updates(const Graph& from, std::span<const ValueId> became) {
  for (Update update : from.updates()) {
    update.parameter = became[static_cast<size_t>(update.parameter)];
    update.gradient = became[static_cast<size_t>(update.gradient)];
    for (ValueId& state : update.states) state = became[static_cast<size_t>(state)];
    add_update(std::move(update));
  }
}

namespace {

template <class Items>
const auto& by_name(const Items& items, std::string_view name, std::string_view what, const std::string& graph) {
  std::vector<std::string> names;
  for (const auto& item : items) {
    if (item.name == name) return item;
    names.push_back(item.name);
  }
  fail(ErrorKind::kNotFound, "graph '{}' has no {} '{}'.{}", graph, what, name, suggestion(name, names));
}

}  // namespace

const Input& Graph::input(std::string_view name) const {
  return by_name(inputs_, name, "input", name_);
}
const Output& Graph::output(std::string_view name) const {
  return by_name(outputs_, name, "output", name_);
}

std::vector<int> Graph::use_counts() const {
  std::vector<int> uses(values_.size(), 0);
  for (const Node& node : nodes_) {
    for (const ValueId input : node.inputs) ++uses[static_cast<size_t>(input)];
  }
  for (const Output& output : outputs_) ++uses[static_cast<size_t>(output.value)];
  return uses;
}

namespace {

// What is wrong with a node's phase and gradients.
void check_mark(const Graph& graph, NodeId id, std::vector<std::string>& out) {
  const Node& node = graph.node(id);
  const auto wrong = [&](const std::string& how) {
    const std::string made = node.outputs.empty() ? "" : fmt::format(" that makes %{}", node.outputs[0]);
    out.push_back(fmt::format("{}{} is {}", node.op->name, made, how));
  };
  if (node.gradient_of >= 0 && node.phase != Phase::kBackward) {
    wrong(
        fmt::format("part of a gradient and of the {} phase; it must be of the backward phase", to_string(node.phase)));
  }
  if (node.gradient_of >= id)
    wrong(fmt::format("part of the gradient of node {}, which is not before it", node.gradient_of));
  if (node.again && node.phase != Phase::kForward) {
    wrong(fmt::format("made again and of the {} phase; what is made again is of the forward phase",
                      to_string(node.phase)));
  }
}

// What is wrong with the updates as data; op/build.h checks shapes.
void check_updates(const Graph& graph, std::vector<std::string>& out) {
  std::unordered_set<ValueId> replaced, seen;
  for (const Output& output : graph.outputs()) replaced.insert(output.updates);
  const auto check = [&](ValueId id, Role role) {
    const bool is_input = id >= 0 && id < static_cast<ValueId>(graph.values().size()) && graph.value(id).producer < 0;
    const Input* const input = is_input ? &graph.inputs()[static_cast<size_t>(graph.value(id).index)] : nullptr;
    if (input == nullptr || input->role != role) {
      out.push_back(fmt::format("an update is of %{}, which is no {}", id, to_string(role)));
    } else if (!seen.insert(id).second) {
      out.push_back(fmt::format("two updates are of {} '{}'", to_string(role), input->name));
    } else if (!replaced.contains(id)) {
      out.push_back(fmt::format("no output replaces {} '{}', which has an update", to_string(role), input->name));
    }
  };
  for (const Update& update : graph.updates()) {
    check(update.parameter, Role::kParameter);
    for (const ValueId state : update.states) check(state, Role::kState);
    if (update.gradient >= 0 && update.gradient < static_cast<ValueId>(graph.values().size())) continue;
    out.push_back(
        fmt::format("the update of %{} reads a gradient %{}, which does not exist", update.parameter, update.gradient));
  }
}

}  // namespace

std::vector<std::string> check_structure(const Graph& graph) {
  std::vector<std::string> out;
  const auto known = [&](ValueId id) { return id >= 0 && id < static_cast<ValueId>(graph.values().size()); };
  std::unordered_set<std::string_view> names;
  for (const Input& input : graph.inputs()) {
    if (!names.insert(input.name).second) {
      out.push_back(fmt::format("input '{}' is declared twice", input.name));
    }
  }
  for (const Node& node : graph.nodes()) {
    const ValueId first = node.outputs.empty() ? 0 : node.outputs.front();
    for (const ValueId input : node.inputs) {
      if (!known(input) || (!node.outputs.empty() && input >= first)) {
        out.push_back(fmt::format("{} reads %{} before it is made", node.op->name, input));
      }
    }
  }
  for (NodeId id = 0; id < static_cast<NodeId>(graph.nodes().size()); ++id) check_mark(graph, id, out);
  check_updates(graph, out);
  names.clear();
  for (const Output& output : graph.outputs()) {
    if (!names.insert(output.name).second) {
      out.push_back(fmt::format("output '{}' is named twice", output.name));
    }
    if (output.updates == kNoValue) continue;
    if (!known(output.updates) || graph.value(output.updates).producer >= 0) {
      out.push_back(fmt::format("output '{}' updates %{}, which is no input", output.name, output.updates));
    } else if (graph.type(output.updates) != graph.type(output.value)) {
      out.push_back(fmt::format("output '{}' of type {} updates an input of type {}", output.name,
                                to_string(graph.type(output.value)), to_string(graph.type(output.updates))));
    }
  }
  return out;
}

namespace {

Graph live_part(const Graph& graph, bool keeps_inputs) {
  std::vector<char> live(graph.values().size(), 0);
  for (const Output& output : graph.outputs()) {
    live[static_cast<size_t>(output.value)] = 1;
    if (output.updates != kNoValue) live[static_cast<size_t>(output.updates)] = 1;
  }
  std::vector<char> keep(graph.nodes().size(), 0);
  for (size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    keep[i] = std::any_of(node.outputs.begin(), node.outputs.end(),
                          [&](ValueId id) { return live[static_cast<size_t>(id)] != 0; });
    if (!keep[i]) continue;
    for (const ValueId input : node.inputs) live[static_cast<size_t>(input)] = 1;
  }
  Graph out(graph.name());
  std::vector<ValueId> map(graph.values().size(), kNoValue);
  std::vector<NodeId> made_of(graph.nodes().size(), -1);
  for (const Input& input : graph.inputs()) {
    if (!keeps_inputs && live[static_cast<size_t>(input.value)] == 0) continue;
    map[static_cast<size_t>(input.value)] =
        out.add_input(input.name, graph.type(input.value), input.role, input.init, input.saved_as, input.piece);
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (!keep[i]) continue;
    const Node& node = graph.nodes()[i];
    Few<ValueId, 4> inputs;
    for (const ValueId input : node.inputs) inputs.push_back(map[static_cast<size_t>(input)]);
    Few<Shared<TensorType>, 4> types;
    for (const ValueId output : node.outputs) types.push_back(graph.shared_type(output));
    out.mark_as(graph, node, node.gradient_of < 0 ? -1 : made_of[static_cast<size_t>(node.gradient_of)]);
    const NodeId made = out.add_node(*node.op, node.attrs, inputs, types);
    made_of[i] = made;
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      map[static_cast<size_t>(node.outputs[k])] = out.node(made).outputs[k];
    }
  }
  out.carry_gradients(graph, map);
  out.carry_updates(graph, map);
  for (const ShardRequest& request : graph.shard_requests()) out.add_shard_request(request);
  for (const StageRequest& request : graph.stage_requests()) out.add_stage_request(request);
  for (const FusionRequest& request : graph.fusion_requests()) out.add_fusion_request(request);
  for (const RecomputeRequest& request : graph.recompute_requests()) out.add_recompute_request(request);
  for (const HostRequest& request : graph.host_requests()) out.add_host_request(request);
  for (const HomeRequest& request : graph.home_requests()) out.add_home_request(request);
  for (const Output& output : graph.outputs()) {
    out.add_output(output.name, map[static_cast<size_t>(output.value)],
                   output.updates == kNoValue ? kNoValue : map[static_cast<size_t>(output.updates)]);
  }
  return out;
}

}  // namespace

Graph without_dead_nodes(const Graph& graph) {
  return live_part(graph, true);
}

Graph without_dead_nodes_and_inputs(const Graph& graph) {
  return live_part(graph, false);
}

}  // namespace trireme
