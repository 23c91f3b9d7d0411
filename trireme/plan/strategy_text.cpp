// The text form of a strategy:
//
//   strategy mesh="dp=2"
//   input "image" [dp, -]
//   node 0 matmul @"layers.0" m=dp
//   node 7 add through=dp set=0
//   output "loss" -
//
// A node's line names the factors of its sharding rule that are cut, and the axes; a node that is not named cuts nothing.
#include <charconv>

#include "trireme/base/error.h"
#include "trireme/op/op_def.h"
#include "trireme/plan/strategy.h"

namespace trireme {
namespace {

constexpr std::string_view kWhere = "strategy text, line ";

[[noreturn]] void wrong(int line, std::string_view what) {
  fail(ErrorKind::kInvalidArgument, "{}{}: {}", kWhere, line, what);
}

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

// "input "name" layout" and "output "name" layout".
Layout read_layout(std::string_view rest, const std::string& name, const TensorType& type, const Mesh& mesh, int line) {
  const std::string_view word = next_word(rest);
  if (word != fmt::format("\"{}\"", name)) wrong(line, fmt::format("expected \"{}\", found {}", name, word));
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const Layout layout = parse_layout(rest, mesh, type.shape.rank());
  check(layout, type.shape, mesh, name);
  return layout;
}

void read_node(std::string_view rest, const Graph& graph, Strategy& strategy, int line) {
  const std::string_view number = next_word(rest);
  size_t id = 0;
  const auto [end, status] = std::from_chars(number.data(), number.data() + number.size(), id);
  if (status != std::errc() || end != number.data() + number.size() || id >= graph.nodes().size()) {
    wrong(line, fmt::format("no node '{}'; the graph has {}", number, graph.nodes().size()));
  }
  const Node& node = graph.nodes()[id];
  if (const std::string_view name = next_word(rest); name != node.op->name) {
    wrong(line, fmt::format("node {} is '{}', not '{}'", id, node.op->name, name));
  }
  const ShardingRule rule = rule_of(graph, node);
  FactorCuts& cuts = strategy.nodes[id];
  for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest)) {
    if (word.front() == '@') continue;
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) wrong(line, fmt::format("expected factor=axes, found '{}'", word));
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = word.substr(equals + 1);
    if (key == "through") {
      for (const int axis : parse_axes(value, strategy.mesh)) cuts.through.push_back({axis, Reduction::kSum});
      continue;
    }
    if (key == "set") {
      if (value.size() != 1 || value[0] < '0' || static_cast<size_t>(value[0] - '0') >= rule.linear.size()) {
        wrong(line, fmt::format("'{}' is none of the op's {} linear sets", value, rule.linear.size()));
      }
      cuts.linear_set = value[0] - '0';
      continue;
    }
    bool known = false;
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      if (rule.factors[f].name != key) continue;
      cuts.axes[f] = parse_axes(value, strategy.mesh);
      known = true;
    }
    if (!known) wrong(line, fmt::format("{} has no factor '{}'; its rule is {}", node.op->name, key, to_string(rule)));
  }
  if (const std::string why = why_illegal(rule, cuts, strategy.mesh); !why.empty()) {
    wrong(line, fmt::format("{}: {}", node.op->name, why));
  }
}

void read_line(std::string_view rest, const Graph& graph, Strategy& strategy, int line) {
  const std::string_view kind = next_word(rest);
  if (kind.empty()) return;
  if (kind == "strategy") {
    const std::string_view mesh = next_word(rest);
    if (!mesh.starts_with("mesh=\"") || !mesh.ends_with('"') || mesh.size() < 7) {
      wrong(line, "expected mesh=\"axis=size,...\"");
    }
    strategy.mesh = parse_mesh(mesh.substr(6, mesh.size() - 7));
  } else if (kind == "input" && strategy.inputs.size() < graph.inputs().size()) {
    const Input& input = graph.inputs()[strategy.inputs.size()];
    strategy.inputs.push_back(read_layout(rest, input.name, graph.type(input.value), strategy.mesh, line));
  } else if (kind == "output" && strategy.outputs.size() < graph.outputs().size()) {
    const Output& output = graph.outputs()[strategy.outputs.size()];
    strategy.outputs.push_back(read_layout(rest, output.name, graph.type(output.value), strategy.mesh, line));
  } else if (kind == "node") {
    read_node(rest, graph, strategy, line);
  } else {
    wrong(line, fmt::format("unexpected '{}'", kind));
  }
}

}  // namespace

std::string to_string(const Graph& graph, const Strategy& strategy) {
  std::string out = fmt::format("strategy mesh=\"{}\"\n", to_string(strategy.mesh));
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    out += fmt::format("input \"{}\" {}\n", graph.inputs()[i].name, to_string(strategy.inputs[i], strategy.mesh));
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    const FactorCuts& cuts = strategy.nodes[i];
    const ShardingRule rule = rule_of(graph, node);
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
    if (choice.empty()) continue;
    out += fmt::format("node {} {} @\"{}\"{}\n", i, node.op->name, graph.scope_of(node), choice);
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i) {
    out += fmt::format("output \"{}\" {}\n", graph.outputs()[i].name, to_string(strategy.outputs[i], strategy.mesh));
  }
  return out;
}

Strategy parse_strategy(std::string_view text, const Graph& graph) {
  Strategy strategy;
  strategy.nodes.resize(graph.nodes().size());
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    strategy.nodes[i].axes.resize(rule_of(graph, graph.nodes()[i]).factors.size());
  }
  int line = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view content = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line;
    try {
      read_line(content, graph, strategy, line);
    } catch (const Error& e) {  // what a mesh, a layout or a list of axes says does not know the line
      if (e.text().starts_with(kWhere)) throw;
      wrong(line, e.text());
    }
  }
  if (strategy.inputs.size() != graph.inputs().size() || strategy.outputs.size() != graph.outputs().size()) {
    wrong(line, fmt::format("{} inputs and {} outputs are given; the graph has {} and {}", strategy.inputs.size(),
                            strategy.outputs.size(), graph.inputs().size(), graph.outputs().size()));
  }
  return strategy;
}

}  // namespace trireme
