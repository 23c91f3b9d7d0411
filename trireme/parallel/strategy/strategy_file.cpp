#include "trireme/parallel/strategy/strategy_file.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"
#include "trireme/op/op_def.h"
#include "trireme/parallel/asked/op_names.h"
#include "trireme/parallel/strategy/vouched.h"

namespace trireme {
namespace {

bool is_trained(const Graph& graph, const Input& input) {
  return input.role == Role::kParameter &&
         std::any_of(graph.outputs().begin(), graph.outputs().end(),
                     [&](const Output& output) { return output.updates == input.value; });
}

// What is said of a node, by the names of its factors.
StrategyNode named_choice(const FactorCuts& cuts, const ShardingRule& rule) {
  StrategyNode out;
  if (cuts.vouched) {
    out.vouched = cuts.vouched;
    return out;
  }
  for (size_t f = 0; f < rule.factors.size(); ++f) {
    if (!cuts.axes[f].empty()) out.factors.emplace_back(rule.factors[f].name, cuts.axes[f]);
  }
  out.linear_set = cuts.linear_set;
  if (cuts.linear_set >= 0) {
    for (const PartialAxis& p : cuts.through) out.through.push_back(p.axis);
  }
  if (cuts.copies > 1) {
    out.copied_factor = rule.factors[static_cast<size_t>(cuts.copied_factor)].name;
    out.copies = cuts.copies;
  }
  return out;
}

StrategyLines lines_of(const Graph& graph, const Strategy& strategy) {
  StrategyLines out{.mesh = strategy.mesh};
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = graph.inputs()[i];
    out.inputs.push_back({.name = input.name,
                          .type = graph.type(input.value),
                          .layout = strategy.inputs[i],
                          .summed_once = strategy.sums.once.contains(i)});
  }
  const auto index = [&](ValueId input) { return static_cast<size_t>(graph.value(input).index); };
  for (const Update& update : graph.updates()) {
    for (const ValueId state : update.states)
      out.inputs[index(state)].state_of = graph.inputs()[index(update.parameter)].name;
  }
  out.sums_each = strategy.sums.each;
  out.stages = strategy.stages;
  const std::vector<std::string> keys = node_keys(graph);
  for (size_t i = 0; i < keys.size(); ++i) {
    StrategyNode node = named_choice(strategy.nodes[i], *rule_of(graph, graph.nodes()[i]));
    if (node.factors.empty() && node.linear_set < 0 && node.copies == 1 && !node.vouched) continue;
    node.key = keys[i];
    out.nodes.push_back(std::move(node));
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const Output& output = graph.outputs()[i];
    const auto mean = strategy.means.find(i);
    out.outputs.push_back({output.name, graph.type(output.value), strategy.outputs[i],
                           mean == strategy.means.end() ? Axes{} : mean->second});
  }
  return out;
}

size_t factor_of(const ShardingRule& rule, std::string_view name) {
  return static_cast<size_t>(std::ranges::find(rule.factors, name, &Factor::name) - rule.factors.begin());
}

void check_all(const std::vector<Layout>& layouts, const Graph& graph, const std::vector<ValueId>& values,
               const Mesh& mesh, std::string_view what) {
  require(layouts.size() == values.size(), "{} layouts of {}s are given; there are {}", layouts.size(), what,
          values.size());
  for (size_t i = 0; i < values.size(); ++i)
    check(layouts[i], graph.type(values[i]).shape, mesh, fmt::format("{} {}", what, i));
}

VouchedLayouts vouched_for(const StrategyNode& line, const Graph& graph, const Node& node, const Mesh& mesh) {
  const VouchedLayouts& layouts = *line.vouched;
  if (layouts.parts != 1 && def_of(node).in_part == nullptr)
    wrong_strategy(line.line, fmt::format("{} does not depend on the batch's size; it has no parts", node.op->name));
  try {
    check_all(layouts.in, graph, node.inputs, mesh, "operand");
    check_all(layouts.out, graph, node.outputs, mesh, "result");
  } catch (const Error& e) {
    wrong_strategy(line.line, e.text());
  }
  if (const std::string why = why_unsound(graph, node, layouts, mesh); !why.empty()) wrong_strategy(line.line, why);
  return layouts;
}

}  // namespace

Layout layout_for(const StrategyTensor& tensor, const TensorType& type, const Mesh& mesh, Parts parts) {
  if (tensor.type != type) {
    wrong_strategy(tensor.line, fmt::format("\"{}\" is {} in the model, and {} here", tensor.name, to_string(type),
                                            to_string(tensor.type)));
  }
  try {
    check(tensor.layout, type.shape, mesh, tensor.name, parts);
  } catch (const Error& e) {
    wrong_strategy(tensor.line, e.text());
  }
  return tensor.layout;
}

FactorCuts cuts_for(const StrategyNode& line, const Graph& graph, const Node& node, const Mesh& mesh) {
  const RuleOf computed = rule_of(graph, node);
  const ShardingRule& rule = *computed;
  FactorCuts out;
  out.axes.resize(rule.factors.size());
  for (const auto& [name, axes] : line.factors) {
    const size_t factor = factor_of(rule, name);
    if (factor == rule.factors.size()) {
      wrong_strategy(line.line,
                     fmt::format("{} has no factor '{}'; its rule is {}", node.op->name, name, to_string(rule)));
    }
    out.axes[factor] = axes;
  }
  for (const int axis : line.through) out.through.push_back({axis, Reduction::kSum});
  if (line.linear_set >= static_cast<int>(rule.linear.size())) {
    wrong_strategy(line.line,
                   fmt::format("'{}' is none of the op's {} linear sets", line.linear_set, rule.linear.size()));
  }
  out.linear_set = line.linear_set;
  if (!line.copied_factor.empty()) {
    const size_t factor = factor_of(rule, line.copied_factor);
    if (factor == rule.factors.size())
      wrong_strategy(line.line, fmt::format("{} has no factor '{}'", node.op->name, line.copied_factor));
    out.copied_factor = static_cast<int>(factor);
    out.copies = line.copies;
  }
  if (line.vouched) out.vouched = vouched_for(line, graph, node, mesh);
  if (const std::string why = why_illegal(rule, out, mesh); !why.empty())
    wrong_strategy(line.line, fmt::format("{}: {}", node.op->name, why));
  return out;
}

std::vector<std::string> node_keys(const Graph& graph) {
  const std::vector<int> occurrences = occurrences_of(graph);
  std::vector<std::string> out;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    out.push_back(fmt::format("{}/{}", graph.scope_of(node), occurrence_text(node.op->name, occurrences[i])));
  }
  return out;
}

std::map<std::string, NodeId, std::less<>> nodes_by_key(const Graph& graph) {
  std::map<std::string, NodeId, std::less<>> out;
  for (std::string& key : node_keys(graph)) out.emplace(std::move(key), static_cast<NodeId>(out.size()));
  return out;
}

std::string to_string(const Graph& graph, const Strategy& strategy) {
  return to_string(lines_of(graph, strategy));
}

std::string strategy_file(const Graph& graph, const Strategy& strategy) {
  StrategyLines lines = lines_of(graph, strategy);
  lines.graph = hash_of_graph(graph);
  lines.model = hash_of_model(graph);
  return to_string(lines);
}

std::string trained_parameters_to_string(const Graph& graph, const Strategy& strategy) {
  StrategyLines out{.mesh = without_micro_batches(strategy.mesh), .parameters_only = true};
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = graph.inputs()[i];
    if (is_trained(graph, input)) out.inputs.push_back({input.name, graph.type(input.value), strategy.inputs[i]});
  }
  return to_string(out);
}

SumOrder sum_order_for(const StrategyFile& file, const Graph& graph) {
  SumOrder out{.each = file.lines().sums_each};
  std::map<std::string_view, const StrategyTensor*> once;
  for (const StrategyTensor& line : file.lines().inputs) {
    if (line.summed_once) once.emplace(line.name, &line);
  }
  for (size_t i = 0; i < graph.inputs().size() && !once.empty(); ++i) {
    const auto found = once.find(graph.inputs()[i].name);
    if (found == once.end() || graph.updates().empty()) continue;
    if (graph.update_of(graph.inputs()[i].value) == nullptr)
      wrong_strategy(found->second->line, fmt::format("'{}' is no parameter that is trained; sums=once is for those",
                                                      graph.inputs()[i].name));
    out.once.insert(i);
  }
  return out;
}

namespace {

// A step writes what it updates where it was read, so both lie alike.
void check_update(const StrategyTensor& line, const Graph& graph, const Output& output, const Strategy& strategy) {
  if (output.updates == kNoValue) return;
  const auto input = static_cast<size_t>(graph.value(output.updates).index);
  if (strategy.inputs[input] == line.layout) return;
  wrong_strategy(line.line,
                 fmt::format("\"{}\" lies as {}, and the input \"{}\" that it updates as {}; give both one layout",
                             line.name, to_string(line.layout, strategy.mesh), graph.inputs()[input].name,
                             to_string(strategy.inputs[input], strategy.mesh)));
}

}  // namespace

Strategy strategy_for(const StrategyFile& file, const Graph& graph) {
  const StrategyLines& lines = file.lines();
  Strategy strategy;
  strategy.mesh = lines.mesh;
  strategy.stages = lines.stages;
  strategy.sums = sum_order_for(file, graph);
  if (lines.inputs.size() != graph.inputs().size() || lines.outputs.size() != graph.outputs().size()) {
    wrong_strategy(lines.last,
                   fmt::format("{} inputs and {} outputs are given; the graph has {} and {}", lines.inputs.size(),
                               lines.outputs.size(), graph.inputs().size(), graph.outputs().size()));
  }
  const auto expect = [](const StrategyTensor& tensor, const std::string& name) {
    if (tensor.name != name)
      wrong_strategy(tensor.line, fmt::format("expected \"{}\", found \"{}\"", name, tensor.name));
  };
  for (size_t i = 0; i < lines.inputs.size(); ++i) {
    const Input& input = graph.inputs()[i];
    expect(lines.inputs[i], input.name);
    strategy.inputs.push_back(layout_for(lines.inputs[i], graph.type(input.value), lines.mesh, parts_of(input)));
  }
  const auto ids = nodes_by_key(graph);
  strategy.nodes.resize(graph.nodes().size());
  std::vector<char> given(graph.nodes().size(), 0);
  for (const StrategyNode& line : lines.nodes) {
    const auto found = ids.find(line.key);
    if (found == ids.end()) wrong_strategy(line.line, fmt::format("the model has no node \"{}\"", line.key));
    const auto id = static_cast<size_t>(found->second);
    if (given[id]++ != 0) wrong_strategy(line.line, fmt::format("node \"{}\" is given twice", line.key));
    strategy.nodes[id] = cuts_for(line, graph, graph.nodes()[id], lines.mesh);
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (given[i] == 0) strategy.nodes[i].axes.resize(rule_of(graph, graph.nodes()[i])->factors.size());
  }
  for (size_t i = 0; i < lines.outputs.size(); ++i) {
    const Output& output = graph.outputs()[i];
    expect(lines.outputs[i], output.name);
    strategy.outputs.push_back(layout_for(lines.outputs[i], graph.type(output.value), lines.mesh, Parts::kUneven));
    check_update(lines.outputs[i], graph, output, strategy);
    if (!lines.outputs[i].mean.empty()) strategy.means[i] = lines.outputs[i].mean;
  }
  return strategy;
}

Strategy parse_strategy(std::string_view text, const Graph& graph) {
  return strategy_for(text.empty() ? StrategyFile(StrategyLines{}) : StrategyFile(text), graph);
}

std::map<std::string, Layout> parameter_layouts(const StrategyFile& file, const Graph& graph) {
  const StrategyLines& lines = file.lines();
  std::vector<std::string> names;
  for (const Input& input : graph.inputs()) {
    if (is_trained(graph, input)) names.push_back(input.name);
  }
  std::map<std::string, Layout> out;
  for (const StrategyTensor& input : lines.inputs) {
    if (std::ranges::find(names, input.name) == names.end()) {
      wrong_strategy(input.line,
                     fmt::format("the model trains no parameter '{}'.{}", input.name, suggestion(input.name, names)));
    }
    out[input.name] = layout_for(input, graph.type(graph.input(input.name).value), lines.mesh, Parts::kUneven);
  }
  for (const std::string& name : names) {
    if (!out.contains(name)) wrong_strategy(lines.last, fmt::format("parameter '{}' is missing", name));
  }
  return out;
}

std::vector<char> nodes_of_model(const Graph& graph) {
  const std::vector<Node>& nodes = graph.nodes();
  std::vector<char> behind_gradient(graph.values().size(), 0), needed(graph.values().size(), 0), out(nodes.size(), 0);
  for (const Node& node : nodes) {
    const bool is = node.gradient_of >= 0 || std::ranges::any_of(node.inputs, [&](ValueId id) {
                      return behind_gradient[static_cast<size_t>(id)] != 0;
                    });
    for (const ValueId id : node.outputs) behind_gradient[static_cast<size_t>(id)] = is ? 1 : 0;
  }
  for (const Output& output : graph.outputs()) {
    if (output.updates == kNoValue && behind_gradient[static_cast<size_t>(output.value)] == 0)
      needed[static_cast<size_t>(output.value)] = 1;
  }
  for (size_t i = nodes.size(); i-- > 0;) {
    out[i] =
        std::ranges::any_of(nodes[i].outputs, [&](ValueId id) { return needed[static_cast<size_t>(id)] != 0; }) ? 1 : 0;
    if (out[i] == 0) continue;
    for (const ValueId id : nodes[i].inputs) needed[static_cast<size_t>(id)] = 1;
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].gradient_of >= 0 && out[static_cast<size_t>(nodes[i].gradient_of)] != 0) out[i] = 1;
  }
  return out;
}

std::string hash_of_graph(const Graph& graph) {
  const std::string text = to_string(graph);
  return fmt::format("{:016x}", hash64(std::string_view(text).substr(text.find('\n') + 1)));  // whatever its name
}

std::string hash_of_model(const Graph& graph) {
  std::string text;
  for (const Input& input : graph.inputs()) {
    if (input.role == Role::kData || input.role == Role::kParameter)
      text += fmt::format("{} {}\n", input.name, to_string(graph.type(input.value)));
  }
  const std::vector<char> of_model = nodes_of_model(graph);
  const std::vector<std::string> keys = node_keys(graph);
  for (size_t i = 0; i < keys.size(); ++i) {
    if (of_model[i] == 0) continue;
    text += keys[i];
    for (const ValueId id : graph.nodes()[i].outputs) text += " " + to_string(graph.type(id));
    text += "\n";
  }
  return fmt::format("{:016x}", hash64(text));
}

}  // namespace trireme
