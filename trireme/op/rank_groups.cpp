#include "trireme/op/rank_groups.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"

namespace trireme {
namespace {

std::vector<int> ints(const std::vector<int64_t>& values) {
  return {values.begin(), values.end()};
}

}  // namespace

std::vector<int64_t> RankGroups::of(int64_t rank, const Mesh& mesh) const {
  if (ranks.empty()) return mesh.group_of(rank, ints(axes));
  const auto at = std::find(ranks.begin(), ranks.end(), rank);
  if (at == ranks.end()) return {};
  const auto first = ranks.begin() + (at - ranks.begin()) / size * size;
  return {first, first + size};
}

int64_t RankGroups::place_of(int64_t rank, const Mesh& mesh) const {
  const std::vector<int64_t> group = of(rank, mesh);
  const auto at = std::find(group.begin(), group.end(), rank);
  invariant(at != group.end(), "rank {} is in no group of {}", rank, text(mesh));
  return at - group.begin();
}

std::string RankGroups::why_not(const Mesh& mesh) const {
  if (ranks.empty()) {
    std::set<int64_t> seen;
    for (const int64_t axis : axes) {
      if (axis < 0 || axis >= mesh.axes()) {
        return fmt::format("is over axis {} of the mesh '{}', which has {} prime axes", axis, to_string(mesh),
                           mesh.axes());
      }
      if (!seen.insert(axis).second) {
        return fmt::format("names axis '{}' of the mesh twice; name it once", mesh.axis(static_cast<int>(axis)).name);
      }
    }
    const int64_t of_axes = mesh.size_of(ints(axes));
    if (size == of_axes) return "";
    return fmt::format("claims a group of {} ranks; over {} of the mesh '{}' it has {}", size, text(mesh),
                       to_string(mesh), of_axes);
  }
  if (!axes.empty()) return "gives both axes of the mesh and ranks for its group; give one of them";
  const auto count = static_cast<int64_t>(ranks.size());
  if (size < 2 || count % size != 0) {
    return fmt::format("lists {} ranks for groups of {}; a group has 2 ranks or more, and all groups equally many",
                       count, size);
  }
  std::set<int64_t> seen;
  for (const int64_t rank : ranks) {
    if (rank < 0 || rank >= mesh.devices()) {
      return fmt::format("lists rank {} ({}); the job has the ranks 0 to {}", rank, text(mesh), mesh.devices() - 1);
    }
    if (!seen.insert(rank).second)
      return fmt::format("lists rank {} twice ({}); list each rank once", rank, text(mesh));
  }
  return "";
}

std::string RankGroups::text(const Mesh& mesh) const {
  if (ranks.empty()) return print_axes(ints(axes), mesh);
  std::string out = "ranks ";
  for (size_t i = 0; i < ranks.size(); i += static_cast<size_t>(size)) {
    const std::span rest = std::span(ranks).subspan(i);
    out += fmt::format("[{}]", joined_text(rest.first(std::min(static_cast<size_t>(size), rest.size())), ","));
  }
  return out;
}

}  // namespace trireme
