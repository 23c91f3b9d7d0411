#include "trireme/planner/dynamic_programming.h"

#include "trireme/base/error.h"
#include "trireme/planner/recursive_programming.h"

namespace trireme {
namespace {

constexpr int kMostPrimeAxes = 3;  // that are taken at once; of more, those that have one name go together

}  // namespace

SearchResult dynamic_programming(AxisSearch& search) {
  const Mesh& mesh = search.mesh();
  const bool few = mesh.axes() <= kMostPrimeAxes;
  try {
    SearchResult out = search.over(search.base(), few ? prime_axes(mesh) : named_axes(mesh));
    if (!search.is_limited()) return out;
    const SearchResult other = recursive_programming(search);  // may be better where choices were left out
    if (other.price.time_ps < out.price.time_ps) {
      out.strategy = other.strategy;
      out.price = other.price;
      out.moved_ps = other.moved_ps;
    }
    out.bound_ps = 0;
    out.notes.push_back("values that many ops read are brought to few layouts, so that better strategies may exist");
    return out;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kUnsupported) throw;
    SearchResult out = recursive_programming(search);
    out.notes.push_back(
        fmt::format("all axes at once have too many choices ({}); they were taken one by one", error.what()));
    return out;
  }
}

}  // namespace trireme
