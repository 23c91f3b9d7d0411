#include "trireme/planner/search_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/base/joined_text.h"

namespace trireme {
namespace {

constexpr size_t kMostLines = 8;   // of cuts
constexpr size_t kMostScopes = 4;  // in one of them

// "h.0.mlp.c_fc" as "h.*.mlp.c_fc".
std::string without_numbers(std::string_view scope) {
  std::string out, part;
  const auto end_part = [&] {
    const bool is_number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    out += (out.empty() ? "" : ".") + (is_number ? std::string("*") : part);
    part.clear();
  };
  for (const char c : scope) {
    if (c == '.') {
      end_part();
    } else {
      part += c;
    }
  }
  end_part();
  return out;
}

bool reads_parameter(const Graph& graph, const Node& node) {
  return std::ranges::any_of(node.inputs, [&](ValueId id) {
    const Value& value = graph.value(id);
    return value.producer < 0 && graph.inputs()[static_cast<size_t>(value.index)].role == Role::kParameter;
  });
}

std::string text_of(const std::vector<Layout>& layouts, const Mesh& mesh) {
  std::vector<std::string> out;
  for (const Layout& layout : layouts) out.push_back(to_string(layout, mesh));
  return joined_text(out, ", ");
}

struct CutLine {
  std::string cuts;
  std::vector<std::string> ops;
};

// Of the forward ops that read parameters.
std::vector<CutLine> cut_lines(const Graph& graph, const Strategy& strategy) {
  std::vector<CutLine> out;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (node.phase != Phase::kForward || !reads_parameter(graph, node)) continue;
    const RuleOf rule = rule_of(graph, node);
    const std::string cuts = fmt::format("{} -> {}", text_of(operand_layouts(*rule, strategy.nodes[i]), strategy.mesh),
                                         text_of(result_layouts(*rule, strategy.nodes[i]), strategy.mesh));
    const std::string op = fmt::format("{}/{}", without_numbers(graph.scope_of(node)), node.op->name);
    auto line = std::ranges::find(out, cuts, &CutLine::cuts);
    if (line == out.end()) line = out.insert(out.end(), {cuts, {}});
    if (std::ranges::find(line->ops, op) == line->ops.end()) line->ops.push_back(op);
  }
  return out;
}

}  // namespace

std::string search_text(const Graph& graph, const Strategy& strategy, const StepPrice& price, const SearchResult& found,
                        int64_t crews, const SearchOptions& search) {
  const auto ms = [](int64_t ps) { return static_cast<double>(ps) * 1e-9; };
  std::string out = fmt::format("auto_parallel by {} over mesh '{}'\n", to_string(search), to_string(strategy.mesh));
  out += fmt::format(
      "  {} predicted to take {:.4g} ms before fusion and overlap (explain --stage time: after them): "
      "{:.4g} computing, {:.4g} moving values between ranks\n",
      crews > 1 ? "all stages of a step, one after the other, are" : "a step is", ms(price.price.time_ps),
      ms(price.price.time_ps - price.moved_ps), ms(price.moved_ps));
  if (found.bound_ps > 0 && price.price == found.price) {
    out += fmt::format("  no other of the ways to give {} to the ops takes less than {:.4g} ms\n",
                       search.kind == SearchKind::kRecursiveProgramming ? "the mesh's last axis" : "the mesh's axes",
                       ms(found.bound_ps));
  }
  out +=
      fmt::format("  {:.1f} MiB of parameters, state and values for the backward pass on each rank{}\n",
                  static_cast<double>(price.price.bytes) / 1048576.0, crews > 1 ? ", if all stages hold as much" : "");
  const std::vector<CutLine> lines = cut_lines(graph, strategy);
  for (size_t i = 0; i < std::min(lines.size(), kMostLines); ++i) {
    std::vector<std::string> ops = lines[i].ops;
    const size_t more = ops.size() > kMostScopes ? ops.size() - kMostScopes : 0;
    ops.resize(ops.size() - more);
    out += fmt::format("  {}: {}{}\n", lines[i].cuts, joined_text(ops, ", "),
                       more > 0 ? fmt::format(" and {} more", more) : "");
  }
  if (lines.size() > kMostLines) out += fmt::format("  and {} other ways of cutting\n", lines.size() - kMostLines);
  for (const std::string& note : found.notes) out += fmt::format("  note: {}\n", note);
  return out;
}

}  // namespace trireme
