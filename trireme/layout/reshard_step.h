// The primitive steps that a reshard is made of, and what they cost.
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/layout/layout.h"

namespace trireme {

// One step, done at once by every group of ranks that agree in all coordinates but `axes`. Ranks of
// a group are numbered by Mesh::index_along(rank, axes): number k sends and receives as number k of
// the group.
//  kSlice          each rank keeps its part k of `dim`; no communication
//  kAllGather      the pieces are laid end to end along `dim`
//  kAllToAll       each piece is cut in parts along `dim`, part k goes to number k, and
//                  the parts received are laid end to end along `from_dim`
//  kAllReduce      the element-wise reduction of all pieces, on all
//  kReduceScatter  the same, of which each rank keeps part k of `dim`
// Only the least significant axes of a dimension can be gathered or appended without permuting
// elements within a piece, so `axes` are always the last ones of their dimension. Axes of micro-batches
// (mesh/mesh.h) and of ranks are never in one step.
struct ReshardStep {
  enum class Kind { kSlice, kAllGather, kAllToAll, kAllReduce, kReduceScatter };
  Kind kind = Kind::kSlice;
  int dim = -1;                           // the dimension cut or gathered; -1 for kAllReduce
  int from_dim = -1;                      // kAllToAll only: the dimension that becomes whole
  Axes axes;                              // most significant first
  Reduction reduction = Reduction::kSum;  // of kAllReduce and kReduceScatter
  Layout after;

  friend bool operator==(const ReshardStep&, const ReshardStep&) = default;
};

struct LinkCost {
  double latency_s = 5e-6;
  double bytes_per_s = 5e9;
  friend bool operator==(const LinkCost&, const LinkCost&) = default;
};

// What a step costs: step_s, plus for p ranks ceil(log2 p) latencies (twice that for an
// all-reduce), plus the bytes each rank sends over the slowest of the axes' links. A slice costs
// slice_s per axis.
struct ReshardCosts {
  LinkCost link;               // of every axis, unless `axes` is given
  std::vector<LinkCost> axes;  // one per prime axis of the mesh, or none
  double step_s = 1e-6;
  double slice_s = 1e-8;
  bool enable_all_to_all = true;
  int64_t max_states = 5000;  // layouts to visit before taking the best chain known
  // Where a sum over ranks leaves each rank a part of it: each micro-batch's is taken over the ranks, and what a rank
  // has left of them is added. It sends more, and a rank keeps no more than its part. False: they are added first.
  bool sum_micro_batches_late = false;
  // Axes of ranks over which sums are taken before those over micro-batches, wherever they lead: each micro-batch's is.
  std::vector<int> sum_before_micro_batches = {};

  const LinkCost& of(int axis) const { return axes.empty() ? link : axes.at(static_cast<size_t>(axis)); }
  friend bool operator==(const ReshardCosts&, const ReshardCosts&) = default;
};

}  // namespace trireme
