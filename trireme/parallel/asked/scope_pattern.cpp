#include "trireme/parallel/asked/scope_pattern.h"

#include <algorithm>

#include "trireme/parallel/asked/paths.h"

namespace trireme {
namespace {

// "0..5" where a part of a pattern begins, and how many characters it has.
struct NumberRange {
  int first = 0, last = -1;
  size_t size = 0;
  bool has(const std::optional<int>& number) const { return number && *number >= first && *number <= last; }
};
NumberRange range_at(std::string_view pattern) {
  const size_t dots = pattern.find("..");
  if (dots == std::string_view::npos) return {};
  const size_t end = std::min(pattern.find_first_of(".*", dots + 2), pattern.size());
  const std::optional<int> first = number_of(pattern.substr(0, dots));
  const std::optional<int> last = number_of(pattern.substr(dots + 2, end - dots - 2));
  return first && last ? NumberRange{*first, *last, end} : NumberRange();
}

}  // namespace

// Of several stars only the last one that was reached is tried with more characters: what an earlier one could take is
// of no more use to what follows.
std::optional<size_t> ScopePattern::find(std::string_view scope, bool whole) const {
  const std::string_view pattern = text_;
  constexpr size_t kNone = std::string_view::npos;
  size_t at = 0, i = 0, star = kNone, taken = 0;  // in the pattern, in the scope; the last star, and where it ends
  while (true) {
    const bool is_over = at == pattern.size();
    if (is_over && (i == scope.size() || (!whole && scope[i] == '.'))) return i;
    const bool begins = at == 0 || pattern[at - 1] == '.';
    const NumberRange range = begins && !is_over ? range_at(pattern.substr(at)) : NumberRange();
    const std::string_view part = scope.substr(i, scope.find('.', i) - i);
    if (!is_over && pattern[at] == '*') {
      star = at++;
      taken = i;
    } else if (range.size > 0 && range.has(number_of(part))) {
      at += range.size, i += part.size();
    } else if (!is_over && range.size == 0 && i < scope.size() && pattern[at] == scope[i]) {
      ++at, ++i;
    } else if (star != kNone && taken < scope.size()) {
      at = star + 1;
      i = ++taken;
    } else {
      return std::nullopt;
    }
  }
}

bool ScopePattern::matches(std::string_view scope) const {
  return text_.empty() || (!scope.empty() && find(scope, false));
}

bool ScopePattern::names(std::string_view scope) const {
  return find(scope, true).has_value();
}

std::string_view ScopePattern::outermost(std::string_view scope) const {
  return scope.substr(0, find(scope, false).value_or(0));
}

}  // namespace trireme
