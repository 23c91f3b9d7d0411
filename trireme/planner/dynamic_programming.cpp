#include "trireme/planner/dynamic_programming.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/planner/recursive_programming.h"

namespace trireme {
namespace {

constexpr int kMostPrimeAxes = 3;     // that are taken at once; of more, those that have one name go together
constexpr size_t kMostReordered = 3;  // names of axes that are taken in each order

std::vector<AxisGroup> primes_of(const std::vector<AxisGroup>& names) {
  std::vector<AxisGroup> out;
  for (const AxisGroup& name : names) {
    for (const int axis : name) out.push_back({axis});
  }
  return out;
}

std::optional<SearchResult> one_by_one_if_it_fits(AxisSearch& search, const std::vector<AxisGroup>& primes) {
  try {
    return recursive_programming(search, primes);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInvalidArgument) throw;
    return std::nullopt;
  }
}

// A dimension that several axes cut is cut by them in this order.
SearchResult in_order(AxisSearch& search, const std::vector<AxisGroup>& names) {
  const std::vector<AxisGroup> primes = primes_of(names);
  try {
    SearchResult out = search.over(search.base(), search.mesh().axes() <= kMostPrimeAxes ? primes : names);
    if (!search.is_limited()) return out;
    const std::optional<SearchResult> other = one_by_one_if_it_fits(search, primes);
    if (other && other->price.time_ps < out.price.time_ps) {  // as it may be, where choices were left out
      out.strategy = other->strategy;
      out.price = other->price;
      out.moved_ps = other->moved_ps;
    }
    out.bound_ps = 0;
    out.notes.push_back("values that many ops read are brought to few layouts, so that better strategies may exist");
    return out;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUnsupported) throw;
    SearchResult out = recursive_programming(search, primes);
    out.notes.push_back(
        fmt::format("all axes at once have too many choices ({}); they were taken one by one", error.what()));
    return out;
  }
}

}  // namespace

// Of the orders in which a strategy fits into the memory the best, with the least of their bounds.
SearchResult dynamic_programming(AxisSearch& search) {
  std::vector<AxisGroup> names = named_axes(search.mesh());
  if (names.size() > kMostReordered) {
    SearchResult out = in_order(search, names);
    out.notes.push_back(fmt::format(
        "dimensions are cut by the {} axes in the mesh's order alone; in another better strategies may exist",
        names.size()));
    return out;
  }
  std::optional<SearchResult> best;
  std::optional<Error> none_fits;
  do {
    try {
      SearchResult found = in_order(search, names);
      const int64_t bound_ps = best ? std::min(best->bound_ps, found.bound_ps) : found.bound_ps;
      if (!best || found.price.time_ps < best->price.time_ps) best = std::move(found);
      best->bound_ps = bound_ps;
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInvalidArgument) throw;
      none_fits = error;
    }
  } while (std::ranges::next_permutation(names, std::less(), [](const AxisGroup& name) { return name.front(); }).found);
  if (!best) throw Error(*none_fits);
  return *best;
}

}  // namespace trireme
