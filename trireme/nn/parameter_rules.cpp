#include "trireme/nn/parameter_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"

namespace trireme {
namespace {

constexpr std::string_view kRate = "lr_scale";

// "weight_decay 0", or "weight_decay = 0".
void read_asked(std::string_view asked, std::string_view text, ParameterRule& rule) {
  const auto set = [&](auto& to, auto value) {
    require(!to, "\"{}\" says twice what is asked; leave one out", text);
    to = value;
  };
  if (asked == "frozen" || asked == "trained") return set(rule.frozen, asked == "frozen");
  const size_t end = std::min(asked.find_first_of(" ="), asked.size());
  const std::string_view name = asked.substr(0, end);
  std::string_view number = asked.substr(end);
  number.remove_prefix(std::min(number.find_first_not_of(" ="), number.size()));
  double value = 0;
  const auto [stop, status] = std::from_chars(number.data(), number.data() + number.size(), value);
  require(!name.empty() && !number.empty() && status == std::errc() && stop == number.data() + number.size(),
          "\"{}\" is not \"name = what is asked\", like \"*.bias = weight_decay 0\", \"head.* = lr_scale 10\" or "
          "\"wte.* = frozen\"; \"{}\" is neither frozen, nor trained, nor the name of a number and its value",
          text, asked);
  if (name == kRate) {
    require(value > 0 && value <= std::numeric_limits<float>::max(),
            "\"{}\": lr_scale is {}; it must be above 0, within what f32 holds; \"frozen\" leaves a parameter as it is",
            text, value);
    return set(rule.lr_scale, value);
  }
  require(rule.numbers.emplace(name, value).second, "\"{}\" says {} twice; leave one out", text, name);
}

// What rules and groups ask, in one order.
std::string text_of(const std::map<std::string, double>& numbers, std::optional<double> lr_scale,
                    std::optional<bool> frozen) {
  std::vector<std::string> parts;
  if (frozen) parts.emplace_back(*frozen ? "frozen" : "trained");
  for (const auto& [name, value] : numbers) parts.push_back(fmt::format("{} {}", name, value));
  if (lr_scale) parts.push_back(fmt::format("{} {}", kRate, *lr_scale));
  return joined_text(parts, ", ");
}

}  // namespace

ParameterRule ParameterRule::read(std::string_view text) {
  const size_t equals = std::min(text.find('='), text.size());
  ParameterRule out;
  out.pattern = trim(text.substr(0, equals));
  std::string_view rest = text.substr(std::min(equals + 1, text.size()));
  require(!out.pattern.empty() && !trim(rest).empty(),
          "\"{}\" is not \"name = what is asked\", like \"*.bias = weight_decay 0\", \"head.* = lr_scale 10\" or "
          "\"wte.* = frozen\"",
          text);
  for (bool more = true; more;) {
    const size_t comma = std::min(rest.find(','), rest.size());
    more = comma < rest.size();
    read_asked(trim(rest.substr(0, comma)), text, out);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return out;
}

std::string to_string(const ParameterRule& rule) {
  return fmt::format("{} = {}", rule.pattern, text_of(rule.numbers, rule.lr_scale, rule.frozen));
}

namespace nn {

std::string to_string(const ParameterGroup& group) {
  if (group.frozen) return "frozen";
  return text_of(group.numbers, group.lr_scale == 1 ? std::nullopt : std::optional(group.lr_scale), {});
}

ParameterGroup group_of(std::span<const ParameterRule> rules, std::string_view name) {
  ParameterGroup out;
  for (const ParameterRule& rule : rules) {
    if (!matches(rule.pattern, name)) continue;
    for (const auto& [number, value] : rule.numbers) out.numbers[number] = value;
    out.lr_scale = rule.lr_scale.value_or(out.lr_scale);
    out.frozen = rule.frozen.value_or(out.frozen);
  }
  return out;
}

std::unique_ptr<OptimizerSpec> with_numbers(const OptimizerSpec& spec, const std::map<std::string, double>& numbers,
                                            const std::string& where) {
  std::unique_ptr<OptimizerSpec> out = spec.copy();
  const std::vector<Key> keys = out->keys();
  std::vector<std::string> known{std::string(kRate)};
  for (const Key& key : keys) {
    if (std::holds_alternative<double*>(key.target)) known.emplace_back(key.name);
  }
  for (const auto& [name, value] : numbers) {
    const auto key = std::ranges::find_if(
        keys, [&](const Key& each) { return each.name == name && std::holds_alternative<double*>(each.target); });
    require(key != keys.end(), "{}{} has no number \"{}\" to set for a parameter.{}", where, spec.title(), name,
            suggestion(name, known));
    *std::get<double*>(key->target) = value;
    if (key->check != nullptr) key->check(where + name, key->target);
  }
  out->check(where);
  return out;
}

void check_numbers(std::span<const ParameterRule> rules, const OptimizerSpec& spec, const std::string& where) {
  for (const ParameterRule& rule : rules)
    with_numbers(spec, rule.numbers, fmt::format("{}\"{}\": ", where, trireme::to_string(rule)));
}

std::string kinds_of_names(const std::vector<std::string>& names) {
  std::vector<std::string> kinds;
  for (const std::string& name : names) {
    std::string kind;
    for (size_t begin = 0; begin <= name.size();) {
      const size_t end = std::min(name.find('.', begin), name.size());
      const std::string part = name.substr(begin, end - begin);
      const bool is_number = !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
      kind += (begin > 0 ? "." : "") + (is_number ? "*" : part);
      begin = end + 1;
    }
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(std::move(kind));
  }
  constexpr size_t kMost = 40;
  const size_t shown = std::min(kinds.size(), kMost);
  return fmt::format("'{}'{}", joined_text(std::span(kinds).first(shown), "', '"),
                     shown < kinds.size() ? fmt::format(" and {} more", kinds.size() - shown) : "");
}

void check_matches(std::span<const ParameterRule> rules, const std::vector<std::string>& parameters) {
  for (const ParameterRule& rule : rules) {
    const std::string text = trireme::to_string(rule);
    int64_t matched = 0, frozen = 0;
    for (const std::string& name : parameters) {
      if (!matches(rule.pattern, name)) continue;
      ++matched;
      frozen += group_of(rules, name).frozen ? 1 : 0;
    }
    require(matched > 0, "parameter group \"{}\" matches no parameter of the model; it has {}", text,
            kinds_of_names(parameters));
    require(frozen < matched || rule.frozen.has_value(),
            "parameter group \"{}\" asks how {} trained, which a rule freezes; leave one of them out", text,
            matched == 1 ? "a parameter is" : "parameters are");
  }
}

std::string describe_groups(const Graph& step, std::span<const ParameterRule> rules) {
  struct Members {
    std::string text;
    int64_t parameters = 0, values = 0;
  };
  std::vector<Members> groups;
  Members others;
  for (const Input& input : step.inputs()) {
    if (input.role != Role::kParameter) continue;
    const std::string text = step.update_of(input.value) == nullptr ? "frozen" : to_string(group_of(rules, input.name));
    auto found = std::ranges::find(groups, text, &Members::text);
    if (!text.empty() && found == groups.end()) found = groups.insert(found, {text});
    Members& members = text.empty() ? others : *found;
    members.parameters += 1;
    members.values += step.type(input.value).shape.elements();
  }
  if (groups.empty()) return "";
  if (others.parameters > 0) groups.push_back({"the others", others.parameters, others.values});
  std::string out;
  for (const Members& each : groups) {
    out += fmt::format("{}{}: {} ({} values)", out.empty() ? "" : "; ", each.text,
                       counted(each.parameters, "parameter"), fmt::group_digits(each.values));
  }
  return out;
}

}  // namespace nn
}  // namespace trireme
