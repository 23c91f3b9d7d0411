#include "trireme/parallel/asked/fusion.h"

#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme {
namespace {

using Mode = FusionOfKind::Mode;
constexpr NameOf<Mode> kModes[] = {
    {"auto", Mode::kAuto}, {"size", Mode::kSize}, {"index", Mode::kIndex}, {"off", Mode::kOff}};

// It was true or false before it was one of these.
TextOf mode_of(Mode* mode) {
  TextOf out = one_of(mode, kModes);
  out.set = [set = out.set](const std::string& name, const std::string& text) {
    set(name, text == "true" ? "auto" : text == "false" ? "off" : text);
  };
  out.was_switch = true;
  return out;
}

void check_kind(const std::string& key, const FusionOfKind& kind) {
  const bool has_size = kind.bytes != 0, has_ends = !kind.ends.empty();
  require(kind.bytes >= 0, "configuration: parallel.{}_mb: {} bytes; it must be 1 MiB or more", key, kind.bytes);
  int64_t before = 0;
  for (const int64_t end : kind.ends) {
    require(end > before,
            "configuration: parallel.{}_config has {} after {}; it must be numbers of gradients from 1 on, each larger "
            "than the one before",
            key, end, before);
    before = end;
  }
  require(kind.mode != Mode::kOff || (!has_size && !has_ends),
          "configuration: parallel.{} = off with a size or numbers for it; leave one out", key);
  require(!has_size || !has_ends,
          "configuration: parallel.{}_mb and parallel.{}_config both say where sums are cut; leave one out", key, key);
  require(kind.mode != Mode::kSize || has_size,
          "configuration: parallel.{} = 'size' goes by parallel.{}_mb; set it to 1 or more", key, key);
  require(kind.mode != Mode::kIndex || has_ends,
          "configuration: parallel.{} = 'index' goes by parallel.{}_config; set it to numbers of gradients", key, key);
}

}  // namespace

std::vector<Key> keys_of(Fusion& options) {
  return {{.name = "comm_fusion",
           .target = &options.is_on,
           .doc = "false: no collectives are taken together, of no kind",
           .of_ranks = true},
          {.name = "all_reduce_fusion",
           .target = mode_of(&options.all_reduce.mode),
           .doc = "which gradients are summed over ranks in one operation: auto (by a model of the step, unless "
                  "all_reduce_fusion_mb or all_reduce_fusion_config is set), size, index, or off",
           .of_ranks = true},
          {.name = "all_reduce_fusion_config",
           .target = &options.all_reduce.ends,
           .doc = "instead of a size: after which gradients, counted in the order they become ready, an operation "
                  "ends, like [20, 35]",
           .of_ranks = true},
          {.name = "reduce_scatter_fusion",
           .target = mode_of(&options.reduce_scatter.mode),
           .doc = "which gradients are summed over ranks and sliced in one operation (zero): auto, size or off",
           .of_ranks = true},
          {.name = "all_gather_fusion",
           .target = mode_of(&options.all_gather.mode),
           .doc = "which weights are gathered from their slices in one operation (zero): auto, size or off",
           .of_ranks = true}};
}

void check(const Fusion& options) {
  check_kind("all_reduce_fusion", options.all_reduce);
  for (const auto& [key, kind] : {std::pair{"reduce_scatter_fusion", &options.reduce_scatter},
                                  std::pair{"all_gather_fusion", &options.all_gather}}) {
    require(kind->mode != Mode::kIndex && kind->ends.empty(),
            "configuration: parallel.{} = 'index'; gradients are counted for all_reduce_fusion only; use auto, size or "
            "off",
            key);
    check_kind(key, *kind);
  }
  const FusionOfKind usual;
  const bool any = options.all_reduce != usual || options.reduce_scatter != usual || options.all_gather != usual ||
                   !options.ids.empty();
  require(options.is_on || !any,
          "configuration: parallel.comm_fusion = false, and parallel.fusion or a fusion of one kind is set; leave one "
          "out");
}

FusionRule parse_fusion_rule(const std::string& text) {
  const size_t equals = text.rfind('=');
  const std::string_view left = trim(std::string_view(text).substr(0, std::min(equals, text.size())));
  const std::string_view number = equals == std::string::npos ? "" : trim(std::string_view(text).substr(equals + 1));
  int64_t id = -1;
  const auto [end, status] = std::from_chars(number.data(), number.data() + number.size(), id);
  require(!left.empty() && !number.empty() && status == std::errc() && end == number.data() + number.size() && id >= 0,
          "'{}' is not \"name = number\", like \"h.* = 2\"; 0 is never taken together", text);
  return {.pattern = left, .id = id};
}

namespace {

bool is_of(const FusionRule& rule, std::string_view name) {
  if (!rule.pattern.matches(name)) return false;
  if (rule.inside) return true;
  const size_t dot = name.rfind('.');
  return (dot == std::string_view::npos ? "" : name.substr(0, dot)) == rule.pattern.text();
}

}  // namespace

const FusionRule* fusion_rule(std::span<const FusionRule> rules, std::string_view name) {
  const FusionRule* out = nullptr;
  for (const FusionRule& rule : rules) {
    if (is_of(rule, name)) out = &rule;
  }
  return out;
}

int64_t fusion_id(std::span<const FusionRule> rules, std::string_view name) {
  const FusionRule* const rule = fusion_rule(rules, name);
  return rule == nullptr ? kNoFusionId : rule->id;
}

std::vector<FusionRule> fusion_rules(const Graph& graph, std::span<const FusionRule> rules) {
  std::vector<std::string> names;
  for (const Input& input : graph.inputs()) {
    if (input.role == Role::kParameter) names.push_back(input.name);
  }
  for (const FusionRule& rule : rules) {
    const bool any = std::ranges::any_of(names, [&](const std::string& name) { return is_of(rule, name); });
    require(any || names.empty() || graph.updates().empty(),
            "parallel.fusion '{} = {}' matches no parameter of the model.{}", rule.pattern.text(), rule.id,
            suggestion(rule.pattern.text(), names));
  }
  std::vector<FusionRule> out;
  for (const FusionRequest& request : graph.fusion_requests()) {
    out.push_back({request.scope, request.id, request.inside});
  }
  out.insert(out.end(), rules.begin(), rules.end());
  return out;
}

}  // namespace trireme
