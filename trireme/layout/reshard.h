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
#include "trireme/layout/reshard_step.h"
#include "trireme/mesh/machine.h"
#include "trireme/mesh/mesh.h"
#include "trireme/tensor/shape.h"

namespace trireme {

std::string_view to_string(ReshardStep::Kind kind);  // "slice", "all_gather", ...
// "all_to_all(dim 0 -> 1 over tp)", "all_reduce(sum over dp)".
std::string to_string(const ReshardStep& step, const Mesh& mesh);
std::string to_string(std::span<const ReshardStep> steps, const Mesh& mesh);  // joined by "; "

// The layout that a step of this kind, dim, from_dim and axes leads to, which is what `after`
// holds. Throws kInternal when the step cannot be taken from `before`.
Layout layout_after(const ReshardStep& step, const Layout& before);

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
