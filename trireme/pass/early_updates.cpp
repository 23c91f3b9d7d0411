// Updates parameters as soon as their gradients are ready.
//
// Before: all updates stand after the whole backward pass, and every gradient is alive until then. After: a gradient is
// used up while it is in the cache and its bytes serve the next one (LOMO, Lv et al., 2023, does the same by hand).
// Where all gradients must be known first, as for clipping by their global norm, nothing moves.
//
// An update waits until nobody else reads the parameter, which it overwrites. The result of a collective counts as
// ready when another collective has begun. What runs beside the ops, a sum over ranks above all, may be under way for
// long, and counts as ready when a collective begins after its end in the modelled step (step_times.h). Over a slow
// link most updates stand at the end: the backward pass waits for none. Nor does that of another crew of a pipeline:
// updates come after the last gradients that are sent, and what they are made by is sent before them.
#include <algorithm>
#include <limits>

#include "trireme/base/few.h"
#include "trireme/ir/readers.h"
#include "trireme/op/op_def.h"
#include "trireme/pass/passes.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

class EarlyUpdates {
 public:
  EarlyUpdates(const Program& program, const Rates& rates)
      : graph_(program.graph),
        waits_for_(graph_.nodes().size(), 0),
        waited_by_(graph_.nodes().size()),
        readers_(graph_) {
    StepTimes times = step_times(program, rates);
    starts_ = std::move(times.starts);
    ends_ = starts_;
    for (const BesideTime& time : times.beside) ends_[static_cast<size_t>(time.node)] = time.end_s;
    mark_updates();
    find_last_send();
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      if (is_update(id)) count_waits(id);
    }
  }

  // The nodes in the order in which they are done.
  std::vector<NodeId> run() {
    order_.reserve(graph_.nodes().size());
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      if (is_update(id) && is_of_schedule(graph_.node(id))) add_once(id);
    }
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      if (is_update(id)) {
        if (waits_for_[static_cast<size_t>(id)] == 0) add_once(id);  // what it reads was there from the start
      } else if (is_communication(def_of(graph_.node(id)))) {
        add(id);
      } else {
        id = add_with_sends(id);
      }
    }
    while (!on_their_way_.empty()) arrive(std::numeric_limits<double>::infinity());
    return std::move(order_);
  }

 private:
  bool is_update(NodeId id) const { return updates_[static_cast<size_t>(id)] != 0; }

  // The ops of the update phase that read a parameter or its state, all that read what they make, and constants and
  // what is made of the learning rate for them alone. (Clipping, of the same phase, reads gradients.)
  void mark_updates() {
    std::vector<char> replaced(graph_.values().size(), 0);
    for (const Update& update : graph_.updates()) {
      replaced[static_cast<size_t>(update.parameter)] = 1;
      for (const ValueId state : update.states) replaced[static_cast<size_t>(state)] = 1;
    }
    for (const Node& node : graph_.nodes()) {
      bool update = node.phase == Phase::kUpdate &&
                    std::any_of(node.inputs.begin(), node.inputs.end(),
                                [&](ValueId id) { return replaced[static_cast<size_t>(id)] != 0; });
      for (const ValueId operand : node.inputs) {
        const NodeId producer = graph_.value(operand).producer;
        update = update || (producer >= 0 && is_update(producer));
      }
      updates_.push_back(update ? 1 : 0);
    }
    for (size_t i = 0; i < updates_.size(); ++i) {
      const Node& node = graph_.nodes()[i];
      if (!is_of_schedule(node) || node.outputs.empty() || def_of(node).traits.message) continue;
      const std::span<const NodeId> readers = readers_.of(node.outputs[0]);
      if (!readers.empty() && std::all_of(readers.begin(), readers.end(), [&](NodeId id) { return is_update(id); })) {
        updates_[i] = 1;
      }
    }
    leave_what_is_sent();
  }

  // It reads nothing but scalars that are fed before the step: a constant, or a group's learning rate.
  bool is_of_schedule(const Node& node) const {
    return std::ranges::all_of(node.inputs, [&](ValueId operand) {
      const Value& value = graph_.value(operand);
      return value.producer < 0 && graph_.inputs()[static_cast<size_t>(value.index)].role == Role::kSchedule;
    });
  }

  // What another crew of a pipeline waits for stays before what this one waits for itself. (A norm that is sent may be
  // summed over ranks together with those that an update is made by.)
  void leave_what_is_sent() {
    std::vector<char> is_sent(graph_.values().size(), 0);
    for (size_t i = graph_.nodes().size(); i-- > 0;) {
      const Node& node = graph_.nodes()[i];
      bool sent = def_of(node).traits.message && node.outputs.empty();
      for (const ValueId made : node.outputs) sent = sent || is_sent[static_cast<size_t>(made)] != 0;
      if (!sent) continue;
      updates_[i] = 0;
      for (const ValueId operand : node.inputs) is_sent[static_cast<size_t>(operand)] = 1;
    }
  }

  void find_last_send() {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      if (is_send(id) && graph_.node(id).phase == Phase::kBackward) last_send_ = id;
    }
  }

  // What the update must see done: the nodes that make its operands, and all others that read the inputs it overwrites.
  void count_waits(NodeId id) {
    for (const ValueId operand : graph_.node(id).inputs) {
      const NodeId producer = graph_.value(operand).producer;
      if (producer >= 0) {
        wait(id, producer);
        continue;
      }
      for (const NodeId reader : readers_.of(operand)) {
        if (!is_update(reader)) wait(id, reader);
      }
    }
    if (last_send_ >= 0 && reads_gradient(id)) wait(id, last_send_);
  }
  bool reads_gradient(NodeId id) const {
    return std::ranges::any_of(graph_.node(id).inputs, [&](ValueId operand) {
      const NodeId producer = graph_.value(operand).producer;
      return producer >= 0 && !is_update(producer) && graph_.node(producer).phase != Phase::kForward;
    });
  }
  void wait(NodeId id, NodeId for_node) {
    ++waits_for_[static_cast<size_t>(id)];
    waited_by_[static_cast<size_t>(for_node)].push_back(id);
  }

  // An op, and what is sent to other crews right after it: they wait for that, not for the updates that it makes ready.
  // Returns the last one.
  NodeId add_with_sends(NodeId id) {
    order_.push_back(id);
    NodeId last = id;
    while (last + 1 < static_cast<NodeId>(graph_.nodes().size()) && is_send(last + 1)) add(++last);
    done(id);
    return last;
  }
  bool is_send(NodeId id) const { return def_of(graph_.node(id)).traits.message && graph_.node(id).outputs.empty(); }

  void add(NodeId id) {
    order_.push_back(id);
    if (!is_communication(def_of(graph_.node(id)))) return done(id);
    arrive(starts_[static_cast<size_t>(id)]);
    on_their_way_.push_back(id);
  }

  void add_once(NodeId id) {
    waits_for_[static_cast<size_t>(id)] = -1;
    add(id);
  }

  // What collectives have sent until then counts as there.
  void arrive(double now_s) {
    const auto is_there = [&](NodeId id) { return ends_[static_cast<size_t>(id)] <= now_s; };
    if (std::ranges::none_of(on_their_way_, is_there)) return;
    const auto later = std::stable_partition(on_their_way_.begin(), on_their_way_.end(), is_there);
    const std::vector<NodeId> arrived(on_their_way_.begin(), later);
    on_their_way_.erase(on_their_way_.begin(), later);
    for (const NodeId id : arrived) done(id);
  }

  void done(NodeId id) {
    for (const NodeId update : waited_by_[static_cast<size_t>(id)]) {
      if (--waits_for_[static_cast<size_t>(update)] == 0) add_once(update);
    }
  }

  const Graph& graph_;
  std::vector<NodeId> order_;
  std::vector<double> starts_, ends_;      // of nodes, in the modelled step
  std::vector<char> updates_;              // of nodes
  std::vector<int> waits_for_;             // of updates: nodes that are not done yet; -1: it is added
  std::vector<Few<NodeId, 2>> waited_by_;  // per node: updates
  Readers readers_;
  std::vector<NodeId> on_their_way_;
  NodeId last_send_ = -1;  // of gradients, which updates come after
};

// Nothing moves where all gradients must be known first.
Program reordered(Program program, const Rates& rates) {
  const std::vector<NodeId> order = EarlyUpdates(program, rates).run();
  if (order.size() == program.graph.nodes().size() && std::ranges::is_sorted(order)) return program;
  Rewrite rewrite(program);
  for (const NodeId id : order) rewrite.copy(id);
  return rewrite.finish();
}

}  // namespace

namespace pass {
extern const Pass early_updates{
    .name = "early_updates",
    .doc = "parameters are updated as soon as their gradients are ready",
    .run = [](Program program, const PassOptions& o) { return reordered(std::move(program), o.rates); },
};
}  // namespace pass

}  // namespace trireme
