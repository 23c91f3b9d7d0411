// Which collectives of one kind over the same ranks are joined into one operation (pass/fuse_collectives.cpp).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/keys.h"
#include "trireme/ir/graph.h"
#include "trireme/parallel/asked/scope_pattern.h"

namespace trireme {

// Of one kind: all_reduce, reduce_scatter or all_gather. Values are counted in the order in which their collectives
// stand in the step, for each group of ranks, element type, dimension and micro-batch.
struct FusionOfKind {
  enum class Mode {
    kAuto,   // by a model of the step, unless a size or numbers are given
    kSize,   // by `bytes`
    kIndex,  // by `ends`
    kOff,    // each value in an operation of its own
  };
  Mode mode = Mode::kAuto;
  int64_t bytes = 0;               // of whole values in one operation; one that is larger is alone; 0: none given
  std::vector<int64_t> ends = {};  // after how many values an operation ends; empty: none given
  friend bool operator==(const FusionOfKind&, const FusionOfKind&) = default;
};

// The collectives of a parameter and of its gradient are selected by the parameter's name, others by their scope. Those
// with the same id become one operation each time they occur, whatever their size; those with id 0 stay separate; those
// without an id follow the kind's mode. The last rule that matches a name counts.
struct FusionRule {
  ScopePattern pattern;
  int64_t id = 0;
  bool inside = true;  // false: of the parameters that the module of this scope itself has
  friend bool operator==(const FusionRule&, const FusionRule&) = default;
};
inline constexpr int64_t kNoFusionId = -1;

struct Fusion {
  FusionOfKind all_reduce, reduce_scatter, all_gather;
  std::vector<FusionRule> ids = {};
  bool is_on = true;  // false: as kOff of all kinds
};
// The section [parallel].
std::vector<Key> keys_of(Fusion& options);
// Throws kInvalidArgument, naming the keys, for what contradicts itself.
void check(const Fusion& options);

// "h.* = 2". Throws kInvalidArgument for what is none.
FusionRule parse_fusion_rule(const std::string& text);

// The one that counts for the name; null: none.
const FusionRule* fusion_rule(std::span<const FusionRule> rules, std::string_view name);
int64_t fusion_id(std::span<const FusionRule> rules, std::string_view name);

// What the model's code asks, in the order it was asked, and then these rules. Throws kInvalidArgument for a rule that
// matches no parameter of the graph.
std::vector<FusionRule> fusion_rules(const Graph& graph, std::span<const FusionRule> rules);

}  // namespace trireme
