#include "trireme/op/computed_rule.h"

#include <mutex>
#include <vector>

#include "trireme/op/call_kinds.h"

namespace trireme {
namespace {

constexpr size_t kMostKept =
    4096;  // of one job some hundreds; programs that read any number of graphs forget the older ones

// The rules of all kinds of calls that were asked for.
class KnownRules {
 public:
  // Null: it is not known yet. A call is an op and its types, or a graph and a node.
  template <class... Call>
  RuleOf find(const OpDef& op, const Call&... call) {
    const std::lock_guard lock(mutex_);
    const Known& known = known_of(call...);
    return known.made_by == op.shard.get() ? known.rule : nullptr;
  }
  void add(const OpDef& op, const TypeArgs& types, const RuleOf& made) {
    const std::lock_guard lock(mutex_);
    known_of(op, types) = {made, op.shard.get()};
  }

 private:
  struct Known {
    RuleOf rule;
    ShardFn* made_by = nullptr;  // an op that lies where another one lay has a rule of its own
  };

  template <class... Call>
  Known& known_of(const Call&... call) {
    if (kinds_.size() >= kMostKept) {
      kinds_ = CallKinds();
      known_.clear();
    }
    const auto kind = static_cast<size_t>(kinds_.of(call...));
    if (known_.size() <= kind) known_.resize(kind + 1);
    return known_[kind];
  }

  std::mutex mutex_;
  CallKinds kinds_;
  std::vector<Known> known_;  // by kind
};

KnownRules& known_rules() {
  static KnownRules known;
  return known;
}

}  // namespace

RuleOf computed_rule(const OpDef& op, const TypeArgs& types) {
  if (RuleOf rule = known_rules().find(op, op, types)) return rule;
  ShardingRule made = op.shard ? op.shard.get()(types) : replicate_rule(types.in, types.out);
  made.reads_place = op.traits.reads_place;
  RuleOf rule = std::make_shared<const ShardingRule>(std::move(made));
  known_rules().add(op, types, rule);
  return rule;
}

RuleOf computed_rule(const Graph& graph, const Node& node) {
  const OpDef& op = def_of(node);
  if (RuleOf rule = known_rules().find(op, graph, node)) return rule;
  std::vector<TensorType> in, out;
  for (const ValueId id : node.inputs) in.push_back(graph.type(id));
  for (const ValueId id : node.outputs) out.push_back(graph.type(id));
  return computed_rule(op, {in, out, node.attrs});
}

}  // namespace trireme
