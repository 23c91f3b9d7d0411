#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "tests/house/checks.h"

namespace house {
namespace {

// Where text enters: what reads files, flags and a job's keys, the text forms of graphs, programs, plans, strategies
// and timetables, and the types that programs may write as text.
constexpr std::array<std::string_view, 30> kBorders{
    "cli/",
    "trireme/base/",
    "trireme/ckpt/",
    "trireme/comm/",
    "trireme/data/",
    "trireme/launch/",
    "trireme/train/job/",
    "trireme/train/report/run_log.cpp",
    "trireme/train/report/timeline.cpp",      // what another rank sends
    "trireme/train/step/session/tune.cpp",    // what the first rank sends
    "trireme/train/loop/run_resume.cpp",      // what stands in a run's folder
    "trireme/train/plan/auto/auto_plan.cpp",  // what a job's keys ask of its plan, and what the first rank sends
    "trireme/ops/collectives/exchange.cpp",   // over_axes(mesh, "dp*tp"), of programs
    "trireme/tensor/",
    "trireme/mesh/mesh.cpp",
    "trireme/mesh/mesh_spec.h",
    "trireme/mesh/machine.cpp",
    "trireme/mesh/tuning.cpp",
    "trireme/layout/named_layout.cpp",
    "trireme/layout/cuts.cpp",
    "trireme/ir/graph_text.cpp",
    "trireme/ir/attrs.cpp",
    "trireme/op/move.cpp",  // the attributes of a move
    "trireme/exec/plan/execution_plan_text.cpp",
    "trireme/partition/program_text.cpp",
    "trireme/parallel/strategy/strategy_text.cpp",
    "trireme/parallel/strategy/strategy_json.cpp",
    "trireme/parallel/asked/asked.cpp",
    "trireme/parallel/asked/home_rules.cpp",
    "trireme/parallel/timetable/"};

// Text that an op holds: its sharding rule, which is read once for each kind of call (op/computed_rule.h), the steps of
// fused rows, and attributes, of which the conformance walk looks at the text form.
constexpr std::array<std::string_view, 4> kOfOps{"parse_rule", "parse_row_steps", "parse_attrs", "parse_graph"};

bool is_of_op(std::string_view name, std::string_view path) {
  if (name == "parse_row_steps") return true;
  return path.starts_with("trireme/op") && std::ranges::find(kOfOps, name) != kOfOps.end();
}

bool may_parse(std::string_view path) {
  if (!path.starts_with("trireme/") && !path.starts_with("cli/")) return true;
  if (!path.ends_with(".cpp") && !path.ends_with(".h")) return true;
  if (is_test(path)) return true;
  return std::ranges::any_of(kBorders, [&](std::string_view place) { return path.starts_with(place); });
}

// Whether a type stands before the name: "Mesh parse_mesh(", and not "return parse_mesh(".
bool is_declared(std::string_view before) {
  while (!before.empty() && before.back() == ' ') before.remove_suffix(1);
  if (before.empty() || before.ends_with("return") || before.ends_with("->")) return false;
  return is_word(before.back()) || before.back() == '>' || before.back() == '&' || before.back() == '*';
}

}  // namespace

std::vector<std::string> check_parsers(std::span<const SourceFile> files) {
  std::vector<std::string> findings;
  for (const SourceFile& file : files) {
    if (may_parse(file.path)) continue;
    const std::string blanked = without_comments_and_literals(file.text);
    const std::string_view text = blanked;
    for (size_t at = text.find("parse_"); at != std::string_view::npos; at = text.find("parse_", at + 1)) {
      if (at > 0 && is_word(text[at - 1])) continue;
      size_t end = at;
      while (end < text.size() && is_word(text[end])) ++end;
      const std::string_view name = text.substr(at, end - at);
      if (!text.substr(end).starts_with('(') || is_declared(text.substr(0, at)) || is_of_op(name, file.path)) continue;
      findings.push_back(fmt::format("{}:{}: '{}' is called: text is read where it enters; take a type here", file.path,
                                     std::ranges::count(text.substr(0, at), '\n') + 1, name));
    }
  }
  return findings;
}

}  // namespace house
