// RankGroups: which ranks a collective joins. They are given either by `axes` of the mesh, most significant first (the
// group of a rank is the ranks that agree with it in all other coordinates), or by `ranks`: the groups one after the
// other, each of `size` ranks in the order of their places. A rank that is in no listed group takes no part.
#pragma once

#include <string>
#include <vector>

#include "trireme/ir/attrs.h"
#include "trireme/mesh/mesh.h"

namespace trireme {

struct RankGroups {
  std::vector<int64_t> axes;
  std::vector<int64_t> ranks;
  int64_t size = 1;

  // The ranks of this rank's group in order; empty when it is in none.
  std::vector<int64_t> of(int64_t rank, const Mesh& mesh) const;
  // The place of this rank in its group, which it must be in.
  int64_t place_of(int64_t rank, const Mesh& mesh) const;
  // "" or what does not fit the mesh: axes it does not have, ranks it does not have or that stand twice, another size.
  std::string why_not(const Mesh& mesh) const;
  std::string text(const Mesh& mesh) const;  // "dp*tp", or "ranks [1,3][0,2]"
};

// By attributes with `axes`, `ranks` and `size`.
template <class A>
RankGroups read_groups(const Attrs& attrs) {
  const A& a = attrs.as<A>();
  return {a.axes, a.ranks, a.size};
}

}  // namespace trireme
