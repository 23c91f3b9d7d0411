// Moves what has another home than the device to it and back.
//
// Before: optimizer state lies in the device's memory all step, and what the forward pass makes for the backward pass
// until that has read it. After: state that parallel.home puts elsewhere is moved to the device before the first op
// that reads it, and what replaces it is moved to its home when the last op has read it. What parallel.keep puts on the
// host leaves the device after its last reader in the forward pass, and comes back before its first reader after that.
//
// The moves run beside the ops. Those for one reader are begun before the reader that stands before it; what would have
// to come back before it has left stays. The pass runs last, when the ops stand where they will run.
#include <algorithm>
#include <map>
#include <set>

#include "trireme/op/move.h"
#include "trireme/op/structural.h"
#include "trireme/pass/pipeline.h"
#include "trireme/pass/recompute_rules.h"
#include "trireme/pass/rewrite.h"

namespace trireme {
namespace {

// A value that is at home until a reader asks for it.
struct Stay {
  ValueId value = kNoValue;
  Tier home = Tier::kHost;
  NodeId leaves_after = -1;  // the last op that uses it before; -1: an input, which is at home from the start
  NodeId first_reader = -1;
};

// A value that replaces an input whose home is elsewhere.
struct Return {
  Tier home = Tier::kHost;
  NodeId last_user = -1;  // the op that makes it, or the last that reads it
};

bool is_late(const Node& node) {
  return is_for_backward(node) || node.phase == Phase::kUpdate;
}

class Homes {
 public:
  Homes(const Program& program, const PassOptions& options)
      : graph_(program.graph), options_(options), rewrite_(program), uses_(graph_.values().size()) {
    find_uses();
    add_state();
    if (options.recompute.keeps_on_host()) add_kept();
    leave_out_the_short();
  }

  bool any() const { return !stays_.empty() || !returns_.empty(); }

  Program run() {
    std::multimap<NodeId, const Stay*> begins, leaves;
    for (const Stay& stay : stays_) {
      begins.emplace(begin_of(stay), &stay);
      if (stay.leaves_after >= 0) leaves.emplace(stay.leaves_after, &stay);
    }
    std::multimap<NodeId, ValueId> returns;
    for (const auto& [value, back] : returns_) returns.emplace(back.last_user, value);
    const auto each = [](const auto& map, NodeId id, auto&& visit) {
      for (auto [at, end] = map.equal_range(id); at != end; ++at) visit(at->second);
    };
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      each(begins, id, [&](const Stay* stay) { come(*stay); });
      copy(id);
      each(leaves, id, [&](const Stay* stay) { at_home_[stay->value] = moved(stay->value, stay->home, id); });
      each(returns, id, [&](ValueId value) { at_home_[value] = moved(value, returns_.at(value).home, id); });
    }
    for (const auto& [value, back] : returns_) rewrite_.same(value, at_home_.at(value));
    return rewrite_.finish();
  }

 private:
  struct Uses {
    NodeId last = -1;                         // the op that makes it, or the last that reads it
    NodeId last_early = -1, first_late = -1;  // of the forward pass, and after
    bool is_output = false;
  };
  static size_t at(ValueId id) { return static_cast<size_t>(id); }

  void find_uses() {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      const Node& node = graph_.node(id);
      for (const ValueId made : node.outputs) uses_[at(made)].last = uses_[at(made)].last_early = id;
      for (const ValueId operand : node.inputs) {
        Uses& uses = uses_[at(operand)];
        uses.last = id;
        if (!is_late(node)) uses.last_early = id;
        if (is_late(node) && uses.first_late < 0) uses.first_late = id;
      }
    }
    for (const Output& output : graph_.outputs()) uses_[at(output.value)].is_output = true;
  }

  void add_state() {
    std::set<ValueId> known;
    for (const Update& update : graph_.updates()) {
      const Input& parameter = graph_.inputs()[at(graph_.value(update.parameter).index)];
      const Tier home = home_of_state(options_.homes, parameter.name);
      if (home == Tier::kDevice) continue;
      for (const ValueId state : update.states) {
        if (known.insert(state).second) add_input(state, home);
      }
    }
  }

  void add_input(ValueId input, Tier home) {
    for (NodeId id = 0; id < static_cast<NodeId>(graph_.nodes().size()); ++id) {
      if (std::ranges::find(graph_.node(id).inputs, input) == graph_.node(id).inputs.end()) continue;
      stays_.push_back({.value = input, .home = home, .first_reader = id});
      break;
    }
    for (const Output& output : graph_.outputs()) {
      if (output.updates == input && graph_.value(output.value).producer >= 0)
        returns_.emplace(output.value, Return{home, uses_[at(output.value)].last});
    }
  }

  void add_kept() {
    const std::vector<RecomputeAsked> asked = recompute_asked(graph_, options_.recompute);
    for (ValueId id = 0; id < static_cast<ValueId>(graph_.values().size()); ++id) {
      const Value& value = graph_.value(id);
      if (value.producer < 0 || uses_[at(id)].is_output || value.type.bytes() < options_.recompute.fewest_bytes)
        continue;
      const Node& producer = graph_.node(value.producer);
      if (def_of(producer).collective && producer.outputs.size() > 1) continue;  // a bucket may be of several phases
      const bool is_kept = uses_[at(id)].first_late > uses_[at(id)].last_early;
      if (is_late(producer) || !asked[at(value.producer)].on_host || !is_kept || looks_at_an_input(id)) continue;
      stays_.push_back({id, Tier::kHost, uses_[at(id)].last_early, uses_[at(id)].first_late});
    }
  }

  bool looks_at_an_input(ValueId id) const {
    NodeId producer = graph_.value(id).producer;
    while (producer >= 0 && def_of(graph_.node(producer)).traits.zero_cost_view) {
      id = graph_.node(producer).inputs[0];
      producer = graph_.value(id).producer;
    }
    return producer < 0;
  }

  // Readers that something comes for, in the program's order.
  void find_readers() {
    readers_.clear();
    for (const Stay& stay : stays_) readers_.push_back(stay.first_reader);
    std::ranges::sort(readers_);
    readers_.erase(std::ranges::unique(readers_).begin(), readers_.end());
  }

  // Before this op the value begins to come.
  NodeId begin_of(const Stay& stay) const {
    const auto reader = std::ranges::lower_bound(readers_, stay.first_reader);
    return reader == readers_.begin() ? std::max(0, stay.first_reader - 1) : *(reader - 1);
  }

  void leave_out_the_short() {
    find_readers();
    while (std::erase_if(stays_, [&](const Stay& stay) { return begin_of(stay) <= stay.leaves_after; }) > 0)
      find_readers();
  }

  ValueId moved(ValueId value, Tier home, NodeId beside) {
    const ValueId out = rewrite_.new_value_like(value);
    rewrite_.insert(structural().move, attrs_of({Tier::kDevice, home}), beside, {{value}}, {{out}});
    return out;
  }

  void come(const Stay& stay) {
    const ValueId here = rewrite_.new_value_like(stay.value);
    const ValueId from = stay.leaves_after < 0 ? stay.value : at_home_.at(stay.value);
    rewrite_.insert(structural().move, attrs_of({stay.home, Tier::kDevice}), stay.first_reader, {{from}}, {{here}});
    here_.emplace(stay.value, here);
  }

  void copy(NodeId id) {
    std::vector<ValueId> in = graph_.node(id).inputs;
    for (ValueId& operand : in) {
      if (const auto here = here_.find(operand); here != here_.end()) operand = here->second;
    }
    rewrite_.copy(id, in, graph_.node(id).outputs);
  }

  const Graph& graph_;
  const PassOptions& options_;
  Rewrite rewrite_;
  std::vector<Uses> uses_;  // by value
  std::vector<Stay> stays_;
  std::map<ValueId, Return> returns_;  // by value
  std::vector<NodeId> readers_;
  std::map<ValueId, ValueId> here_;     // by value: the same that came to the device
  std::map<ValueId, ValueId> at_home_;  // by value: the same that left it
};

}  // namespace

namespace pass {
extern const Pass homes{
    .name = "homes",
    .doc = "what has another home than the device is moved there before it is read, and back",
    .asked_for = [](const PassOptions& o) { return !o.homes.empty() || o.recompute.keeps_on_host(); },
    .run =
        [](Program program, const PassOptions& o) {
          Homes moving(program, o);
          return moving.any() ? moving.run() : std::move(program);
        },
};
}  // namespace pass

}  // namespace trireme
