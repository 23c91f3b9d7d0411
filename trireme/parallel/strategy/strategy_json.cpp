#include "trireme/parallel/strategy/strategy_json.h"

#include <nlohmann/json.hpp>

#include "trireme/base/error.h"
#include "trireme/base/strict_json_impl.h"

namespace trireme {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

ordered_json tensor_entry(const StrategyTensor& tensor, const Mesh& mesh) {
  ordered_json out{{"name", tensor.name}, {"type", to_string(tensor.type)}, {"layout", to_string(tensor.layout, mesh)}};
  if (!tensor.mean.empty()) out["mean"] = print_axes(tensor.mean, mesh);
  if (!tensor.state_of.empty()) out["state_of"] = tensor.state_of;
  if (tensor.summed_once) out["sums"] = "once";
  return out;
}

// The text of a member, which must stand alone in the place where the strategy's text has it.
std::string member_text(const json& object, const char* key, const std::string& where, bool needed = true) {
  const auto found = object.find(key);
  if (found == object.end() && !needed) return "";
  require(found != object.end(), "{} has no '{}'", where, key);
  require(found->is_string(), "{}: '{}' is {}, not a string", where, key, found->type_name());
  std::string text = found->get<std::string>();
  require(text.find_first_of("\n\"") == std::string::npos ||
              (std::string_view(key) == "cuts" && text.find('\n') == std::string::npos),
          "{}: '{}' has a quote or a second line", where, key);
  return text;
}

const json& list_of(const json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  require(found != object.end() && found->is_array(), "{}: '{}' must be a list", where, key);
  for (const json& item : *found)
    require(item.is_object(), "{}: '{}' has {}, not an object", where, key, item.type_name());
  return *found;
}

std::string tensor_lines(const json& object, const char* key, const char* kind, const std::string& where) {
  std::string out;
  for (const json& item : list_of(object, key, where)) {
    const std::string name = member_text(item, "name", where);
    const std::string of = fmt::format("{}: {} '{}'", where, kind, name);
    const std::string mean = member_text(item, "mean", of, false);
    const std::string state_of = member_text(item, "state_of", of, false);
    const std::string sums = member_text(item, "sums", of, false);
    out += fmt::format("{} \"{}\" {} {}", kind, name, member_text(item, "type", of), member_text(item, "layout", of));
    if (!mean.empty()) out += " mean=" + mean;
    if (!state_of.empty()) out += fmt::format(" state_of=\"{}\"", state_of);
    out += (sums.empty() ? "" : " sums=" + sums) + "\n";
  }
  return out;
}

std::string stage_lines(const json& root, const std::string& where) {
  const auto found = root.find("stages");
  if (found == root.end()) return "";
  require(found->is_object(), "{}: 'stages' is {}, not an object", where, found->type_name());
  std::string out;
  for (const auto& [scope, stage] : found->items()) {
    require(stage.is_number_integer() && scope.find_first_of("\n\"") == std::string::npos,
            "{}: stages: '{}' must be a scope and its stage, a whole number", where, scope);
    out += fmt::format("stage \"{}\" {}\n", scope, stage.get<int64_t>());
  }
  return out;
}

}  // namespace

std::string strategy_to_json(const StrategyFile& file) {
  const StrategyLines lines = file.empty() ? StrategyLines{} : file.lines();
  ordered_json out{{"mesh", to_string(lines.mesh)}};
  if (lines.sums_each) out["sums"] = *lines.sums_each ? "each" : "once";
  if (!lines.graph.empty()) out["graph"] = lines.graph;
  if (!lines.model.empty()) out["model"] = lines.model;
  if (lines.parameters_only) out["only"] = "parameters";
  out["inputs"] = ordered_json::array();
  for (const StrategyTensor& input : lines.inputs) out["inputs"].push_back(tensor_entry(input, lines.mesh));
  for (const auto& [scope, stage] : lines.stages) out["stages"][scope] = stage;
  out["nodes"] = ordered_json::array();
  for (const StrategyNode& node : lines.nodes)
    out["nodes"].push_back({{"op", node.key}, {"cuts", choice_text(node, lines.mesh)}});
  out["outputs"] = ordered_json::array();
  for (const StrategyTensor& output : lines.outputs) out["outputs"].push_back(tensor_entry(output, lines.mesh));
  return out.dump(1) + "\n";
}

std::string strategy_from_json(std::string_view text, const std::string& where) {
  json root;
  try {
    root = parse_json(text, where);
  } catch (const Error& e) {
    fail(ErrorKind::kInvalidArgument, "{}", e.text());
  }
  require(root.is_object(), "{} is {}, not an object", where, root.type_name());
  std::string out = fmt::format("strategy mesh=\"{}\"", member_text(root, "mesh", where));
  for (const char* key : {"only", "sums", "graph", "model"}) {
    if (const std::string value = member_text(root, key, where, false); !value.empty())
      out += fmt::format(" {}={}", key, value);
  }
  out += "\n" + tensor_lines(root, "inputs", "input", where) + stage_lines(root, where);
  for (const json& item : list_of(root, "nodes", where)) {
    const std::string op = member_text(item, "op", where);
    out += fmt::format("node \"{}\" {}\n", op, member_text(item, "cuts", fmt::format("{}: op '{}'", where, op)));
  }
  return out + tensor_lines(root, "outputs", "output", where);
}

}  // namespace trireme
