#include "trireme/train/plan/ways/way_rule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"

namespace trireme {
namespace {

// "micro-batches" is "micro_batches".
std::string term_name(std::string_view text) {
  std::string out(text);
  std::ranges::replace(out, '-', '_');
  return out;
}

std::string number_text(int64_t value) {
  return std::to_string(value);
}
std::string switch_text(int64_t value) {
  return value != 0 ? "true" : "false";
}
template <class Choice>
std::string choice_text(int64_t value) {
  return std::string(to_string(static_cast<Choice>(value)));
}

// A member of Way, or of its place.
template <auto member>
int64_t value_of(const Way& way) {
  return static_cast<int64_t>(way.*member);
}
template <auto member>
int64_t value_of_place(const Way& way) {
  return static_cast<int64_t>(way.place.*member);
}

constexpr std::array kWayTerms{WayTerm{"pp", value_of<&Way::pp>, number_text, true},
                               WayTerm{"tp", value_of<&Way::tp>, number_text},
                               WayTerm{"sp", value_of<&Way::sp>, switch_text},
                               WayTerm{"vocabulary", value_of<&Way::vocabulary>, switch_text},
                               WayTerm{"cp", value_of<&Way::cp>, number_text},
                               WayTerm{"ep", value_of<&Way::ep>, number_text},
                               WayTerm{"zero", value_of<&Way::zero>, number_text},
                               WayTerm{"micro_batches", value_of<&Way::micro_batches>, number_text, true},
                               WayTerm{"schedule", value_of<&Way::schedule>, choice_text<WaySchedule>, true},
                               WayTerm{"virtual_stages", value_of<&Way::virtual_stages>, number_text},
                               WayTerm{"recompute", value_of<&Way::recompute>, choice_text<WayRecompute>, true},
                               WayTerm{"kept_slices", value_of<&Way::kept_slices>, switch_text},
                               WayTerm{"keep", value_of<&Way::keep>, choice_text<Tier>, true},
                               WayTerm{"state", value_of_place<&UpdatePlace::state>, choice_text<Tier>, true},
                               WayTerm{"update", value_of_place<&UpdatePlace::update>, choice_text<Tier>, true},
                               WayTerm{"auto", value_of<&Way::is_searched>, switch_text, true}};

std::string names_of_terms() {
  std::string out;
  for (const WayTerm& term : kWayTerms) out += fmt::format("{}{}", out.empty() ? "" : ", ", term.name);
  return out;
}

// Each once, in the order in which the ways have them.
std::vector<int64_t> values_of_term(const WayTerm& term, std::span<const Way> ways) {
  std::vector<int64_t> out;
  for (const Way& way : ways) {
    if (!term.is_said_of(way)) continue;
    if (const int64_t value = term.value(way); std::ranges::find(out, value) == out.end()) out.push_back(value);
  }
  return out;
}

// "tp=4".
WayRule::Asked asked_term(std::string_view text, std::span<const Way> ways) {
  const size_t equal = text.find('=');
  require(equal != std::string_view::npos, "a rule for ways: '{}' is not of the form name=value, like tp=2", text);
  const std::string name = term_name(text.substr(0, equal));
  const std::string_view asked = text.substr(equal + 1);
  const auto term = std::ranges::find(kWayTerms, name, &WayTerm::name);
  require(term != kWayTerms.end(), "a rule for ways: there is no '{}'; name {}", name, names_of_terms());
  std::vector<std::string> values;
  for (const int64_t value : values_of_term(*term, ways)) {
    values.push_back(term->text(value));
    if (values.back() == asked) return {&*term, value};
  }
  fail(ErrorKind::kInvalidArgument, "a rule for ways: no way has {}={}; of {} there {} {}", name, asked, name,
       values.size() == 1 ? "is only" : "are", joined_text(values, ", "));
}

}  // namespace

std::span<const WayTerm> way_terms() {
  return kWayTerms;
}

bool WayRule::is_kept_by(const Way& way) const {
  return std::ranges::all_of(
      asked, [&](const Asked& each) { return each.term->is_said_of(way) && each.term->value(way) == each.value; });
}

std::string WayRule::text() const {
  std::string out;
  for (const Asked& each : asked)
    out += fmt::format("{}{}={}", out.empty() ? "" : " ", each.term->name, each.term->text(each.value));
  return out;
}

WayRule parse_way_rule(std::string_view text, std::span<const Way> ways) {
  WayRule out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find_first_of(" ,", at), text.size());
    const std::string_view term = text.substr(at, end - at);
    at = end + 1;
    if (term.empty()) continue;
    const WayRule::Asked asked = asked_term(term, ways);
    const bool is_twice = std::ranges::any_of(out.asked, [&](const auto& each) { return each.term == asked.term; });
    require(!is_twice, "a rule for ways: '{}' appears twice", asked.term->name);
    out.asked.push_back(asked);
  }
  require(!out.asked.empty(), "a rule for ways names nothing; name {}, like tp=2", names_of_terms());
  return out;
}

}  // namespace trireme
