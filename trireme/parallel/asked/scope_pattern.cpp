#include "trireme/parallel/asked/scope_pattern.h"

#include <algorithm>

#include "trireme/parallel/asked/paths.h"

namespace trireme {

bool ScopePattern::Part::matches(std::string_view part) const {
  if (name == "*" || name == part) return true;
  const std::optional<int> number = number_of(part);
  return number && *number >= first && *number <= last;
}

ScopePattern ScopePattern::read(std::string_view text) {
  ScopePattern out;
  out.text_ = text;
  while (!text.empty()) {
    // The dots of a range part nothing.
    size_t end = text.find('.');
    if (end != std::string_view::npos && text.substr(end).starts_with("..")) end = text.find('.', end + 2);
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(word.size() + 1, text.size()));
    Part part{std::string(word)};
    if (const size_t range = word.find(".."); range != std::string_view::npos) {
      const std::optional<int> first = number_of(word.substr(0, range)), last = number_of(word.substr(range + 2));
      if (first && last) part.first = *first, part.last = *last;
    }
    out.parts_.push_back(std::move(part));
  }
  return out;
}

bool ScopePattern::matches(std::string_view scope) const {
  return std::ranges::all_of(parts_,
                             [&](const Part& part) { return !scope.empty() && part.matches(next_part(scope)); });
}

}  // namespace trireme
