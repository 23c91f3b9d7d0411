// The text form of a strategy:
//
//   strategy mesh="dp=2" graph=88c0e06d5a1ebd5f model=0d3a0fd0e0ccd2b1
//   input "image" f32[64,784] [dp, -]
//   stage "layers.0" 1
//   node "layers.0/matmul" m=dp
//   node "layers.0/add#1" through=dp set=0
//   output "loss" f32[] []
//
//   node "/matmul" m=dp copies=m*2
//   node "/reduce_sum" vouched="[dp, -] -> [-]" times=2
//   node "bn1/batch_statistics" vouched="[-, -], [-], [-] -> [-], [-], [-], [-]" parts=2
//   output "bn1.running_mean" f32[64] [-] mean=dp
//
// A node is named by its scope and op, and by how many of these come before it where there are several
// (plan/op_names.h). Its line names the factors of its sharding rule that are cut, and the axes; a node that is not
// named cuts nothing. A scope's ops are of a stage of a pipeline (plan/stages.h). The hashes are of the graph it was
// written for, and of the model in it; without them it is for whatever graph it fits.
#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"
#include "trireme/op/op_def.h"
#include "trireme/plan/cuts.h"
#include "trireme/plan/op_names.h"
#include "trireme/plan/strategy_lines_impl.h"
#include "trireme/plan/vouched.h"

namespace trireme {
namespace {

constexpr std::string_view kWhere = "strategy text, line ";

std::string_view next_word(std::string_view& rest) {
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  size_t end = 0;
  for (bool quoted = false; end < rest.size() && (quoted || rest[end] != ' '); ++end) {
    if (rest[end] == '"') quoted = !quoted;
  }
  const std::string_view word = rest.substr(0, end);
  rest.remove_prefix(end);
  return word;
}

int64_t read_count(std::string_view text, int line) {
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < 1) {
    wrong_strategy(line, fmt::format("'{}' is not a number; it must be a whole number from 1", text));
  }
  return value;
}

double read_factor(std::string_view text, int line) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || !(value > 0) || value > 1e9) {
    wrong_strategy(line, fmt::format("'{}' is not a factor; it must be a number above 0", text));
  }
  return value;
}

// copies=m*2, vouched="[dp] -> [-]", and times=2 and parts=2 after it.
void read_special(std::string_view key, std::string_view value, const Graph& graph, const Node& node,
                  const ShardingRule& rule, const Mesh& mesh, FactorCuts& cuts, int line) {
  if (key == "times" || key == "parts") {
    if (!cuts.vouched) wrong_strategy(line, fmt::format("{}= must stand before vouched=", key));
    if (key == "times") {
      cuts.vouched->factor = read_factor(value, line);
    } else {
      cuts.vouched->parts = read_count(value, line);
      if (def_of(node).in_part == nullptr)
        wrong_strategy(line, fmt::format("{} does not depend on the batch's size; it has no parts", node.op->name));
    }
  } else if (key == "copies") {
    const size_t star = value.rfind('*');
    if (star == std::string_view::npos)
      wrong_strategy(line, fmt::format("expected copies=factor*number, found '{}'", value));
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      if (rule.factors[f].name == value.substr(0, star)) cuts.copied_factor = static_cast<int>(f);
    }
    if (cuts.copied_factor < 0)
      wrong_strategy(line, fmt::format("{} has no factor '{}'", node.op->name, value.substr(0, star)));
    cuts.copies = read_count(value.substr(star + 1), line);
  } else {
    const size_t arrow = value.find("->");
    if (value.size() < 2 || value.front() != '"' || value.back() != '"' || arrow == std::string_view::npos) {
      wrong_strategy(line, fmt::format("expected vouched=\"layouts -> layouts\", found '{}'", value));
    }
    VouchedLayouts layouts;
    layouts.in = parse_layouts(value.substr(1, arrow - 1), graph, node.inputs, mesh, "operand");
    layouts.out = parse_layouts(value.substr(arrow + 2, value.size() - arrow - 3), graph, node.outputs, mesh, "result");
    if (const std::string why = why_unsound(graph, node, layouts, mesh); !why.empty()) wrong_strategy(line, why);
    cuts.vouched = std::move(layouts);
  }
}

void read_choice(std::string_view rest, const Graph& graph, const Node& node, const Mesh& mesh, FactorCuts& cuts,
                 int line) {
  const RuleOf computed = rule_of(graph, node);
  const ShardingRule& rule = *computed;
  cuts.axes.resize(rule.factors.size());
  for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest)) {
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) wrong_strategy(line, fmt::format("expected factor=axes, found '{}'", word));
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = word.substr(equals + 1);
    if (key == "through") {
      for (const int axis : parse_axes(value, mesh)) cuts.through.push_back({axis, Reduction::kSum});
      continue;
    }
    if (key == "set") {
      if (value.size() != 1 || value[0] < '0' || static_cast<size_t>(value[0] - '0') >= rule.linear.size()) {
        wrong_strategy(line, fmt::format("'{}' is none of the op's {} linear sets", value, rule.linear.size()));
      }
      cuts.linear_set = value[0] - '0';
      continue;
    }
    if (key == "copies" || key == "vouched" || key == "times" || key == "parts") {
      read_special(key, value, graph, node, rule, mesh, cuts, line);
      continue;
    }
    bool known = false;
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      if (rule.factors[f].name != key) continue;
      cuts.axes[f] = parse_axes(value, mesh);
      known = true;
    }
    if (!known)
      wrong_strategy(line, fmt::format("{} has no factor '{}'; its rule is {}", node.op->name, key, to_string(rule)));
  }
  if (const std::string why = why_illegal(rule, cuts, mesh); !why.empty()) {
    wrong_strategy(line, fmt::format("{}: {}", node.op->name, why));
  }
}

constexpr std::string_view kParametersOnly = "only=parameters";

Mesh read_mesh(std::string_view word, int line) {
  if (!word.starts_with("mesh=\"") || !word.ends_with('"') || word.size() < 7) {
    wrong_strategy(line, "expected mesh=\"axis=size,...\"");
  }
  return parse_mesh(word.substr(6, word.size() - 7));
}

constexpr std::string_view kMean = " mean=";

std::string_view unquoted(std::string_view word, std::string_view kind, int line) {
  if (word.size() < 2 || word.front() != '"' || word.back() != '"') {
    wrong_strategy(
        line,
        fmt::format(
            "expected {} \"name\", found {}; a file of an earlier version, which numbered nodes, must be saved again",
            kind, word.empty() ? "nothing" : fmt::format("'{}'", word)));
  }
  return word.substr(1, word.size() - 2);
}

void read_head(std::string_view rest, StrategyLines& out, int line) {
  if (out.mesh.axes() > 0)
    wrong_strategy(line, "the mesh is given twice");  // layouts that were read name axes of the first
  out.mesh = read_mesh(next_word(rest), line);
  for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest)) {
    if (word == kParametersOnly) {
      out.parameters_only = true;
    } else if (word.starts_with("graph=")) {
      out.graph = word.substr(6);
    } else if (word.starts_with("model=")) {
      out.model = word.substr(6);
    } else {
      wrong_strategy(line, fmt::format("unexpected '{}'", word));
    }
  }
}

std::string layout_line(std::string_view kind, const std::string& name, const TensorType& type, const Layout& layout,
                        const Mesh& mesh) {
  return fmt::format("{} \"{}\" {} {}\n", kind, name, to_string(type), to_string(layout, mesh));
}

bool is_trained(const Graph& graph, const Input& input) {
  return input.role == Role::kParameter &&
         std::any_of(graph.outputs().begin(), graph.outputs().end(),
                     [&](const Output& output) { return output.updates == input.value; });
}

// What a mesh, a layout or a list of axes says does not know the line: it is added.
template <class Read>
auto at_line(int line, Read&& read) {
  try {
    return read();
  } catch (const Error& e) {
    if (e.text().starts_with(kWhere)) throw;
    wrong_strategy(line, e.text());
  }
}

std::string print_all(const std::vector<Layout>& layouts, const Mesh& mesh) {
  std::string out;
  for (const Layout& layout : layouts) out += fmt::format("{}{}", out.empty() ? "" : ", ", to_string(layout, mesh));
  return out;
}

}  // namespace

void wrong_strategy(int line, std::string_view what) {
  fail(ErrorKind::kInvalidArgument, "{}{}: {}", kWhere, line, what);
}

StrategyLines read_strategy_lines(std::string_view text) {
  StrategyLines out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view rest = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const int line = ++out.last;
    const std::string_view kind = next_word(rest);
    if (kind.empty()) continue;
    if (kind == "strategy") {
      at_line(line, [&] { read_head(rest, out, line); });
      continue;
    }
    if (kind == "stage") {
      const std::string_view scope = unquoted(next_word(rest), kind, line);
      const std::string_view number = next_word(rest);
      int stage = -1;
      const auto [last, status] = std::from_chars(number.data(), number.data() + number.size(), stage);
      if (status != std::errc() || last != number.data() + number.size() || stage < 0)
        wrong_strategy(line, fmt::format("'{}' is no stage; stages are whole numbers from 0", number));
      if (!out.stages.emplace(scope, stage).second)
        wrong_strategy(line, fmt::format("\"{}\" is given two stages", scope));
      continue;
    }
    if (kind != "input" && kind != "node" && kind != "output")
      wrong_strategy(line, fmt::format("unexpected '{}'", kind));
    std::vector<StrategyLine>& lines = kind == "input" ? out.inputs : kind == "node" ? out.nodes : out.outputs;
    const std::string_view name = unquoted(next_word(rest), kind, line);
    lines.push_back({std::string(name), std::string(rest), line});
  }
  return out;
}

std::string_view type_text(const StrategyLine& line) {
  std::string_view rest = line.rest;
  return next_word(rest);
}

std::string_view layout_text(const StrategyLine& line) {
  std::string_view rest = line.rest;
  next_word(rest);
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  return rest.substr(0, rest.find(kMean));
}

Layout read_layout(const StrategyLine& line, const TensorType& type, const Mesh& mesh, Parts parts) {
  return at_line(line.line, [&] {
    if (type_text(line) != to_string(type)) {
      wrong_strategy(line.line, fmt::format("\"{}\" is {} in the model, and {} here", line.name, to_string(type),
                                            type_text(line)));
    }
    const Layout layout = parse_layout(layout_text(line), mesh, type.shape.rank());
    check(layout, type.shape, mesh, line.name, parts);
    return layout;
  });
}

std::vector<int> read_mean(const StrategyLine& line, const Layout& layout, const Mesh& mesh) {
  const size_t at = line.rest.find(kMean);
  if (at == std::string::npos) return {};
  return at_line(line.line, [&] {
    const std::vector<int> axes = parse_axes(line.rest.substr(at + kMean.size()), mesh);
    for (const int axis : axes) {
      if (layout.uses(axis))
        wrong_strategy(line.line, fmt::format("'{}' is cut by an axis that its mean is over", line.name));
    }
    return axes;
  });
}

FactorCuts read_cuts(const StrategyLine& line, const Graph& graph, const Node& node, const Mesh& mesh) {
  FactorCuts cuts;
  at_line(line.line, [&] { read_choice(line.rest, graph, node, mesh, cuts, line.line); });
  return cuts;
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
  std::string out = fmt::format("strategy mesh=\"{}\"\n", to_string(strategy.mesh));
  const std::vector<std::string> keys = node_keys(graph);
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    out += layout_line("input", graph.inputs()[i].name, graph.type(graph.inputs()[i].value), strategy.inputs[i],
                       strategy.mesh);
  }
  for (const auto& [scope, stage] : strategy.stages) out += fmt::format("stage \"{}\" {}\n", scope, stage);
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const FactorCuts& cuts = strategy.nodes[i];
    const RuleOf computed = rule_of(graph, node);
    const ShardingRule& rule = *computed;
    std::string choice;
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      if (cuts.axes[f].empty()) continue;
      choice += fmt::format(" {}={}", rule.factors[f].name, print_axes(cuts.axes[f], strategy.mesh));
    }
    if (cuts.linear_set >= 0) {
      std::vector<int> axes;
      for (const PartialAxis& p : cuts.through) axes.push_back(p.axis);
      choice += fmt::format(" through={} set={}", print_axes(axes, strategy.mesh), cuts.linear_set);
    }
    if (cuts.copies > 1) {
      choice += fmt::format(" copies={}*{}", rule.factors[static_cast<size_t>(cuts.copied_factor)].name, cuts.copies);
    }
    if (cuts.vouched) {
      choice = fmt::format(" vouched=\"{} -> {}\"", print_all(cuts.vouched->in, strategy.mesh),
                           print_all(cuts.vouched->out, strategy.mesh));
      if (cuts.vouched->factor != 1) choice += fmt::format(" times={}", cuts.vouched->factor);
      if (cuts.vouched->parts != 1) choice += fmt::format(" parts={}", cuts.vouched->parts);
    }
    if (choice.empty()) continue;
    out += fmt::format("node \"{}\"{}\n", keys[i], choice);
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    const Output& output = graph.outputs()[i];
    out += layout_line("output", output.name, graph.type(output.value), strategy.outputs[i], strategy.mesh);
    if (const auto mean = strategy.means.find(i); mean != strategy.means.end()) {
      out.insert(out.size() - 1, fmt::format("{}{}", kMean, print_axes(mean->second, strategy.mesh)));
    }
  }
  return out;
}

Strategy parse_strategy(std::string_view text, const Graph& graph) {
  const StrategyLines lines = read_strategy_lines(text);
  Strategy strategy;
  strategy.mesh = lines.mesh;
  strategy.stages = lines.stages;
  if (lines.inputs.size() != graph.inputs().size() || lines.outputs.size() != graph.outputs().size()) {
    wrong_strategy(lines.last,
                   fmt::format("{} inputs and {} outputs are given; the graph has {} and {}", lines.inputs.size(),
                               lines.outputs.size(), graph.inputs().size(), graph.outputs().size()));
  }
  const auto expect = [](const StrategyLine& line, const std::string& name) {
    if (line.name != name) wrong_strategy(line.line, fmt::format("expected \"{}\", found \"{}\"", name, line.name));
  };
  for (size_t i = 0; i < lines.inputs.size(); ++i) {
    const Input& input = graph.inputs()[i];
    expect(lines.inputs[i], input.name);
    strategy.inputs.push_back(read_layout(lines.inputs[i], graph.type(input.value), lines.mesh, parts_of(input)));
  }
  const auto ids = nodes_by_key(graph);
  strategy.nodes.resize(graph.nodes().size());
  std::vector<char> given(graph.nodes().size(), 0);
  for (const StrategyLine& line : lines.nodes) {
    const auto found = ids.find(line.name);
    if (found == ids.end()) wrong_strategy(line.line, fmt::format("the model has no node \"{}\"", line.name));
    const auto id = static_cast<size_t>(found->second);
    if (given[id]++ != 0) wrong_strategy(line.line, fmt::format("node \"{}\" is given twice", line.name));
    strategy.nodes[id] = read_cuts(line, graph, graph.nodes()[id], lines.mesh);
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    if (given[i] == 0) strategy.nodes[i].axes.resize(rule_of(graph, graph.nodes()[i])->factors.size());
  }
  for (size_t i = 0; i < lines.outputs.size(); ++i) {
    const Output& output = graph.outputs()[i];
    expect(lines.outputs[i], output.name);
    strategy.outputs.push_back(read_layout(lines.outputs[i], graph.type(output.value), lines.mesh, Parts::kUneven));
    std::vector<int> mean = read_mean(lines.outputs[i], strategy.outputs.back(), lines.mesh);
    if (!mean.empty()) strategy.means[i] = std::move(mean);
  }
  return strategy;
}

std::string strategy_file(const Graph& graph, const Strategy& strategy) {
  std::string out = to_string(graph, strategy);
  out.insert(out.find('\n'), fmt::format(" graph={} model={}", hash_of_graph(graph), hash_of_model(graph)));
  return out;
}

std::string trained_parameters_to_string(const Graph& graph, const Strategy& strategy) {
  const Mesh ranks = without_micro_batches(strategy.mesh);
  std::string out = fmt::format("strategy mesh=\"{}\" {}\n", to_string(ranks), kParametersOnly);
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = graph.inputs()[i];
    if (is_trained(graph, input))
      out += layout_line("input", input.name, graph.type(input.value), strategy.inputs[i], ranks);
  }
  return out;
}

Mesh mesh_of_strategy(std::string_view text) {
  return read_strategy_lines(text).mesh;
}

bool has_parameters_only(std::string_view text) {
  return text.substr(0, text.find('\n')).find(kParametersOnly) != std::string_view::npos;
}

ParameterLayouts parse_parameter_layouts(std::string_view text, const Graph& graph) {
  ParameterLayouts out;
  std::vector<std::string> names;
  for (const Input& input : graph.inputs()) {
    if (is_trained(graph, input)) names.push_back(input.name);
  }
  const StrategyLines lines = read_strategy_lines(text);
  out.mesh = lines.mesh;
  const auto refuse = [](const std::vector<StrategyLine>& of, std::string_view kind) {
    if (!of.empty()) wrong_strategy(of.front().line, fmt::format("unexpected '{}' in a file of parameters only", kind));
  };
  refuse(lines.nodes, "node");
  refuse(lines.outputs, "output");
  for (const StrategyLine& line : lines.inputs) {
    if (std::find(names.begin(), names.end(), line.name) == names.end()) {
      wrong_strategy(line.line,
                     fmt::format("the model trains no parameter '{}'.{}", line.name, suggestion(line.name, names)));
    }
    out.layouts[line.name] = read_layout(line, graph.type(graph.input(line.name).value), out.mesh, Parts::kUneven);
  }
  for (const std::string& name : names) {
    if (!out.layouts.contains(name)) wrong_strategy(lines.last, fmt::format("parameter '{}' is missing", name));
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
