// Layouts that do not follow from the op's rule, because somebody vouches for them (VouchedLayouts of
// op/sharding_rule.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/parallel/strategy/strategy.h"

namespace trireme {

// Why the node cannot be run on pieces of these layouts, or "": what it makes of them must have the shapes that its
// results are taken to have.
std::string why_unsound(const Graph& graph, const Node& node, const VouchedLayouts& layouts, const Mesh& mesh);

// The result of a node that keeps its operand's cuts although its rule cannot carry them: each axis cuts the first
// dimension that it divides.
Layout cut_alike(const Layout& operand, const Shape& result, const Mesh& mesh);

// Whether the layouts are those of a choice of the op's rule, apart from what is partial.
bool follows_rule(const Graph& graph, const Node& node, const VouchedLayouts& layouts, const Mesh& mesh);

// The layouts of a node that is part of a gradient, dual to those that the node it is the gradient of has: an operand
// or result that is one of that node's, or the gradient of one, lies as that one, and a result is a term over the axes
// that cut operands and not it; an operand that the same gradient makes lies as it is made (`own`). Nothing where some
// are none of these, or the pieces do not fit.
std::optional<VouchedLayouts> mirrored(const Graph& graph, const Node& node,
                                       const std::vector<std::optional<Layout>>& own, const VouchedLayouts& layouts,
                                       const Mesh& mesh);

// The cuts with the results' partial sums over ranks taken for whole, times the number of ranks if `as_means`; what a
// rank sums over its micro-batches stays a sum. Nothing where no result is partial over ranks.
std::optional<VouchedLayouts> unsummed(const ShardingRule& rule, const FactorCuts& cuts, const Mesh& mesh,
                                       bool as_means);

}  // namespace trireme
