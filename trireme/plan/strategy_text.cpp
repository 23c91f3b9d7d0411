// The text form of a strategy:
//
//   strategy mesh="dp=2"
//   input "image" f32[64,784] [dp, -]
//   node 0 matmul @"layers.0" m=dp
//   node 7 add#1 @"" through=dp set=0
//   output "loss" f32[] []
//
//   node 9 matmul m=dp copies=m*2
//   node 12 reduce_sum vouched="[dp, -] -> [-]" times=2
//   node 13 batch_statistics vouched="[-, -], [-], [-] -> [-], [-], [-], [-]" parts=2
//   output "bn1.running_mean" f32[64] [-] mean=dp
//
// A node's line names the op, "#1" where it is the second of its name in its scope (op_names.h), the factors of its sharding rule
// that are cut, and the axes; a node that is not named cuts nothing.
#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"
#include "trireme/op/op_def.h"
#include "trireme/plan/cuts.h"
#include "trireme/plan/op_names.h"
#include "trireme/plan/strategy.h"
#include "trireme/plan/vouched.h"

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

// "input "name" type layout" and "output "name" type layout", after the first word.
Layout read_layout(std::string_view rest, const std::string& name, const TensorType& type, const Mesh& mesh, int line, Parts parts) {
  const std::string_view word = next_word(rest);
  if (word != fmt::format("\"{}\"", name)) wrong(line, fmt::format("expected \"{}\", found {}", name, word));
  if (const std::string_view given = next_word(rest); given != to_string(type)) {
    wrong(line, fmt::format("\"{}\" is {} in the model, and {} here", name, to_string(type), given));
  }
  while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  const Layout layout = parse_layout(rest, mesh, type.shape.rank());
  check(layout, type.shape, mesh, name, parts);
  return layout;
}

int64_t read_count(std::string_view text, int line) {
  int64_t value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || value < 1) {
    wrong(line, fmt::format("'{}' is no number; it must be a whole number from 1", text));
  }
  return value;
}

double read_factor(std::string_view text, int line) {
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (status != std::errc() || end != text.data() + text.size() || !(value > 0) || value > 1e9) {
    wrong(line, fmt::format("'{}' is no factor; it must be a number above 0", text));
  }
  return value;
}

// copies=m*2, vouched="[dp] -> [-]", and times=2 and parts=2 after it.
void read_special(std::string_view key, std::string_view value, const Graph& graph, const Node& node,
                  const ShardingRule& rule, const Mesh& mesh, FactorCuts& cuts, int line) {
  if (key == "times" || key == "parts") {
    if (!cuts.vouched) wrong(line, fmt::format("{}= stands after vouched=", key));
    if (key == "times") {
      cuts.vouched->factor = read_factor(value, line);
    } else {
      cuts.vouched->parts = read_count(value, line);
      if (def_of(node).in_part == nullptr) wrong(line, fmt::format("{} does not say the batch's size; it has no parts", node.op->name));
    }
  } else if (key == "copies") {
    const size_t star = value.rfind('*');
    if (star == std::string_view::npos) wrong(line, fmt::format("expected copies=factor*number, found '{}'", value));
    for (size_t f = 0; f < rule.factors.size(); ++f) {
      if (rule.factors[f].name == value.substr(0, star)) cuts.copied_factor = static_cast<int>(f);
    }
    if (cuts.copied_factor < 0) wrong(line, fmt::format("{} has no factor '{}'", node.op->name, value.substr(0, star)));
    cuts.copies = read_count(value.substr(star + 1), line);
  } else {
    const size_t arrow = value.find("->");
    if (value.size() < 2 || value.front() != '"' || value.back() != '"' || arrow == std::string_view::npos) {
      wrong(line, fmt::format("expected vouched=\"layouts -> layouts\", found '{}'", value));
    }
    VouchedLayouts layouts;
    layouts.in = parse_layouts(value.substr(1, arrow - 1), graph, node.inputs, mesh, "operand");
    layouts.out = parse_layouts(value.substr(arrow + 2, value.size() - arrow - 3), graph, node.outputs, mesh, "result");
    if (const std::string why = why_unsound(graph, node, layouts, mesh); !why.empty()) wrong(line, why);
    cuts.vouched = std::move(layouts);
  }
}

void read_node(std::string_view rest, const Graph& graph, const std::vector<int>& occurrences, Strategy& strategy, int line) {
  const std::string_view number = next_word(rest);
  size_t id = 0;
  const auto [end, status] = std::from_chars(number.data(), number.data() + number.size(), id);
  if (status != std::errc() || end != number.data() + number.size() || id >= graph.nodes().size()) {
    wrong(line, fmt::format("no node '{}'; the graph has {}", number, graph.nodes().size()));
  }
  const Node& node = graph.nodes()[id];
  const std::string known = occurrence_text(node.op->name, occurrences[id]);
  if (const std::string_view name = next_word(rest); name != known && name != node.op->name) {
    wrong(line, fmt::format("node {} is '{}', not '{}'", id, known, name));
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
    if (key == "copies" || key == "vouched" || key == "times" || key == "parts") {
      read_special(key, value, graph, node, rule, strategy.mesh, cuts, line);
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

constexpr std::string_view kParametersOnly = "only=parameters";

Mesh read_mesh(std::string_view word, int line) {
  if (!word.starts_with("mesh=\"") || !word.ends_with('"') || word.size() < 7) {
    wrong(line, "expected mesh=\"axis=size,...\"");
  }
  return parse_mesh(word.substr(6, word.size() - 7));
}

constexpr std::string_view kMean = " mean=";

// The axes of " mean=dp", of the output whose layout was just read.
void read_mean(std::string_view axes, const Output& output, Strategy& strategy, int line) {
  std::vector<int> over = parse_axes(axes, strategy.mesh);
  for (const int axis : over) {
    if (strategy.outputs.back().uses(axis)) wrong(line, fmt::format("'{}' is cut by an axis that its mean is over", output.name));
  }
  strategy.means[strategy.outputs.size() - 1] = std::move(over);
}

void read_line(std::string_view rest, const Graph& graph, const std::vector<int>& occurrences, Strategy& strategy, int line) {
  const std::string_view kind = next_word(rest);
  if (kind.empty()) return;
  if (kind == "strategy") {
    if (strategy.mesh.axes() > 0) wrong(line, "the mesh is given twice");  // layouts that were read name axes of the first
    strategy.mesh = read_mesh(next_word(rest), line);
  } else if (kind == "input" && strategy.inputs.size() < graph.inputs().size()) {
    const Input& input = graph.inputs()[strategy.inputs.size()];
    strategy.inputs.push_back(read_layout(rest, input.name, graph.type(input.value), strategy.mesh, line, parts_of(input)));
  } else if (kind == "output" && strategy.outputs.size() < graph.outputs().size()) {
    const Output& output = graph.outputs()[strategy.outputs.size()];
    const std::string_view layout = rest.substr(0, rest.find(kMean));
    strategy.outputs.push_back(read_layout(layout, output.name, graph.type(output.value), strategy.mesh, line, Parts::kUneven));
    if (layout != rest) read_mean(rest.substr(layout.size() + kMean.size()), output, strategy, line);
  } else if (kind == "node") {
    read_node(rest, graph, occurrences, strategy, line);
  } else {
    wrong(line, fmt::format("unexpected '{}'", kind));
  }
}

}  // namespace

namespace {

std::string layout_line(std::string_view kind, const std::string& name, const TensorType& type, const Layout& layout,
                        const Mesh& mesh) {
  return fmt::format("{} \"{}\" {} {}\n", kind, name, to_string(type), to_string(layout, mesh));
}

bool is_trained(const Graph& graph, const Input& input) {
  return input.role == Role::kParameter &&
         std::any_of(graph.outputs().begin(), graph.outputs().end(),
                     [&](const Output& output) { return output.updates == input.value; });
}

// Calls `read` for each line. What a mesh, a layout or a list of axes says does not know the line: it is added.
template <class Read>
int each_line(std::string_view text, Read&& read) {
  int line = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view content = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line;
    try {
      read(content, line);
    } catch (const Error& e) {
      if (e.text().starts_with(kWhere)) throw;
      wrong(line, e.text());
    }
  }
  return line;
}

std::string print_all(const std::vector<Layout>& layouts, const Mesh& mesh) {
  std::string out;
  for (const Layout& layout : layouts) out += fmt::format("{}{}", out.empty() ? "" : ", ", to_string(layout, mesh));
  return out;
}

}  // namespace

std::string to_string(const Graph& graph, const Strategy& strategy) {
  std::string out = fmt::format("strategy mesh=\"{}\"\n", to_string(strategy.mesh));
  const std::vector<int> occurrences = occurrences_of(graph);
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    out += layout_line("input", graph.inputs()[i].name, graph.type(graph.inputs()[i].value), strategy.inputs[i], strategy.mesh);
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
    out += fmt::format("node {} {} @\"{}\"{}\n", i, occurrence_text(node.op->name, occurrences[i]), graph.scope_of(node), choice);
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
  Strategy strategy;
  strategy.nodes.resize(graph.nodes().size());
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    strategy.nodes[i].axes.resize(rule_of(graph, graph.nodes()[i]).factors.size());
  }
  const std::vector<int> occurrences = occurrences_of(graph);
  const int line = each_line(text, [&](std::string_view content, int at) { read_line(content, graph, occurrences, strategy, at); });
  if (strategy.inputs.size() != graph.inputs().size() || strategy.outputs.size() != graph.outputs().size()) {
    wrong(line, fmt::format("{} inputs and {} outputs are given; the graph has {} and {}", strategy.inputs.size(),
                            strategy.outputs.size(), graph.inputs().size(), graph.outputs().size()));
  }
  return strategy;
}

std::string trained_parameters_to_string(const Graph& graph, const Strategy& strategy) {
  const Mesh ranks = without_micro_batches(strategy.mesh);
  std::string out = fmt::format("strategy mesh=\"{}\" {}\n", to_string(ranks), kParametersOnly);
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = graph.inputs()[i];
    if (is_trained(graph, input)) out += layout_line("input", input.name, graph.type(input.value), strategy.inputs[i], ranks);
  }
  return out;
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
  const int last = each_line(text, [&](std::string_view rest, int line) {
    const std::string_view kind = next_word(rest);
    if (kind.empty()) return;
    if (kind == "strategy") {
      if (out.mesh.axes() > 0) wrong(line, "the mesh is given twice");
      out.mesh = read_mesh(next_word(rest), line);
      return;
    }
    if (kind != "input") wrong(line, fmt::format("unexpected '{}' in a file of parameters only", kind));
    std::string_view ahead = rest;
    const std::string_view word = next_word(ahead);
    const std::string name(word.substr(std::min<size_t>(1, word.size()), word.size() < 2 ? 0 : word.size() - 2));
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      wrong(line, fmt::format("the model trains no parameter '{}'.{}", name, suggestion(name, names)));
    }
    out.layouts[name] = read_layout(rest, name, graph.type(graph.input(name).value), out.mesh, line, Parts::kUneven);
  });
  for (const std::string& name : names) {
    if (!out.layouts.contains(name)) wrong(last, fmt::format("nothing is said of parameter '{}'", name));
  }
  return out;
}

}  // namespace trireme
