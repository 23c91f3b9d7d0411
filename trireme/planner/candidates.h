// Candidates: the ways to run one op, or to lay out one input, over some axes of a mesh, in addition to the axes that
// already cut it. Every search chooses among these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "trireme/ir/graph.h"
#include "trireme/ir/program.h"
#include "trireme/op/sharding_rule.h"
#include "trireme/parallel/asked/search_options.h"
#include "trireme/parallel/strategy/strategy.h"

namespace trireme {

struct CandidateOptions {
  // Whether partial sums may flow through linear ops. They do so only if the results are no larger than the sums;
  // otherwise it is cheaper to take the sums before.
  bool sums_flow = true;
  // Cuts of a node of the graph, and pieces of a program that bring a value to its readers, that are taken; none: all
  // are.
  std::function<bool(const Graph&, const Node&, const FactorCuts&, const Mesh&)> allows = {};
  std::function<bool(const Program&)> allows_pieces = {};
  SearchOptions limits = {};
  // How micro-batches cut the graph, on a mesh of their own: of what they cut, ranks have whole parts of each. Null:
  // there are none.
  std::shared_ptr<const Strategy> parts = nullptr;
};

// Prime axes of a mesh that are given as one.
using AxisGroup = Axes;

// All legal ways to give each of these groups to a factor of the node's rule, to its ring, to the sums that flow
// through a linear set of operands, or to nothing. Parts are even. `cuts` itself, which must be legal, is the first.
std::vector<FactorCuts> candidates(const Graph& graph, NodeId node, const ShardingRule& rule, const FactorCuts& cuts,
                                   const std::vector<AxisGroup>& axes, const Mesh& mesh,
                                   const CandidateOptions& options = {});

// The same for an input of this shape: each group cuts a dimension in even parts, or none. Of a dimension that the
// micro-batches cut in so many parts, by `parts`, each rank has as many whole ones.
std::vector<Layout> candidates(const Shape& shape, const Layout& layout, const std::vector<AxisGroup>& axes,
                               const Mesh& mesh, const std::vector<int64_t>& parts = {});

// Parts of each dimension of an input that micro-batches cut it in (CandidateOptions::parts); empty: there are none.
std::vector<int64_t> parts_of_input(const CandidateOptions& options, size_t input);

// Of candidates that take so long, those that are looked at (SearchOptions::approximate), by their numbers: the first,
// which cuts nothing more, and then the cheapest.
std::vector<size_t> looked_at(const std::vector<int64_t>& ps, const SearchOptions& limits);

// The prime axes of a mesh, each alone, and those of each axis that has a name together.
std::vector<AxisGroup> prime_axes(const Mesh& mesh);
std::vector<AxisGroup> named_axes(const Mesh& mesh);

// An op that is cut by nothing.
FactorCuts uncut(const ShardingRule& rule);

// Whether the op sums over a factor of two operands, in each of which it is linear.
bool is_product(const ShardingRule& rule);

}  // namespace trireme
