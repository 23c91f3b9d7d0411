#include "trireme/parallel/asked/scope_pattern.h"

#include <algorithm>

#include "trireme/parallel/asked/paths.h"

namespace trireme {

bool ScopePattern::Part::matches(std::string_view path) const {
  if (trireme::matches(name, path)) return true;
  const std::optional<int> number = number_of(path);
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
  const auto matches_from = [&](const auto& self, size_t part, std::string_view left) -> bool {
    if (part == parts_.size()) return true;
    for (std::string_view rest = left; !rest.empty();) {
      const std::string_view taken = next_part(rest);
      const std::string_view path = left.substr(0, static_cast<size_t>(taken.data() + taken.size() - left.data()));
      if (parts_[part].matches(path) && self(self, part + 1, rest)) return true;
      if (parts_[part].name.find('*') == std::string::npos) return false;
    }
    return false;
  };
  return matches_from(matches_from, 0, scope);
}

}  // namespace trireme
