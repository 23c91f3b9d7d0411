#include "trireme/pass/host_inputs.h"

#include <algorithm>
#include <map>
#include <set>

#include "trireme/ir/gradient_scope.h"
#include "trireme/op/move.h"
#include "trireme/op/structural.h"

namespace trireme {
namespace {

size_t place_of_id(int32_t id) {
  return static_cast<size_t>(id);
}

// Which nodes are asked for on the host.
class ChosenForHost {
 public:
  ChosenForHost(const Graph& graph, const OnHost& asked)
      : graph_(graph), asked_(asked), out_(graph.nodes().size(), 0) {}

  std::vector<char> run() {
    each_node([&](size_t i, const Node& node) {
      out_[i] = may_be(node) && asked_on_host(asked_.rules, module_scope(graph_, node), node.op->name) ? 1 : 0;
    });
    add_updates();
    add_constants();
    return std::move(out_);
  }

 private:
  template <class Each>
  void each_node(Each&& each) {
    for (size_t i = 0; i < graph_.nodes().size(); ++i) each(i, graph_.nodes()[i]);
  }

  bool is_made_on_host(ValueId id) const {
    const NodeId producer = graph_.value(id).producer;
    return producer >= 0 && out_[place_of_id(producer)] != 0;
  }

  // A view is where what it looks at is.
  bool may_be(const Node& node) const {
    const OpDef& op = def_of(node);
    if (op.collective || op.traits.message || op.traits.move || op.traits.joins_in_place || node.outputs.empty())
      return false;
    return !op.traits.zero_cost_view || is_made_on_host(node.inputs[0]);
  }

  // Of all parameters, or of those that the host alone reads in the forward pass.
  void add_updates() {
    std::set<ValueId> of_host;
    const std::vector<char> read_there = asked_.updates ? std::vector<char>() : read_on_host_alone();
    for (const Update& update : graph_.updates()) {
      if (!asked_.updates && read_there[place_of_id(update.parameter)] == 0) continue;
      of_host.insert(update.parameter);
      of_host.insert(update.states.begin(), update.states.end());
    }
    each_node([&](size_t i, const Node& node) {
      const bool reads = std::ranges::any_of(node.inputs, [&](ValueId id) { return of_host.contains(id); });
      if (reads && node.op == &structural().part) of_host.insert(node.outputs[0]);
      if (node.phase != Phase::kUpdate || !reads || !may_be(node)) return;
      out_[i] = 1;
      of_host.insert(node.outputs.begin(), node.outputs.end());
    });
  }

  // Of each value, whether ops on the host read it in the forward pass and no other does.
  std::vector<char> read_on_host_alone() {
    std::vector<char> out(graph_.values().size(), 0), elsewhere = out;
    each_node([&](size_t i, const Node& node) {
      if (node.phase != Phase::kForward) return;
      for (const ValueId id : node.inputs) (out_[i] != 0 ? out : elsewhere)[place_of_id(id)] = 1;
    });
    for (size_t i = 0; i < out.size(); ++i) out[i] = out[i] != 0 && elsewhere[i] == 0 ? 1 : 0;
    return out;
  }

  // What reads nothing, and is for ops on the host alone.
  void add_constants() {
    std::vector<char> on_device(graph_.values().size(), 0), on_host = on_device;
    each_node([&](size_t i, const Node& node) {
      for (const ValueId id : node.inputs) (out_[i] != 0 ? on_host : on_device)[place_of_id(id)] = 1;
    });
    for (const Output& output : graph_.outputs()) on_device[place_of_id(output.value)] = 1;
    each_node([&](size_t i, const Node& node) {
      if (!node.inputs.empty() || !may_be(node) || node.outputs.size() != 1) return;
      const size_t made = place_of_id(node.outputs[0]);
      if (on_host[made] != 0 && on_device[made] == 0) out_[i] = 1;
    });
  }

  const Graph& graph_;
  const OnHost& asked_;
  std::vector<char> out_;
};

// Who reads each value, or rows of it where they lie: an op on the host, another one; in the forward pass; updates.
struct ReadersByTier {
  bool host = false, device = false, early_host = false, early_device = false, update_on_host = false;
};

std::vector<ReadersByTier> readers_of(const Graph& graph, std::span<const char> on_host) {
  std::vector<ReadersByTier> out(graph.values().size());
  std::map<ValueId, ValueId> whole_of;  // of looks at rows
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (is_move(def_of(node)) || def_of(node).traits.joins_in_place) continue;
    if (node.op == &structural().part) {
      whole_of.emplace(node.outputs[0], node.inputs[0]);
      continue;
    }
    for (const ValueId id : node.inputs) {
      const auto whole = whole_of.find(id);
      ReadersByTier& readers = out[place_of_id(whole == whole_of.end() ? id : whole->second)];
      (on_host[i] != 0 ? readers.host : readers.device) = true;
      if (node.phase == Phase::kForward) (on_host[i] != 0 ? readers.early_host : readers.early_device) = true;
      if (node.phase == Phase::kUpdate && on_host[i] != 0) readers.update_on_host = true;
    }
  }
  return out;
}

std::map<ValueId, ValueId> parameters_of_states(const Graph& graph) {
  std::map<ValueId, ValueId> out;
  for (const Update& update : graph.updates()) {
    for (const ValueId state : update.states) out.emplace(state, update.parameter);
  }
  return out;
}

}  // namespace

std::vector<char> host_nodes(const Graph& graph) {
  std::vector<char> out;
  for (const Node& node : graph.nodes()) out.push_back(node.on_host ? 1 : 0);
  return out;
}

std::vector<char> nodes_for_host(const Graph& graph, const OnHost& asked) {
  return ChosenForHost(graph, asked).run();
}

std::vector<Tier> homes_of_inputs(const Graph& graph, std::span<const HomeRule> rules, std::span<const char> on_host) {
  const std::vector<ReadersByTier> readers = readers_of(graph, on_host);
  const std::map<ValueId, ValueId> parameter_of = parameters_of_states(graph);
  std::vector<Tier> out;
  for (const Input& input : graph.inputs()) {
    const ReadersByTier& by = readers[place_of_id(input.value)];
    const auto of = parameter_of.find(input.value);
    const bool is_parameter = input.role == Role::kParameter;
    const bool is_buffer = input.role == Role::kState && of == parameter_of.end();
    const bool is_number = input.role == Role::kSchedule;
    const bool by_host =
        is_parameter ? (by.early_host && !by.early_device) || by.update_on_host : by.host && !by.device && !is_number;
    Tier home = by_host && !is_buffer ? Tier::kHost : Tier::kDevice;
    if (is_parameter) home = home_of(rules, Held::kParameter, input.name, home);
    if (of != parameter_of.end()) {
      const ValueId parameter = of->second;
      home = home_of(rules, Held::kState, graph.inputs()[place_of_id(graph.value(parameter).index)].name, home);
    }
    out.push_back(home);
  }
  return out;
}

std::vector<char> that_come_once(const Graph& graph, std::span<const HomeRule> rules, std::span<const char> on_host) {
  const std::vector<ReadersByTier> readers = readers_of(graph, on_host);
  std::vector<char> out;
  for (const Input& input : graph.inputs()) {
    const bool is_asked = std::ranges::any_of(rules, [&](const HomeRule& rule) {
      return rule.of == Held::kParameter && rule.parameters.matches(input.name);
    });
    const bool once = input.role == Role::kParameter && !is_asked && readers[place_of_id(input.value)].update_on_host;
    out.push_back(once ? 1 : 0);
  }
  return out;
}

}  // namespace trireme
