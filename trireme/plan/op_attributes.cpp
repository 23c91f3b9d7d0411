#include "trireme/plan/op_attributes.h"

#include <algorithm>
#include <array>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/op/op_def.h"
#include "trireme/plan/cuts.h"
#include "trireme/plan/vouched.h"

namespace trireme {
namespace {

const std::vector<std::string> kAttributes{"cross_batch", "cross_batch mean", "skip_redistribution",
                                           "self_define_shard"};

// The words before the first layout or arrow.
std::string_view words_of(std::string_view text) {
  return trim(text.substr(0, std::min(text.find('['), text.find("->"))));
}

std::string name_of(const Graph& graph, const Node& node) {
  return fmt::format("{} of '{}'", node.op->name, graph.scope_of(node));
}

bool sums_a_factor(const ShardingRule& rule) {
  for (size_t factor = 0; factor < rule.factors.size(); ++factor) {
    const auto has = [&](const DimFactors& tensor) {
      return std::any_of(tensor.begin(), tensor.end(), [&](const std::vector<int>& dim) {
        return std::find(dim.begin(), dim.end(), static_cast<int>(factor)) != dim.end();
      });
    };
    if (std::none_of(rule.out.begin(), rule.out.end(), has) && rule.factors[factor].can_cut) return true;
  }
  return false;
}

void ask_own_terms(const Graph& graph, NodeId id, bool as_means, Asks& asks) {
  const Node& node = graph.node(id);
  const RuleOf rule = rule_of(graph, node);
  require(sums_a_factor(*rule), "cross_batch of {}: the op reduces no dimension that can be cut; its rule is {}",
          name_of(graph, node), to_string(*rule));
  asks.own_terms[id] = as_means;
}

void ask_as_it_comes(std::string_view text, const Graph& graph, NodeId id, const Mesh& mesh, Asks& asks) {
  const Node& node = graph.node(id);
  require(node.inputs.size() == 1 && def_of(node).traits.zero_cost_view,
          "skip_redistribution of {}: it is for ops that only change their operand's shape, like reshape",
          name_of(graph, node));
  const size_t arrow = text.find("->");
  std::vector<Layout> results;
  if (arrow != std::string_view::npos) {
    results = parse_layouts(text.substr(arrow + 2), graph, node.outputs, mesh, "result of " + name_of(graph, node));
  }
  asks.as_it_comes[id] = std::move(results);
}

void ask_self_defined(std::string_view text, const Graph& graph, NodeId id, const Mesh& mesh, Asks& asks) {
  const Node& node = graph.node(id);
  const size_t arrow = text.find("->");
  require(
      arrow != std::string_view::npos,
      "self_define_shard of {}: '{}' has no '->'; give the layouts of operands and results, like [dp, -] -> [-, dp]",
      name_of(graph, node), text);
  const std::string_view operands = text.substr(text.find('['), arrow - std::min(text.find('['), arrow));
  VouchedLayouts layouts;
  layouts.in = parse_layouts(operands, graph, node.inputs, mesh, "operand of " + name_of(graph, node));
  layouts.out = parse_layouts(text.substr(arrow + 2), graph, node.outputs, mesh, "result of " + name_of(graph, node));
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

bool is_attribute(std::string_view text) {
  text = trim(text);
  require(!text.starts_with("manual_split"),
          "'{}': sizes of parts are given; cuts make parts of one size, of which the last may be shorter. Let the "
          "model's table be an nn::SplitEmbedding of these parts, or cut it like [tp, -], [dp]",
          text);
  if (text.empty() || text.front() == '[' || text.front() == '{' || text.starts_with("->")) return false;
  const std::string words(words_of(text));
  if (std::find(kAttributes.begin(), kAttributes.end(), words) != kAttributes.end()) return true;
  fail(ErrorKind::kInvalidArgument, "'{}' is neither cuts, like {{{{2, 1}}, {{1, 2}}}} or [dp, -], nor one of {}.{}",
       text, quoted_list(kAttributes), suggestion(words, kAttributes));
}

void ask_attribute(std::string_view text, const Graph& graph, NodeId id, const Mesh& mesh, Asks& asks) {
  text = trim(text);
  const std::string_view words = words_of(text);
  if (words == "skip_redistribution") return ask_as_it_comes(text, graph, id, mesh, asks);
  if (words == "self_define_shard") return ask_self_defined(text, graph, id, mesh, asks);
  ask_own_terms(graph, id, words == "cross_batch mean", asks);
}

}  // namespace trireme
