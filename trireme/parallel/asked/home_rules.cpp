#include "trireme/parallel/asked/home_rules.h"

#include <algorithm>
#include <array>

#include "trireme/base/error.h"
#include "trireme/base/words.h"

namespace trireme {
namespace {

// By Held, what follows the parameters' names.
constexpr std::array<std::string_view, 3> kHeldNames{"", "/state", "/gradient"};

std::string_view held_name(Held what) {
  return kHeldNames[static_cast<size_t>(what)];
}

// The names of what such a rule may be of.
std::vector<std::string> names_held(const Graph& graph, Held what) {
  std::vector<std::string> out;
  const auto name_of = [&](ValueId input) {
    return graph.inputs()[static_cast<size_t>(graph.value(input).index)].name;
  };
  for (const Update& update : graph.updates()) {
    if (what == Held::kGradient || (what == Held::kState && !update.states.empty()))
      out.push_back(name_of(update.parameter));
  }
  for (const Input& input : graph.inputs()) {
    if (what == Held::kParameter && input.role == Role::kParameter) out.push_back(input.name);
  }
  return out;
}

bool matches_any(const HomeRule& rule, const std::vector<std::string>& names) {
  return std::ranges::any_of(names, [&](const std::string& name) { return rule.parameters.matches(name); });
}

}  // namespace

HomeRule parse_home_rule(const std::string& text) {
  const size_t equals = text.find('=');
  const std::string_view all = text;
  std::string_view left = trim(all.substr(0, std::min(equals, all.size())));
  HomeRule out{.of = Held::kParameter};
  for (const Held what : {Held::kState, Held::kGradient}) {
    if (left.ends_with(held_name(what))) out.of = what;
  }
  left.remove_suffix(held_name(out.of).size());
  require(equals != std::string::npos && !left.empty() && left.find('/') == std::string_view::npos,
          "'{}' is not \"parameters = tier\", \"parameters/state = tier\" or \"parameters/gradient = tier\", like "
          "\"h.*/state = host\": parameters, the optimizer's state of them and their gradients have homes, which are "
          "'host', 'disk' or 'device'",
          text);
  out.parameters = left;
  out.home = parse_tier(trim(all.substr(equals + 1)));
  return out;
}

std::string to_string(const HomeRule& rule) {
  return fmt::format("{}{} = {}", rule.parameters.text(), held_name(rule.of), to_string(rule.home));
}

std::vector<HomeRule> requested_homes(const Graph& graph) {
  std::vector<HomeRule> out;
  for (const HomeRequest& request : graph.home_requests()) out.push_back(parse_home_rule(request.rule));
  return out;
}

Tier home_of(std::span<const HomeRule> rules, Held what, std::string_view parameter, Tier otherwise) {
  Tier out = otherwise;
  for (const HomeRule& rule : rules) {
    if (rule.of == what && rule.parameters.matches(parameter)) out = rule.home;
  }
  return out;
}

void check_homes(const Graph& graph, std::span<const HomeRule> rules) {
  for (const HomeRule& rule : rules) {
    if (graph.updates().empty() && rule.of != Held::kParameter) continue;  // it trains nothing
    const std::vector<std::string> names = names_held(graph, rule.of);
    static constexpr std::array<std::string_view, 3> kOf{"", " that the optimizer has state of",
                                                         " that has a gradient"};
    require(matches_any(rule, names), "parallel.home '{}' matches no parameter{}.{}", to_string(rule),
            kOf[static_cast<size_t>(rule.of)],
            names.empty() ? " There is none" : suggestion(rule.parameters.text(), names));
  }
}

void check_requested_homes(const Graph& graph) {
  if (graph.updates().empty()) return;
  const std::vector<std::string> names = names_held(graph, Held::kParameter);
  for (const HomeRule& rule : requested_homes(graph)) {
    require(matches_any(rule, names), "the model's code asks for the home '{}', and there are no parameters in '{}'",
            to_string(rule), rule.parameters.text());
  }
}

}  // namespace trireme
