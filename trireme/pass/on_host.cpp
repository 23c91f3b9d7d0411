// Puts ops on the host, with the moves of what they read and make.
//
// Before: all ops run on the device. After: those that parallel.on or parallel.optimizer_on asks for are marked; what
// they read of the device leaves it as soon as it is made, and what they make comes for its first reader there. What
// ranks do together stays on the device, and so do views of inputs. Parameters that host ops alone read in the forward
// pass are updated there, too.
//
// Ops of updates on the host stand where what they read has come and the host has nothing more to do, in the modelled
// step: the backward pass goes on beside them. Of what has come, that is first whose weight the next step reads first:
// the others go on under its forward pass (exec/plan/step_border.h). The weights lie on the host and come for their
// readers (homes.cpp); where a rule has them elsewhere they leave the host when they are made. What the disk has for
// updates comes with their gradients; where all gradients are there first (clipping) only so many updates ahead as
// parallel.prefetch says, and goes back as it is made, so that the host never has all of it.
#include "trireme/pass/host_inputs.h"

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

class Placing {
 public:
  Placing(const Program& program, const PassOptions& options)
      : graph_(program.graph),
        machine_(options.rates.machine ? *options.rates.machine : Machine::this_host()),
        rewrite_(program),
        prefetch_(options.tier_ways.prefetch),
        on_host_(nodes_for_host(program.graph, options.on_host)) {
    if (!any()) return;
    starts_ = without_host_ops(start_times(program, options.rates));
    find_end_of_device();
    base_.resize(graph_.values().size(), Tier::kDevice);
    const std::vector<Tier> homes = homes_of_inputs(graph_, options.homes, on_host_);
    for (size_t i = 0; i < graph_.inputs().size(); ++i) base_[index_of(graph_.inputs()[i].value)] = homes[i];
    first_on_host_.resize(graph_.values().size(), -1);
    needed_.resize(graph_.nodes().size(), -1);
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) note(id);
    for (const Output& output : graph_.outputs()) note_output(output);
  }

  bool any() const { return std::ranges::count(on_host_, 1) > 0; }

  Program run() {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      release(starts_[index_of(id)]);
      if (!is_on_host(id)) {
        on_device(id);
      } else if (graph_.node(id).inputs.empty()) {
        constants_.insert(id);
      } else if (graph_.node(id).phase == Phase::kUpdate) {
        make_room_for(id);
        arriving_.emplace(come(id), id);
        waits_.insert(id);
      } else {
        release_all_ops();
        come(id);
        copy_on_host(id);
      }
    }
    release_all_ops();
    while (!constants_.empty()) make_constant(*constants_.begin());
    while (!returning_.empty()) give_back();
    for (const auto& [value, back] : returned_) rewrite_.same(value, back);
    return rewrite_.finish();
  }

 private:
  struct Returning {
    ValueId value = kNoValue;
    Tier to = Tier::kDevice;
    double made_s = 0;
  };

  // The device goes on at once where an op runs on the host.
  std::vector<double> without_host_ops(const std::vector<double>& starts) const {
    std::vector<double> out;
    double elsewhere_s = 0;
    for (size_t i = 0; i < starts.size(); ++i) {
      out.push_back(starts[i] - elsewhere_s);
      if (i < on_host_.size() && on_host_[i] != 0) elsewhere_s += starts[i + 1] - starts[i];
    }
    return out;
  }

  void find_end_of_device() {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const Traits& traits = def_of(graph_.node(id)).traits;
      if (!is_on_host(id) && !traits.joins_in_place && !traits.zero_cost_view)
        device_ends_s_ = starts_[index_of(id) + 1];
    }
  }

  bool is_on_host(NodeId id) const { return on_host_[index_of(id)] != 0; }

  void note(NodeId id) {
    const Node& node = graph_.node(id);
    const bool is_early = node.phase == Phase::kForward && !is_for_backward(node);
    for (const ValueId read : node.inputs) {
      if (is_early) first_early_.emplace(read, id);
    }
    if (node.op == &structural().part && graph_.value(node.inputs[0]).producer < 0)
      base_[index_of(node.outputs[0])] = base_[index_of(node.inputs[0])];
    if (!is_on_host(id)) return;
    for (const ValueId made : node.outputs) base_[index_of(made)] = Tier::kHost;
    for (const ValueId read : node.inputs) {
      NodeId& first = first_on_host_[index_of(read)];
      if (first < 0 || node.phase < graph_.node(first).phase) first = id;
    }
  }

  // What replaces an input goes to that one's home; so do parts that are joined to replace one.
  void note_output(const Output& output) {
    const NodeId producer = graph_.value(output.value).producer;
    if (output.updates == kNoValue || producer < 0) return;
    const auto replaces = [&](ValueId made) {
      const NodeId maker = graph_.value(made).producer;
      if (maker < 0 || !is_on_host(maker)) return;
      home_of_made_.emplace(made, base_[index_of(output.updates)]);
      const auto read = first_early_.find(output.updates);
      if (read == first_early_.end()) return;
      NodeId& needed = needed_[index_of(maker)];
      needed = needed < 0 ? read->second : std::min(needed, read->second);
    };
    if (!def_of(graph_.node(producer)).traits.joins_in_place) return replaces(output.value);
    for (const ValueId part : graph_.node(producer).inputs) replaces(part);
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
    if (def_of(node).traits.joins_in_place) return join_parts(id);
    Few<ValueId, 4> in = node.inputs;
    for (ValueId& operand : in) operand = for_device(operand);
    rewrite_.copy(id, in, node.outputs);
    if (is_communication(def_of(node)) || def_of(node).traits.message) return;
    for (const ValueId made : node.outputs) {
      if (first_on_host_[index_of(made)] < 0 || base_[index_of(made)] != Tier::kDevice) continue;
      there_.emplace(made, moved(made, Tier::kHost, id));
      left_s_ = std::max(left_s_, starts_[index_of(id) + 1]) + move_s(Tier::kDevice, Tier::kHost, made);
      arrived_s_.emplace(made, left_s_);
    }
  }

  // When all of them have been made, and are where they belong.
  void join_parts(NodeId id) {
    Few<ValueId, 4> in = graph_.node(id).inputs;
    for (ValueId& part : in) {
      run_until(graph_.value(part).producer);
      while (home_of_made_.contains(part) && home_of_made_.at(part) != Tier::kHost && !returned_.contains(part))
        give_back();
      if (const auto back = returned_.find(part); back != returned_.end()) part = back->second;
    }
    rewrite_.copy(id, in, graph_.node(id).outputs);
  }

  // What the host has made comes for its first reader. Inputs come by the pass homes.
  ValueId for_device(ValueId id) {
    const NodeId producer = graph_.value(id).producer;
    if (producer < 0 || !is_on_host(producer)) return id;
    run_until(producer);
    make_constant(producer);
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

  // Before its first reader: those of the step before have it until they have ended.
  void make_constant(NodeId id) {
    if (constants_.erase(id) > 0) copy_on_host(id);
  }

  void copy_on_host(NodeId id) {
    const Node& node = graph_.node(id);
    for (const ValueId operand : node.inputs) make_constant(graph_.value(operand).producer);
    Few<ValueId, 4> in = node.inputs;
    for (ValueId& operand : in) {
      if (const auto there = there_.find(operand); there != there_.end()) operand = there->second;
    }
    rewrite_.set_on_host(true);
    rewrite_.copy(id, in, node.outputs);
    rewrite_.set_on_host(false);
    for (const ValueId made : node.outputs) {
      const auto home = home_of_made_.find(made);
      if (home != home_of_made_.end() && home->second != Tier::kHost)
        returning_.push_back({made, home->second, free_s_});
    }
  }

  // Ops for which the host is free by then, and results that have been made.
  void release(double now_s) {
    while (!waits_.empty() && free_s_ <= now_s && next_begins_s() <= now_s) run_next();
    while (!returning_.empty() && returning_.front().made_s <= now_s) give_back();
  }

  // For what comes from the disk to an update, where no op of the device would wait for those before it.
  void make_room_for(NodeId id) {
    const Node& node = graph_.node(id);
    const auto is_on_disk = [&](ValueId read) {
      return base_[index_of(read)] == Tier::kDisk && !there_.contains(read);
    };
    if (starts_[index_of(id)] < device_ends_s_ || std::ranges::none_of(node.inputs, is_on_disk)) return;
    const int64_t most = readers_ahead(prefetch_, module_scope(graph_, node), node.op->name);
    while (std::ssize(from_disk_) >= most) run_next();
    from_disk_.insert(id);
  }

  double next_begins_s() const { return there_now_.empty() ? std::max(free_s_, arriving_.begin()->first) : free_s_; }

  // Of what has come by the time at which the host is free, that which is needed first and reads nothing that waits.
  void run_next() {
    const double begin_s = next_begins_s();
    while (!arriving_.empty() && arriving_.begin()->first <= begin_s) {
      const NodeId id = arriving_.begin()->second;
      there_now_.emplace(needed_[index_of(id)], id);
      arriving_.erase(arriving_.begin());
    }
    const auto next =
        std::ranges::find_if(there_now_, [&](const auto& each) { return !reads_what_waits(each.second); });
    if (next == there_now_.end()) {  // what it reads has not come itself
      there_now_.emplace(needed_[index_of(arriving_.begin()->second)], arriving_.begin()->second);
      arriving_.erase(arriving_.begin());
      return run_next();
    }
    const NodeId id = next->second;
    there_now_.erase(next);
    run_there(id, begin_s);
  }

  bool reads_what_waits(NodeId id) const {
    return std::ranges::any_of(graph_.node(id).inputs,
                               [&](ValueId read) { return waits_.contains(graph_.value(read).producer); });
  }

  void run_there(NodeId id, double begin_s) {
    waits_.erase(id);
    const Node& node = graph_.node(id);
    std::vector<TensorType> in, out;
    for (const ValueId read : node.inputs) in.push_back(graph_.type(read));
    for (const ValueId made : node.outputs) out.push_back(graph_.type(made));
    free_s_ = std::max(free_s_, begin_s) + compute_seconds_on_host(def_of(node), {in, out, node.attrs}, machine_);
    copy_on_host(id);
    if (from_disk_.erase(id) == 0) return;
    while (!returning_.empty() && returning_.front().to == Tier::kDisk && returning_.front().made_s <= begin_s)
      give_back();
  }

  void run_until(NodeId id) {
    while (waits_.contains(id)) run_next();
  }

  void release_all_ops() {
    while (!waits_.empty()) run_next();
  }

  void give_back() {
    const Returning next = returning_.front();
    returning_.pop_front();
    returned_.emplace(next.value, moved(next.value, next.to, graph_.value(next.value).producer));
  }

  const Graph& graph_;
  Machine machine_;
  Rewrite rewrite_;
  std::span<const PrefetchRule> prefetch_;
  std::vector<char> on_host_;          // by node
  std::vector<double> starts_;         // of ops, in the modelled step
  std::vector<Tier> base_;             // by value: where it is made, or lies between its uses
  std::vector<NodeId> first_on_host_;  // by value: of the ops there that read it one of the earliest phase; -1: none
  std::map<ValueId, ValueId> there_;   // by value: the same that came to the host
  std::map<ValueId, ValueId> here_;    // by value: the same that came to the device
  std::map<ValueId, double> arrived_s_;
  double left_s_ = 0, free_s_ = 0;         // when the way to the host, and the host, have nothing more to do
  std::map<ValueId, NodeId> first_early_;  // by value: the op of the forward pass that reads it first
  std::map<ValueId, Tier> home_of_made_;   // by value that is made on the host, and replaces an input, or rows of one
  std::vector<NodeId> needed_;             // by op there: the first that reads what it makes in the next step; -1: none
  std::set<NodeId> constants_;             // ops there that read nothing, and have not been given their place
  std::set<NodeId> waits_;                 // ops of updates that have not been given their place
  std::set<NodeId> from_disk_;             // of these: what they read comes from the disk, and the device has ended
  double device_ends_s_ = 0;               // when the device has nothing more to do
  std::multimap<double, NodeId> arriving_;         // of these, by the time at which what they read has come
  std::set<std::pair<NodeId, NodeId>> there_now_;  // those for which it has, by who needs them
  std::deque<Returning> returning_;
  std::map<ValueId, ValueId> returned_;
};

}  // namespace

namespace pass {
extern const Pass on_host{
    .name = "on_host",
    .doc = "ops that are asked for there run on the host, and what they read and make is moved",
    .asked_for = [](const PassOptions& o) { return o.on_host.is_asked_for(); },
    .by_homes = true,
    .run =
        [](Program program, const PassOptions& o) {
          Placing placing(program, o);
          return placing.any() ? placing.run() : std::move(program);
        },
};
}  // namespace pass

}  // namespace trireme
