#include "trireme/parallel/asked/scope_pattern.h"

#include <algorithm>

#include "trireme/parallel/asked/paths.h"

namespace trireme {
namespace {

// "0..5" where a part of a pattern begins, and how many characters it has.
struct Range {
  int first = 0, last = -1;
  size_t size = 0;
};
Range range_at(std::string_view pattern) {
  const size_t dots = pattern.find("..");
  if (dots == std::string_view::npos) return {};
  const size_t end = std::min(pattern.find_first_of(".*", dots + 2), pattern.size());
  const std::optional<int> first = number_of(pattern.substr(0, dots));
  const std::optional<int> last = number_of(pattern.substr(dots + 2, end - dots - 2));
  return first && last ? Range{*first, *last, end} : Range();
}

// Whether what is left of a pattern is of what is left of a scope; `begins` where a part of the pattern does.
bool is_of(std::string_view pattern, std::string_view scope, bool begins) {
  if (pattern.empty()) return scope.empty() || scope.front() == '.';
  if (pattern.front() == '*') {
    for (size_t from = 0; from <= scope.size(); ++from) {
      if (is_of(pattern.substr(1), scope.substr(from), false)) return true;
    }
    return false;
  }
  if (const Range range = begins ? range_at(pattern) : Range(); range.size > 0) {
    const std::string_view part = scope.substr(0, scope.find('.'));
    const std::optional<int> number = number_of(part);
    return number && *number >= range.first && *number <= range.last &&
           is_of(pattern.substr(range.size), scope.substr(part.size()), false);
  }
  return !scope.empty() && scope.front() == pattern.front() &&
         is_of(pattern.substr(1), scope.substr(1), pattern.front() == '.');
}

}  // namespace

bool ScopePattern::matches(std::string_view scope) const {
  return text_.empty() || (!scope.empty() && is_of(text_, scope, true));
}

}  // namespace trireme
