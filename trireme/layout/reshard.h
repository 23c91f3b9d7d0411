// Reshard: the steps that take a tensor from one layout to another, which is every collective of the system.
// plan_reshard finds the cheapest chain of the five primitive steps under given costs; if the two layouts need no
// communication (the target cuts what the source replicates), there is none. The choice depends only on its arguments,
// so every rank that asks gets the same chain.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
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

// What was planned over one mesh, by layouts and type.
class ReshardPlans {
 public:
  const Reshard* find(const Layout& from, const Layout& to, const TensorType& whole) const;
  const Reshard& add(const Layout& from, const Layout& to, const TensorType& whole, Reshard made);
  size_t size() const { return plans_.size(); }

 private:
  struct Key {
    Layout from;
    Layout to;
    TensorType whole;
  };
  struct KeyView {
    const Layout &from, &to;
    const TensorType& whole;
  };
  struct KeyHash {
    using is_transparent = void;
    size_t operator()(const KeyView& key) const;
    size_t operator()(const Key& key) const { return (*this)(KeyView{key.from, key.to, key.whole}); }
  };
  struct KeyEqual {
    using is_transparent = void;
    template <class A, class B>
    bool operator()(const A& a, const B& b) const {
      return a.from == b.from && a.to == b.to && a.whole == b.whole;
    }
  };
  std::unordered_map<Key, Reshard, KeyHash, KeyEqual> plans_;
};

// Plans over the meshes that were asked for last, for who cuts many graphs over few meshes. Not thread-safe.
class ReshardMemory {
 public:
  std::shared_ptr<ReshardPlans> of(const Mesh& mesh, const ReshardCosts& costs);

 private:
  struct Known {
    Mesh mesh;
    ReshardCosts costs;
    std::shared_ptr<ReshardPlans> plans;
  };
  std::deque<Known> known_;
};

// Remembers what it planned, and what others did that have the same memory; null: its own alone. Not thread-safe.
class ReshardPlanner {
 public:
  explicit ReshardPlanner(Mesh mesh, ReshardCosts costs = {}, ReshardMemory* memory = nullptr);
  const Reshard& plan(const Layout& from, const Layout& to, const TensorType& whole);
  const Mesh& mesh() const { return mesh_; }
  const ReshardCosts& costs() const { return costs_; }
  size_t planned() const { return plans_->size(); }

 private:
  Mesh mesh_;
  ReshardCosts costs_;
  std::shared_ptr<ReshardPlans> plans_;
};

}  // namespace trireme
