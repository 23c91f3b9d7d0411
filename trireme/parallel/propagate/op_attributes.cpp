#include "trireme/parallel/propagate/op_attributes.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/op/op_def.h"
#include "trireme/parallel/propagate/op_cuts.h"
#include "trireme/parallel/strategy/vouched.h"

namespace trireme {
namespace {

std::string name_of(const Graph& graph, const Node& node) {
  return fmt::format("{} of '{}'", node.op->name, graph.scope_of(node));
}

bool sums_a_factor(const ShardingRule& rule) {
  for (size_t factor = 0; factor < rule.factors.size(); ++factor) {
    const auto has = [&](const DimFactors& tensor) {
      return std::any_of(tensor.begin(), tensor.end(), [&](const FactorsOfDim& dim) {
        return std::find(dim.begin(), dim.end(), static_cast<int>(factor)) != dim.end();
      });
    };
    if (std::none_of(rule.out.begin(), rule.out.end(), has) && rule.factors[factor].can_cut) return true;
  }
  return false;
}

void ask_unsummed(const Graph& graph, NodeId id, bool as_means, Asks& asks) {
  const Node& node = graph.node(id);
  const RuleOf rule = rule_of(graph, node);
  require(sums_a_factor(*rule), "cross_batch of {}: the op reduces no dimension that can be cut; its rule is {}",
          name_of(graph, node), to_string(*rule));
  asks.unsummed[id] = as_means;
}

void ask_as_it_comes(const OpAttribute& attribute, const Graph& graph, NodeId id, const Mesh& mesh, Asks& asks) {
  const Node& node = graph.node(id);
  require(node.inputs.size() == 1 && def_of(node).traits.zero_cost_view,
          "skip_redistribution of {}: it is for ops that only change their operand's shape, like reshape",
          name_of(graph, node));
  std::vector<Layout>& results = asks.as_it_comes[id];
  results.clear();
  if (!attribute.results.empty())
    results = layouts_of(attribute.results, graph, node.outputs, mesh, "result of " + name_of(graph, node));
}

void ask_self_defined(const OpAttribute& attribute, const Graph& graph, NodeId id, const Mesh& mesh, Asks& asks) {
  const Node& node = graph.node(id);
  VouchedLayouts layouts;
  layouts.in = layouts_of(attribute.operands, graph, node.inputs, mesh, "operand of " + name_of(graph, node));
  layouts.out = layouts_of(attribute.results, graph, node.outputs, mesh, "result of " + name_of(graph, node));
  for (const std::vector<Layout>* side : {&layouts.in, &layouts.out}) {
    for (const Layout& layout : *side) {
      require(!layout.is_partial(), "self_define_shard of {}: {} is a partial sum; ask for cuts only",
              name_of(graph, node), to_string(layout, mesh));
    }
  }
  const std::string why = why_unsound(graph, node, layouts, mesh);
  require(why.empty(), "self_define_shard of {}: {}", name_of(graph, node), why);
  FactorCuts& cuts = asks.nodes[id];
  cuts.axes.resize(rule_of(graph, node)->factors.size());
  cuts.vouched = std::move(layouts);
}

}  // namespace

void ask_attribute(const OpAttribute& attribute, const Graph& graph, NodeId id, const Mesh& mesh, Asks& asks) {
  switch (attribute.kind) {
    case OpAttribute::Kind::kSkipRedistribution:
      return ask_as_it_comes(attribute, graph, id, mesh, asks);
    case OpAttribute::Kind::kSelfDefineShard:
      return ask_self_defined(attribute, graph, id, mesh, asks);
    case OpAttribute::Kind::kCrossBatch:
      return ask_unsummed(graph, id, false, asks);
    case OpAttribute::Kind::kCrossBatchMean:
      return ask_unsummed(graph, id, true, asks);
  }
}

}  // namespace trireme
