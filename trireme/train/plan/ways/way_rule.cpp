#include "trireme/train/plan/ways/way_rule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// "micro-batches" is "micro_batches".
std::string term_name(std::string_view text) {
  std::string out(text);
  std::ranges::replace(out, '-', '_');
  return out;
}

std::vector<std::string_view> term_names() {
  std::vector<std::string_view> out;
  for (const auto& [name, value] : terms_of(Way{})) out.push_back(name);
  return out;
}

std::vector<std::string> values_of_term(std::string_view name, std::span<const Way> ways) {
  std::vector<std::string> out;
  for (const Way& way : ways) {
    for (const auto& [each, value] : terms_of(way)) {
      if (each == name && std::ranges::find(out, value) == out.end()) out.push_back(value);
    }
  }
  return out;
}

}  // namespace

std::vector<std::pair<std::string_view, std::string>> terms_of(const Way& way) {
  if (way.is_searched)
    return {{"auto", "true"},
            {"recompute", way.recompute},
            {"keep", std::string(to_string(way.keep))},
            {"state", std::string(to_string(way.place.state))},
            {"update", std::string(to_string(way.place.update))}};
  return {{"pp", std::to_string(way.pp)},
          {"tp", std::to_string(way.tp)},
          {"sp", way.sp ? "true" : "false"},
          {"vocabulary", way.vocabulary ? "true" : "false"},
          {"cp", std::to_string(way.cp)},
          {"ep", std::to_string(way.ep)},
          {"zero", std::to_string(way.zero)},
          {"micro_batches", std::to_string(way.micro_batches)},
          {"schedule", way.schedule},
          {"virtual_stages", std::to_string(way.virtual_stages)},
          {"recompute", way.recompute},
          {"kept_slices", way.kept_slices ? "true" : "false"},
          {"keep", std::string(to_string(way.keep))},
          {"state", std::string(to_string(way.place.state))},
          {"update", std::string(to_string(way.place.update))},
          {"auto", "false"}};
}

bool WayRule::is_kept_by(const Way& way) const {
  const auto has = terms_of(way);
  return std::ranges::all_of(terms, [&](const auto& term) {
    return std::ranges::any_of(
        has, [&](const auto& each) { return each.first == term.first && each.second == term.second; });
  });
}

std::string WayRule::text() const {
  std::string out;
  for (const auto& [name, value] : terms) out += fmt::format("{}{}={}", out.empty() ? "" : " ", name, value);
  return out;
}

WayRule parse_way_rule(std::string_view text, std::span<const Way> ways) {
  WayRule out;
  const std::vector<std::string_view> names = term_names();
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" ,", at), text.size());
    const std::string_view term = text.substr(at, end - at);
    at = end + 1;
    if (term.empty()) continue;
    const size_t equal = term.find('=');
    require(equal != std::string_view::npos, "a rule for ways: '{}' is not of the form name=value, like tp=2", term);
    const std::string name = term_name(term.substr(0, equal)), value(term.substr(equal + 1));
    require(std::ranges::find(names, name) != names.end(), "a rule for ways: there is no '{}'; name {}", name,
            fmt::join(names, ", "));
    const std::vector<std::string> values = values_of_term(name, ways);
    require(std::ranges::find(values, value) != values.end(), "a rule for ways: no way has {}={}; of {} there {} {}",
            name, value, name, values.size() == 1 ? "is only" : "are", fmt::join(values, ", "));
    const bool is_twice = std::ranges::any_of(out.terms, [&](const auto& each) { return each.first == name; });
    require(!is_twice, "a rule for ways: '{}' appears twice", name);
    out.terms.emplace_back(name, value);
  }
  require(!out.terms.empty(), "a rule for ways names nothing; name {}, like tp=2", fmt::join(names, ", "));
  return out;
}

}  // namespace trireme
