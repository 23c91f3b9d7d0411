// Reshard: the steps that take a tensor from one layout to another, which is every collective of
// the system. plan_reshard finds the cheapest chain of the five primitive steps under given costs;
// two layouts that need no communication (the target cuts what the source replicates) get none. The
// choice depends on its arguments only, so every rank that asks gets the same chain.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trireme/layout/layout.h"
#include "trireme/mesh/machine.h"
#include "trireme/mesh/mesh.h"
#include "trireme/tensor/shape.h"

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
// (mesh.h) and of ranks are never in one step.
struct ReshardStep {
  enum class Kind { kSlice, kAllGather, kAllToAll, kAllReduce, kReduceScatter };
  Kind kind = Kind::kSlice;
  int dim = -1;                           // the dimension cut or gathered; -1 for kAllReduce
  int from_dim = -1;                      // kAllToAll only: the dimension that becomes whole
  std::vector<int> axes;                  // most significant first
  Reduction reduction = Reduction::kSum;  // of kAllReduce and kReduceScatter
  Layout after;

  friend bool operator==(const ReshardStep&, const ReshardStep&) = default;
};

std::string_view to_string(ReshardStep::Kind kind);  // "slice", "all_gather", ...
// "all_to_all(dim 0 -> 1 over tp)", "all_reduce(sum over dp)".
std::string to_string(const ReshardStep& step, const Mesh& mesh);
std::string to_string(std::span<const ReshardStep> steps, const Mesh& mesh);  // joined by "; "

// The layout that a step of this kind, dim, from_dim and axes leads to, which is what `after`
// holds. Throws kInternal when the step cannot be taken from `before`.
Layout layout_after(const ReshardStep& step, const Layout& before);

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

  const LinkCost& of(int axis) const { return axes.empty() ? link : axes.at(static_cast<size_t>(axis)); }
};

// Costs of a mesh whose rank r is device `first + r` of the machine: each axis gets the level that
// its ranks, stride * size devices apart, must cross.
ReshardCosts reshard_costs(const Machine& machine, const Mesh& mesh);

// Payload bytes that each rank sends, counted as the bandwidth-optimal algorithms do: for p ranks
// and the larger of input and output, (p-1)/p of it, twice for an all-reduce.
int64_t bytes_sent(const ReshardStep& step, const TensorType& whole, const Mesh& mesh);
double seconds(const ReshardStep& step, const TensorType& whole, const Mesh& mesh, const ReshardCosts& costs);

// The cheapest chain from one layout of `whole` to another; empty when they are equal. Throws
// kInvalidArgument when a layout does not fit, or `to` is partial over an axis that `from` is not
// (a sum cannot be taken apart).
std::vector<ReshardStep> plan_reshard(const Layout& from, const Layout& to, const TensorType& whole, const Mesh& mesh,
                                      const ReshardCosts& costs = {});

struct Reshard {
  std::vector<ReshardStep> steps;
  double seconds = 0;
  int64_t bytes_sent = 0;  // by each rank
  int64_t peak_bytes = 0;  // largest input and output of one step, on each rank
};

// Remembers what it planned. Not thread-safe.
class ReshardPlanner {
 public:
  explicit ReshardPlanner(Mesh mesh, ReshardCosts costs = {});
  const Reshard& plan(const Layout& from, const Layout& to, const TensorType& whole);
  const Mesh& mesh() const { return mesh_; }
  const ReshardCosts& costs() const { return costs_; }
  size_t planned() const { return plans_.size(); }

 private:
  struct Key {
    Layout from;
    Layout to;
    TensorType whole;
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };

  Mesh mesh_;
  ReshardCosts costs_;
  std::unordered_map<Key, Reshard, KeyHash> plans_;
};

}  // namespace trireme
