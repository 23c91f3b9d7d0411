// Puts ops on the host, with the moves of what they read and make.
//
// Before: all ops run on the device. After: those that parallel.on or parallel.optimizer_on asks for are marked; what
// they read of the device leaves it as soon as it is made, and what they make comes for its first reader there. What
// ranks do together stays on the device, and so do views of inputs. Parameters that host ops alone read in the forward
// pass are updated there, too.
//
// Ops of updates on the host stand where what they read has come, in the modelled step, and what they make for the
// device comes where they have ended, or before it is read: the backward pass goes on beside them. What is not read
// in the step comes at its end.
#include "trireme/pass/on_host.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "trireme/ir/gradient_scope.h"
#include "trireme/op/move.h"
#include "trireme/op/structural.h"
#include "trireme/pass/passes.h"
#include "trireme/pass/recompute_rules.h"
#include "trireme/pass/rewrite.h"
#include "trireme/pass/step_times.h"

namespace trireme {
namespace {

size_t index_of(int32_t id) {
  return static_cast<size_t>(id);
}

// Which nodes are asked for on the host.
class Chosen {
 public:
  Chosen(const Graph& graph, const OnHost& asked) : graph_(graph), asked_(asked), out_(graph.nodes().size(), 0) {}

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
    return producer >= 0 && out_[index_of(producer)] != 0;
  }

  // A view is where what it looks at is.
  bool may_be(const Node& node) const {
    const OpDef& op = def_of(node);
    if (op.collective || op.traits.message || op.traits.move || node.outputs.empty()) return false;
    return !op.traits.zero_cost_view || is_made_on_host(node.inputs[0]);
  }

  // Of all parameters, or of those that the host alone reads in the forward pass.
  void add_updates() {
    std::set<ValueId> of_host;
    for (const Update& update : graph_.updates()) {
      if (!asked_.updates && !is_read_there(update.parameter)) continue;
      of_host.insert(update.parameter);
      of_host.insert(update.states.begin(), update.states.end());
    }
    each_node([&](size_t i, const Node& node) {
      const bool reads = std::ranges::any_of(node.inputs, [&](ValueId id) { return of_host.contains(id); });
      if (node.phase != Phase::kUpdate || !reads || !may_be(node)) return;
      out_[i] = 1;
      of_host.insert(node.outputs.begin(), node.outputs.end());
    });
  }

  bool is_read_there(ValueId parameter) const {
    bool any = false, all = true;
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (node.phase != Phase::kForward || std::ranges::count(node.inputs, parameter) == 0) continue;
      any = true;
      all = all && out_[i] != 0;
    }
    return any && all;
  }

  // What reads nothing, and is for ops on the host alone.
  void add_constants() {
    std::vector<char> on_device(graph_.values().size(), 0), on_host = on_device;
    each_node([&](size_t i, const Node& node) {
      for (const ValueId id : node.inputs) (out_[i] != 0 ? on_host : on_device)[index_of(id)] = 1;
    });
    for (const Output& output : graph_.outputs()) on_device[index_of(output.value)] = 1;
    each_node([&](size_t i, const Node& node) {
      if (!node.inputs.empty() || !may_be(node) || node.outputs.size() != 1) return;
      const size_t made = index_of(node.outputs[0]);
      if (on_host[made] != 0 && on_device[made] == 0) out_[i] = 1;
    });
  }

  const Graph& graph_;
  const OnHost& asked_;
  std::vector<char> out_;
};

class Placing {
 public:
  Placing(const Program& program, const PassOptions& options)
      : graph_(program.graph),
        machine_(options.rates.machine ? *options.rates.machine : Machine::this_host()),
        rewrite_(program),
        on_host_(Chosen(program.graph, options.on_host).run()) {
    if (!any()) return;
    starts_ = start_times(program, options.rates);
    base_.resize(graph_.values().size(), Tier::kDevice);
    const std::vector<Tier> homes = homes_of_inputs(graph_, options.homes, on_host_);
    for (size_t i = 0; i < graph_.inputs().size(); ++i) base_[index_of(graph_.inputs()[i].value)] = homes[i];
    first_on_host_.resize(graph_.values().size(), -1);
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) note(id);
  }

  bool any() const { return std::ranges::count(on_host_, 1) > 0; }

  Program run() {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      release(starts_[index_of(id)]);
      if (!is_on_host(id)) {
        on_device(id);
      } else if (graph_.node(id).phase == Phase::kUpdate) {
        const double ready_s = std::max(come(id), waiting_.empty() ? 0 : waiting_.back().ready_s);
        waiting_.push_back({id, ready_s});
      } else {
        release_all_ops();
        come(id);
        copy_on_host(id);
      }
    }
    release_all_ops();
    while (!returning_.empty()) give_back();
    for (const auto& [value, back] : returned_) rewrite_.same(value, back);
    return rewrite_.finish();
  }

 private:
  struct Waiting {
    NodeId node = -1;
    double ready_s = 0;  // in the modelled step
  };
  struct Returning {
    ValueId value = kNoValue;
    Tier to = Tier::kDevice;
    double made_s = 0;
  };

  bool is_on_host(NodeId id) const { return on_host_[index_of(id)] != 0; }

  void note(NodeId id) {
    const Node& node = graph_.node(id);
    if (is_on_host(id)) {
      for (const ValueId made : node.outputs) base_[index_of(made)] = Tier::kHost;
      for (const ValueId read : node.inputs) {
        NodeId& first = first_on_host_[index_of(read)];
        if (first < 0 || node.phase < graph_.node(first).phase) first = id;
      }
    }
  }

  double move_s(Tier from, Tier to, ValueId id) const {
    return move_seconds({from, to}, graph_.type(id).bytes(), machine_);
  }

  ValueId moved(ValueId value, Tier to, NodeId beside) {
    const ValueId out = rewrite_.new_value_like(value);
    rewrite_.insert(structural().move, attrs_of({base_[index_of(value)], to}), beside, {{value}}, {{out}});
    return out;
  }

  // What the device makes for the host leaves at once. What other ranks have part in is waited for where it is read.
  void on_device(NodeId id) {
    const Node& node = graph_.node(id);
    Few<ValueId, 4> in = node.inputs;
    for (ValueId& operand : in) operand = for_device(operand);
    rewrite_.copy(id, in, node.outputs);
    if (is_communication(def_of(node)) || def_of(node).traits.message) return;
    for (const ValueId made : node.outputs) {
      if (first_on_host_[index_of(made)] < 0) continue;
      there_.emplace(made, moved(made, Tier::kHost, id));
      left_s_ = std::max(left_s_, starts_[index_of(id) + 1]) + move_s(Tier::kDevice, Tier::kHost, made);
      arrived_s_.emplace(made, left_s_);
    }
  }

  // What the host has made comes for its first reader. Inputs come by the pass homes.
  ValueId for_device(ValueId id) {
    const NodeId producer = graph_.value(id).producer;
    if (producer < 0 || !is_on_host(producer)) return id;
    while (std::ranges::find(waiting_, producer, &Waiting::node) != waiting_.end()) run_next();
    if (const auto known = here_.find(id); known != here_.end()) return known->second;
    return here_.emplace(id, moved(id, Tier::kDevice, producer)).first->second;
  }

  // Moves what the op reads to the host; when all of it is there.
  double come(NodeId id) {
    double ready_s = starts_[index_of(id)];
    for (const ValueId operand : graph_.node(id).inputs) {
      const Tier base = base_[index_of(operand)];
      if (base == Tier::kHost) continue;
      if (!there_.contains(operand)) {
        there_.emplace(operand, moved(operand, Tier::kHost, first_on_host_[index_of(operand)]));
        left_s_ = std::max(left_s_, starts_[index_of(id)]) + move_s(base, Tier::kHost, operand);
        arrived_s_.emplace(operand, left_s_);
      }
      ready_s = std::max(ready_s, arrived_s_.at(operand));
    }
    return ready_s;
  }

  void copy_on_host(NodeId id) {
    const Node& node = graph_.node(id);
    Few<ValueId, 4> in = node.inputs;
    for (ValueId& operand : in) {
      if (const auto there = there_.find(operand); there != there_.end()) operand = there->second;
    }
    rewrite_.set_on_host(true);
    rewrite_.copy(id, in, node.outputs);
    rewrite_.set_on_host(false);
    for (const ValueId made : node.outputs) {
      for (const Output& output : graph_.outputs()) {
        if (output.value != made || output.updates == kNoValue) continue;
        const Tier home = base_[index_of(output.updates)];
        if (home != Tier::kHost) returning_.push_back({made, home, free_s_});
      }
    }
  }

  // Ops whose operands have come by then, and results that have been made.
  void release(double now_s) {
    while (!waiting_.empty() && waiting_.front().ready_s <= now_s) run_next();
    while (!returning_.empty() && returning_.front().made_s <= now_s) give_back();
  }

  void run_next() {
    const Waiting next = waiting_.front();
    waiting_.pop_front();
    const OpDef& op = def_of(graph_.node(next.node));
    std::vector<TensorType> in, out;
    for (const ValueId id : graph_.node(next.node).inputs) in.push_back(graph_.type(id));
    for (const ValueId id : graph_.node(next.node).outputs) out.push_back(graph_.type(id));
    const double seconds = compute_seconds(op, {in, out, graph_.node(next.node).attrs}, machine_);
    free_s_ = std::max(free_s_, next.ready_s) + seconds;
    copy_on_host(next.node);
  }

  void release_all_ops() {
    while (!waiting_.empty()) run_next();
  }

  void give_back() {
    const Returning next = returning_.front();
    returning_.pop_front();
    returned_.emplace(next.value, moved(next.value, next.to, graph_.value(next.value).producer));
  }

  const Graph& graph_;
  Machine machine_;
  Rewrite rewrite_;
  std::vector<char> on_host_;          // by node
  std::vector<double> starts_;         // of ops, in the modelled step
  std::vector<Tier> base_;             // by value: where it is made, or lies between its uses
  std::vector<NodeId> first_on_host_;  // by value: of the ops there that read it one of the earliest phase; -1: none
  std::map<ValueId, ValueId> there_;   // by value: the same that came to the host
  std::map<ValueId, ValueId> here_;    // by value: the same that came to the device
  std::map<ValueId, double> arrived_s_;
  double left_s_ = 0, free_s_ = 0;  // when the way to the host, and the host, have nothing more to do
  std::deque<Waiting> waiting_;
  std::deque<Returning> returning_;
  std::map<ValueId, ValueId> returned_;
};

}  // namespace

std::vector<char> host_nodes(const Graph& graph) {
  std::vector<char> out;
  for (const Node& node : graph.nodes()) out.push_back(node.on_host ? 1 : 0);
  return out;
}

namespace {

// Who reads each value: an op on the host, another one; in the forward pass.
struct ReadersByTier {
  bool host = false, device = false, early_host = false, early_device = false;
};

std::vector<ReadersByTier> readers_of(const Graph& graph, std::span<const char> on_host) {
  std::vector<ReadersByTier> out(graph.values().size());
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (is_move(def_of(node))) continue;
    for (const ValueId id : node.inputs) {
      ReadersByTier& readers = out[index_of(id)];
      (on_host[i] != 0 ? readers.host : readers.device) = true;
      if (node.phase == Phase::kForward) (on_host[i] != 0 ? readers.early_host : readers.early_device) = true;
    }
  }
  return out;
}

}  // namespace

std::vector<Tier> homes_of_inputs(const Graph& graph, std::span<const HomeRule> rules, std::span<const char> on_host) {
  const std::vector<ReadersByTier> readers = readers_of(graph, on_host);
  std::vector<Tier> out;
  std::map<ValueId, ValueId> parameter_of;
  for (const Update& update : graph.updates()) {
    for (const ValueId state : update.states) parameter_of.emplace(state, update.parameter);
  }
  for (const Input& input : graph.inputs()) {
    const ReadersByTier& by = readers[index_of(input.value)];
    const auto of = parameter_of.find(input.value);
    const bool is_parameter = input.role == Role::kParameter;
    const bool is_buffer = input.role == Role::kState && of == parameter_of.end();
    const bool by_host = is_parameter ? by.early_host && !by.early_device : by.host && !by.device;
    Tier home = by_host && !is_buffer ? Tier::kHost : Tier::kDevice;
    if (is_parameter) home = home_of(rules, Held::kParameter, input.name, home);
    if (of != parameter_of.end()) {
      const ValueId parameter = of->second;
      home = home_of(rules, Held::kState, graph.inputs()[index_of(graph.value(parameter).index)].name, home);
    }
    out.push_back(home);
  }
  return out;
}

namespace pass {
extern const Pass on_host{
    .name = "on_host",
    .doc = "ops that are asked for there run on the host, and what they read and make is moved",
    .asked_for = [](const PassOptions& o) { return o.on_host.is_asked_for(); },
    .run =
        [](Program program, const PassOptions& o) {
          Placing placing(program, o);
          return placing.any() ? placing.run() : std::move(program);
        },
};
}  // namespace pass

}  // namespace trireme
