#include "trireme/parallel/asked/op_homes.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/words.h"
#include "trireme/parallel/asked/ops_in.h"

namespace trireme {
namespace {

bool matches_rule(const HostRule& rule, std::string_view scope, std::string_view op) {
  return (rule.op.empty() || rule.op == op) && rule.scope.matches(scope);
}

}  // namespace

HostRule parse_host_rule(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string_view all = text;
  std::string_view scope = trim(all.substr(0, std::min(equals, all.size())));
  const std::string_view where = equals == std::string::npos ? "" : trim(all.substr(equals + 1));
  HostRule out;
  if (const size_t slash = scope.rfind('/'); slash != std::string_view::npos) {
    out.op = scope.substr(slash + 1);
    scope = scope.substr(0, slash);
    require(!out.op.empty(), "'{}' names no op after '/'; write \"scope/op = host\", like \"h.*/gelu = host\"", text);
  }
  require(!scope.empty() && (where == "host" || where == "device"),
          "'{}' is not \"scope = host\" or \"scope/op = host\", like \"wte = host\": ops run on the 'host' or the "
          "'device'",
          text);
  out.scope = scope;
  out.on_host = where == "host";
  return out;
}

std::string to_string(const HostRule& rule) {
  return fmt::format("{}{}{} = {}", rule.scope.text(), rule.op.empty() ? "" : "/", rule.op,
                     rule.on_host ? "host" : "device");
}

OnHost with_requests(const Graph& graph, OnHost options) {
  std::vector<HostRule> rules;
  for (const HostRequest& request : graph.host_requests())
    rules.push_back({.scope = request.scope, .op = "", .on_host = request.on_host});
  options.rules.insert(options.rules.begin(), rules.begin(), rules.end());
  return options;
}

bool asked_on_host(std::span<const HostRule> rules, std::string_view scope, std::string_view op) {
  bool out = false;
  for (const HostRule& rule : rules) {
    if (matches_rule(rule, scope, op)) out = rule.on_host;
  }
  return out;
}

void check_host_rules(const Graph& graph, std::span<const HostRule> rules) {
  for (const HostRule& rule : rules) {
    const std::string text = fmt::format("parallel.on '{}'", to_string(rule));
    const std::vector<std::string> ops = ops_in(graph, rule.scope, text);
    require(rule.op.empty() || std::ranges::find(ops, rule.op) != ops.end(), "{} matches no op there.{}", text,
            suggestion(rule.op, ops));
  }
}

}  // namespace trireme
