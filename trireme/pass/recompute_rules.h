// The rules of Recompute matched with a program: what they ask for each value that the backward pass reads, op by op.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/pass/passes.h"

namespace trireme {

// What is asked (passes.h) about a node's results that are made in the forward pass and read in the backward pass.
struct RecomputeAsked {
  std::string_view module;  // whose values are made again; nothing: those of no module are
  bool kept = false;        // whatever else is asked
  bool by_op = false;       // a rule for the op makes them again
  bool communication = true;
  bool optimizer_communication = true;
  bool slice = false;
  // Where it lies until it is read. What depends on no batch, such as a weight in another type, stays on the device.
  Tier home = Tier::kDevice;
};
std::vector<RecomputeAsked> recompute_asked(const Graph& graph, const Recompute& options);
// The scope by which rules are for each node's results: its own. What another crew has sent is kept by the module here
// that reads it first, not by the one there that made it.
std::vector<std::string_view> scopes_of_kept(const Graph& graph);
// Whether Recompute::blocks can ask for anything of it: modules with a number have ops of the forward pass, beside
// messages, which are kept.
bool has_blocks(const Graph& graph);

// What a job asks for (parallel.keep, train.recompute) of its step.
// Throws kInvalidArgument for a rule that matches no part of the forward pass, or whose op none of its parts has.
void check_keep_rules(const Graph& graph, std::span<const Recompute::Rule> rules);
// The same for more first blocks than the model has.
void check_blocks(const Graph& graph, int64_t blocks);

// Of a node that exchanges slices of a weight between where it is stored and where it is read: the weight, and how it
// is brought from there, which two nodes have in common that make the same. Where a weight comes in several steps, as
// over links of several levels, each is such a node.
struct BroughtWeight {
  ValueId weight = kNoValue;
  std::string how;
  auto operator<=>(const BroughtWeight&) const = default;
};
std::optional<BroughtWeight> brought_weight(const Graph& graph, const Node& node);

// Whether the node is run for the backward pass: of it, or once more what the forward pass ran.
inline bool is_for_backward(const Node& node) {
  return node.phase == Phase::kBackward || node.again;
}

}  // namespace trireme
