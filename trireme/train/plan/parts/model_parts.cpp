#include "trireme/train/plan/parts/model_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/parallel/asked/paths.h"

namespace trireme {
namespace {

// "model.layers" of the module "model.layers.3".
std::string_view container_of(const NumberedModule& module) {
  const size_t dot = module.path.rfind('.');
  return dot == std::string_view::npos ? "" : module.path.substr(0, dot);
}

[[noreturn]] void refuse(const std::string& what) {
  fail(ErrorKind::kUnsupported, "plan: the exact search prices one block of each kind, and {}; use --search compiled",
       what);
}

void add_once(std::vector<std::string>& scopes, const std::string& scope) {
  if (!scope.empty() && std::ranges::find(scopes, scope) == scopes.end()) scopes.push_back(scope);
}

// Which of a seed's streams an op draws from says nothing of what it takes.
std::string attrs_but_stream(const Node& node) {
  constexpr std::string_view kStream = "stream=";
  std::string out = node.attrs.text();
  const size_t at = out.find(kStream);
  if (at == std::string::npos) return out;
  const size_t end = std::min(out.find_first_not_of("-0123456789", at + kStream.size()), out.size());
  return out.erase(at, end - at);
}

std::string signature_of(const Graph& graph, const Node& node, const NumberedModule& module) {
  std::string out = fmt::format("{} {} {}", module.inside, node.op->name, attrs_but_stream(node));
  for (const auto* const values : {&node.inputs, &node.outputs}) {
    for (const ValueId id : *values) out += " " + to_string(graph.type(id));
  }
  return out;
}

std::string rules_for(const std::vector<std::string>& scopes, int64_t stage) {
  std::string out;
  for (const std::string& scope : scopes) out += fmt::format("\"{} = {}\", ", scope, stage);
  return out;
}

}  // namespace

ModelParts parts_of(const Graph& step) {
  ModelParts out;
  std::map<int64_t, std::vector<std::string>> blocks;
  for (const Node& node : step.nodes()) {
    if (node.phase != Phase::kForward) continue;
    const std::string name(step.scope_of(node));
    const NumberedModule module = numbered_module(name);
    if (module.number < 0) {
      add_once(blocks.empty() ? out.before : out.after, name);
      continue;
    }
    const std::string_view container = container_of(module);
    if (blocks.empty()) out.blocks = container;
    if (container != out.blocks) refuse(fmt::format("the model has blocks '{}' and '{}'", out.blocks, container));
    blocks[module.number].push_back(signature_of(step, node, module));
  }
  if (blocks.empty()) refuse("the model has no numbered modules");
  for (const auto& [number, nodes] : blocks) {
    if (number >= static_cast<int64_t>(blocks.size()))
      refuse(fmt::format("the blocks '{}' are not numbered from 0 on", out.blocks));
    std::string signature = joined_text(nodes, "\n");
    const auto known = std::ranges::find(out.signatures, signature);
    out.kinds.push_back(known - out.signatures.begin());
    if (known == out.signatures.end()) out.signatures.push_back(std::move(signature));
  }
  if (out.kind_count() > kMostKinds)
    refuse(fmt::format("the blocks '{}' are of {} kinds, more than {}", out.blocks, out.kind_count(), kMostKinds));
  std::erase_if(out.after,
                [&](const std::string& scope) { return std::ranges::find(out.before, scope) != out.before.end(); });
  for (auto* const scopes : {&out.before, &out.after})
    std::ranges::stable_sort(*scopes, {}, &std::string::size);  // of rules the last that matches counts
  return out;
}

std::vector<int64_t> ModelParts::chain() const {
  std::vector<int64_t> out{0};
  for (const int64_t kind : kinds) out.push_back(kind + 1);
  out.push_back(kind_count() + 1);
  return out;
}

std::vector<std::pair<size_t, int64_t>> ModelParts::runs() const {
  std::vector<std::pair<size_t, int64_t>> out;
  for (const int64_t part : chain()) {
    if (out.empty() || out.back().first != static_cast<size_t>(part)) out.emplace_back(static_cast<size_t>(part), 0);
    ++out.back().second;
  }
  return out;
}

std::string ModelParts::stages_key(const std::vector<int64_t>& begins) const {
  if (begins.size() <= 1) return "parallel.stages=[]";
  const auto last = static_cast<int64_t>(begins.size()) - 1;
  std::string out = rules_for(before, 0) + rules_for(after, last);
  for (int64_t stage = 0; stage <= last; ++stage) {
    const int64_t end = stage < last ? begins[static_cast<size_t>(stage) + 1] : count();
    const int64_t first_block = std::max<int64_t>(begins[static_cast<size_t>(stage)] - 1, 0);
    const int64_t last_block = std::min(end - 2, layers() - 1);
    if (first_block <= last_block) out += fmt::format("\"{}.{}..{} = {}\", ", blocks, first_block, last_block, stage);
  }
  out.resize(out.size() - 2);
  return "parallel.stages=[" + out + "]";
}

}  // namespace trireme
