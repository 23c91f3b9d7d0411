#include "trireme/plan/homes.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme {
namespace {

constexpr std::string_view kState = "/state";

}  // namespace

HomeRule parse_home_rule(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string_view all = text;
  const std::string_view left = trim(all.substr(0, std::min(equals, all.size())));
  require(
      equals != std::string::npos && left.size() > kState.size() && left.ends_with(kState),
      "'{}' is not \"parameters/state = tier\", like \"h.*/state = host\": the optimizer's state of parameters has a "
      "home, which is 'host' or 'device'",
      text);
  return {left.substr(0, left.size() - kState.size()), parse_tier(trim(all.substr(equals + 1)))};
}

std::string to_string(const HomeRule& rule) {
  return fmt::format("{}{} = {}", rule.parameters.text(), kState, to_string(rule.home));
}

Tier home_of_state(std::span<const HomeRule> rules, std::string_view parameter) {
  Tier out = Tier::kDevice;
  for (const HomeRule& rule : rules) {
    if (rule.parameters.matches(parameter)) out = rule.home;
  }
  return out;
}

void check_homes(const Graph& graph, std::span<const HomeRule> rules) {
  if (graph.updates().empty()) return;  // it trains nothing
  std::vector<std::string> names;
  for (const Update& update : graph.updates()) {
    if (!update.states.empty())
      names.push_back(graph.inputs()[static_cast<size_t>(graph.value(update.parameter).index)].name);
  }
  for (const HomeRule& rule : rules) {
    const bool any = std::ranges::any_of(names, [&](const std::string& name) { return rule.parameters.matches(name); });
    require(any, "parallel.home '{}' matches no parameter that the optimizer has state of.{}", to_string(rule),
            names.empty() ? " It has none" : suggestion(rule.parameters.text(), names));
  }
}

}  // namespace trireme
