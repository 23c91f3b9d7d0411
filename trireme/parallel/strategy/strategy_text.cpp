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
//   strategy mesh="dp=2,micro_batch=4" sums=each
//   input "layers.0.weight" f32[64,784] [-, -] sums=once
//   input "layers.0.weight.m" f32[64,784] [dp, -] state_of="layers.0.weight"
//
// A node is named by its scope and op, and by how many of these come before it where there are several
// (parallel/asked/op_names.h). Its line names the factors of its sharding rule that are cut, and the axes; a node that
// is not named cuts nothing. A scope's ops are of a stage of a pipeline (parallel/asked/stages.h). Sums of
// values that ranks keep slices of are taken over ranks for each micro-batch, or once a step (SumOrder of strategy.h);
// without the word the job says which. The hashes are of the graph it was written for, and of the model in it; without
// them it is for whatever graph it fits.
#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"
#include "trireme/parallel/strategy/strategy_file.h"

namespace trireme {
namespace {

constexpr std::string_view kWhere = "strategy text, line ";
constexpr std::string_view kParametersOnly = "only=parameters";
constexpr std::string_view kMean = " mean=";
constexpr std::string_view kStateOf = " state_of=";
constexpr std::string_view kSumsEach = "sums=each";
constexpr std::string_view kSumsOnce = "sums=once";

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

std::vector<Layout> read_layouts(std::string_view text, const Mesh& mesh) {
  std::vector<Layout> out;
  for (const NamedLayout& layout : parse_named_layouts(text)) out.push_back(layout.on(mesh));
  return out;
}

// copies=m*2, vouched="[dp] -> [-]", and times=2 and parts=2 after it; whether the word is one of them.
bool read_special(std::string_view key, std::string_view value, const Mesh& mesh, StrategyNode& out) {
  if (key == "times" || key == "parts") {
    if (!out.vouched) wrong_strategy(out.line, fmt::format("{}= must stand after vouched=", key));
    if (key == "times") {
      out.vouched->factor = read_factor(value, out.line);
    } else {
      out.vouched->parts = read_count(value, out.line);
    }
  } else if (key == "copies") {
    const size_t star = value.rfind('*');
    if (star == std::string_view::npos)
      wrong_strategy(out.line, fmt::format("expected copies=factor*number, found '{}'", value));
    out.copied_factor = value.substr(0, star);
    out.copies = read_count(value.substr(star + 1), out.line);
  } else if (key == "vouched") {
    const size_t arrow = value.find("->");
    if (value.size() < 2 || value.front() != '"' || value.back() != '"' || arrow == std::string_view::npos)
      wrong_strategy(out.line, fmt::format("expected vouched=\"layouts -> layouts\", found '{}'", value));
    out.vouched = {.in = read_layouts(value.substr(1, arrow - 1), mesh),
                   .out = read_layouts(value.substr(arrow + 2, value.size() - arrow - 3), mesh)};
  } else {
    return false;
  }
  return true;
}

void read_choice(std::string_view rest, const Mesh& mesh, StrategyNode& out) {
  for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest)) {
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos)
      wrong_strategy(out.line, fmt::format("expected factor=axes, found '{}'", word));
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = word.substr(equals + 1);
    if (key == "through") {
      out.through = parse_axes(value, mesh);
    } else if (key == "set") {
      if (value.size() != 1 || value[0] < '0' || value[0] > '9')
        wrong_strategy(out.line, fmt::format("'{}' is not the number of a linear set", value));
      out.linear_set = value[0] - '0';
    } else if (!read_special(key, value, mesh, out)) {
      out.factors.emplace_back(key, parse_axes(value, mesh));
    }
  }
}

Mesh read_mesh(std::string_view word, int line) {
  if (!word.starts_with("mesh=\"") || !word.ends_with('"') || word.size() < 7)
    wrong_strategy(line, "expected mesh=\"axis=size,...\"");
  return parse_mesh(word.substr(6, word.size() - 7));
}

void read_head(std::string_view rest, StrategyLines& out, int line) {
  if (out.mesh.axes() > 0)
    wrong_strategy(line, "the mesh is given twice");  // layouts that were read name axes of the first
  out.mesh = read_mesh(next_word(rest), line);
  for (std::string_view word = next_word(rest); !word.empty(); word = next_word(rest)) {
    if (word == kParametersOnly) {
      out.parameters_only = true;
    } else if (word == kSumsEach || word == kSumsOnce) {
      out.sums_each = word == kSumsEach;
    } else if (word.starts_with("graph=")) {
      out.graph = word.substr(6);
    } else if (word.starts_with("model=")) {
      out.model = word.substr(6);
    } else {
      wrong_strategy(line, fmt::format("unexpected '{}'", word));
    }
  }
}

void read_stage(std::string_view rest, StrategyLines& out, int line) {
  const std::string_view scope = unquoted(next_word(rest), "stage", line);
  const std::string_view number = next_word(rest);
  int stage = -1;
  const auto [last, status] = std::from_chars(number.data(), number.data() + number.size(), stage);
  if (status != std::errc() || last != number.data() + number.size() || stage < 0)
    wrong_strategy(line, fmt::format("'{}' is no stage; stages are whole numbers from 0", number));
  if (!out.stages.emplace(scope, stage).second) wrong_strategy(line, fmt::format("\"{}\" is given two stages", scope));
}

// "type layout", with "mean=axes", "state_of="name"" or "sums=once" after it.
void read_tensor(std::string_view rest, const Mesh& mesh, StrategyTensor& out) {
  out.type = parse_tensor_type(next_word(rest));
  out.summed_once = rest.ends_with(kSumsOnce);
  if (out.summed_once) rest.remove_suffix(kSumsOnce.size());
  while (rest.ends_with(' ')) rest.remove_suffix(1);
  if (const size_t at = rest.find(kStateOf); at != std::string_view::npos) {
    const std::string_view of = rest.substr(at + kStateOf.size());
    if (of.size() < 3 || of.front() != '"' || of.find('"', 1) != of.size() - 1)
      wrong_strategy(out.line, fmt::format("expected state_of=\"parameter\", found '{}'", of));
    out.state_of = of.substr(1, of.size() - 2);
    rest = rest.substr(0, at);
  }
  while (rest.ends_with(' ')) rest.remove_suffix(1);
  const size_t mean = rest.find(kMean);
  out.layout = parse_layout(rest.substr(0, mean), mesh);
  if (mean == std::string_view::npos) return;
  out.mean = parse_axes(rest.substr(mean + kMean.size()), mesh);
  for (const int axis : out.mean) {
    if (out.layout.uses(axis))
      wrong_strategy(out.line, fmt::format("'{}' is cut by an axis that its mean is over", out.name));
  }
}

void read_line(std::string_view kind, std::string_view rest, StrategyLines& out, int line) {
  if (kind == "strategy") return read_head(rest, out, line);
  if (kind == "stage") return read_stage(rest, out, line);
  if (kind != "input" && kind != "node" && kind != "output") wrong_strategy(line, fmt::format("unexpected '{}'", kind));
  if (out.parameters_only && kind != "input")
    wrong_strategy(line, fmt::format("unexpected '{}' in a file of parameters only", kind));
  std::string name(unquoted(next_word(rest), kind, line));
  if (kind == "node") {
    StrategyNode& node = out.nodes.emplace_back(StrategyNode{.key = std::move(name), .factors = {}, .line = line});
    return read_choice(rest, out.mesh, node);
  }
  const bool is_input = kind == "input";
  StrategyTensor& tensor = (is_input ? out.inputs : out.outputs).emplace_back();
  tensor.name = std::move(name);
  tensor.line = line;
  read_tensor(rest, out.mesh, tensor);
  if (tensor.summed_once && !is_input) wrong_strategy(line, fmt::format("unexpected '{}' of an output", kSumsOnce));
  if (!tensor.state_of.empty() && !is_input) wrong_strategy(line, "unexpected 'state_of' of an output");
}

std::string print_all(const std::vector<Layout>& layouts, const Mesh& mesh) {
  std::string out;
  for (const Layout& layout : layouts) out += fmt::format("{}{}", out.empty() ? "" : ", ", to_string(layout, mesh));
  return out;
}

std::string print_tensor(std::string_view kind, const StrategyTensor& tensor, const Mesh& mesh) {
  std::string out =
      fmt::format("{} \"{}\" {} {}", kind, tensor.name, to_string(tensor.type), to_string(tensor.layout, mesh));
  if (!tensor.mean.empty()) out += fmt::format("{}{}", kMean, print_axes(tensor.mean, mesh));
  if (!tensor.state_of.empty()) out += fmt::format("{}\"{}\"", kStateOf, tensor.state_of);
  if (tensor.summed_once) out += fmt::format(" {}", kSumsOnce);
  return out + '\n';
}

}  // namespace

void wrong_strategy(int line, std::string_view what) {
  fail(ErrorKind::kInvalidArgument, "{}{}: {}", kWhere, line, what);
}

StrategyFile StrategyFile::read(std::string_view text) {
  if (text.empty()) return {};
  StrategyLines out;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view rest = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const int line = ++out.last;
    const std::string_view kind = next_word(rest);
    if (!kind.empty()) at_line(line, [&] { read_line(kind, rest, out, line); });
  }
  return StrategyFile(std::move(out));
}

std::string choice_text(const StrategyNode& node, const Mesh& mesh) {
  std::string out;
  for (const auto& [factor, axes] : node.factors) out += fmt::format(" {}={}", factor, print_axes(axes, mesh));
  if (node.linear_set >= 0) out += fmt::format(" through={} set={}", print_axes(node.through, mesh), node.linear_set);
  if (node.copies > 1) out += fmt::format(" copies={}*{}", node.copied_factor, node.copies);
  if (node.vouched) {
    out += fmt::format(" vouched=\"{} -> {}\"", print_all(node.vouched->in, mesh), print_all(node.vouched->out, mesh));
    if (node.vouched->factor != 1) out += fmt::format(" times={}", node.vouched->factor);
    if (node.vouched->parts != 1) out += fmt::format(" parts={}", node.vouched->parts);
  }
  return out.empty() ? out : out.substr(1);
}

std::string to_string(const StrategyLines& lines) {
  std::string out = fmt::format("strategy mesh=\"{}\"", to_string(lines.mesh));
  if (lines.parameters_only) out += fmt::format(" {}", kParametersOnly);
  if (lines.sums_each) out += fmt::format(" {}", *lines.sums_each ? kSumsEach : kSumsOnce);
  if (!lines.graph.empty()) out += " graph=" + lines.graph;
  if (!lines.model.empty()) out += " model=" + lines.model;
  out += '\n';
  for (const StrategyTensor& input : lines.inputs) out += print_tensor("input", input, lines.mesh);
  for (const auto& [scope, stage] : lines.stages) out += fmt::format("stage \"{}\" {}\n", scope, stage);
  for (const StrategyNode& node : lines.nodes)
    out += fmt::format("node \"{}\" {}\n", node.key, choice_text(node, lines.mesh));
  for (const StrategyTensor& output : lines.outputs) out += print_tensor("output", output, lines.mesh);
  return out;
}

}  // namespace trireme
