#include "trireme/op/computed_rule.h"

#include <vector>

#include "trireme/op/known_calls.h"

namespace trireme {
namespace {

constexpr size_t kMostKept =
    4096;  // of one job some hundreds; programs that read any number of graphs forget the older ones

struct KnownRule {
  RuleOf rule;                 // null: it is not known yet
  ShardFn* made_by = nullptr;  // an op that lies where another one lay has a rule of its own
};

KnownCalls<KnownRule>& known_rules() {
  static KnownCalls<KnownRule> known(kMostKept);
  return known;
}

// A call is an op and its types, or a graph and a node.
template <class... Call>
RuleOf known_rule(const OpDef& op, const Call&... call) {
  const KnownRule known = known_rules().find(call...);
  return known.made_by == op.shard.get() ? known.rule : nullptr;
}

}  // namespace

RuleOf computed_rule(const OpDef& op, const TypeArgs& types) {
  if (RuleOf rule = known_rule(op, op, types)) return rule;
  ShardingRule made = op.shard ? op.shard.get()(types) : replicate_rule(types.in, types.out);
  made.reads_place = op.traits.reads_place;
  RuleOf rule = std::make_shared<const ShardingRule>(std::move(made));
  known_rules().add(op, types, {rule, op.shard.get()});
  return rule;
}

RuleOf computed_rule(const Graph& graph, const Node& node) {
  const OpDef& op = def_of(node);
  if (RuleOf rule = known_rule(op, graph, node)) return rule;
  std::vector<TensorType> in, out;
  for (const ValueId id : node.inputs) in.push_back(graph.type(id));
  for (const ValueId id : node.outputs) out.push_back(graph.type(id));
  return computed_rule(op, {in, out, node.attrs});
}

}  // namespace trireme
