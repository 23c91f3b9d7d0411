#include "trireme/planner/recursive_programming.h"

namespace trireme {

SearchResult recursive_programming(AxisSearch& search) {
  return recursive_programming(search, prime_axes(search.mesh()));
}

SearchResult recursive_programming(AxisSearch& search, const std::vector<AxisGroup>& axes) {
  if (axes.empty()) return search.over(search.base(), {});
  SearchResult out{.strategy = search.base()};
  for (const AxisGroup& axis : axes) {
    out = &axis == &axes.back() ? search.over(out.strategy, {axis}) : search.over_without_limit(out.strategy, {axis});
  }
  return out;
}

}  // namespace trireme
