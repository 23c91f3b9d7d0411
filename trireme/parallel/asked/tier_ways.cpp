#include "trireme/parallel/asked/tier_ways.h"

#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"
#include "trireme/op/registry.h"
#include "trireme/parallel/asked/ops_in.h"

namespace trireme {

bool chooses_homes(const TierSizes& sizes, const TierWays& ways, bool runs_on_host) {
  const bool goes_on = runs_on_host && sizes.host.is_given() && sizes.disk != DiskSpace();
  return ways.auto_offload && (sizes.device.is_given() || goes_on);
}

PrefetchRule parse_prefetch_rule(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string_view all = text;
  std::string_view scope = trim(all.substr(0, std::min(equals, all.size())));
  const std::string_view number = equals == std::string::npos ? "" : trim(all.substr(equals + 1));
  PrefetchRule out;
  const size_t slash = scope.rfind('/');
  if (slash != std::string_view::npos) {
    out.op = scope.substr(slash + 1);
    scope = scope.substr(0, slash);
  }
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), out.readers);
  require(
      !scope.empty() && (slash == std::string_view::npos || !out.op.empty()) && !number.empty() &&
          error == std::errc() && end == number.data() + number.size() && out.readers >= 1 && out.readers <= 64,
      "'{}' is not \"scope = readers\" or \"scope/op = readers\", like \"h.* = 2\": what its ops read begins to come "
      "so many readers before, 1 to 64",
      text);
  out.scope = scope;
  return out;
}

std::string to_string(const PrefetchRule& rule) {
  return fmt::format("{}{}{} = {}", rule.scope.text(), rule.op.empty() ? "" : "/", rule.op, rule.readers);
}

int64_t readers_ahead(std::span<const PrefetchRule> rules, std::string_view scope, std::string_view op) {
  int64_t out = PrefetchRule().readers;
  for (const PrefetchRule& rule : rules) {
    if ((rule.op.empty() || rule.op == op) && rule.scope.matches(scope)) out = rule.readers;
  }
  return out;
}

// Passes join ops to others, so that no op of the graph need have the name.
void check_prefetch_rules(const Graph& graph, std::span<const PrefetchRule> rules) {
  for (const PrefetchRule& rule : rules) {
    const std::string text = fmt::format("parallel.prefetch '{}'", to_string(rule));
    ops_in(graph, rule.scope, text);
    if (rule.op.empty() || find_op(rule.op) != nullptr) continue;
    std::vector<std::string> names;
    for (const OpDef* const op : all_ops()) names.emplace_back(op->name);
    fail(ErrorKind::kInvalidArgument, "{}: there is no op of that name.{}", text, suggestion(rule.op, names));
  }
}

}  // namespace trireme
