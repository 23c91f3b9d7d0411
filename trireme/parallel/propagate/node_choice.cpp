#include "trireme/parallel/propagate/node_choice.h"

#include <algorithm>
#include <span>

#include "trireme/base/error.h"

namespace trireme {
namespace {

bool is_among(std::span<const int> numbers, int number) {
  return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
}

// Whether a dimension that is cut by `of_dim` is cut by `so_far`, then by `axis`.
bool goes_on(const Axes& so_far, int axis, const Axes& of_dim) {
  return so_far.size() < of_dim.size() && std::equal(so_far.begin(), so_far.end(), of_dim.begin()) &&
         of_dim[so_far.size()] == axis;
}

}  // namespace

NodeChoice::NodeChoice(const ShardingRule& rule, const std::vector<std::optional<Layout>>& have, const Mesh& mesh)
    : rule_(rule), have_(have), mesh_(mesh) {
  cuts_.axes.resize(rule.factors.size());
  for (size_t i = 0; i < rule.factors.size(); ++i) owners_.push_back(-1);
}

FactorCuts NodeChoice::choose(const std::vector<int64_t>& bytes, int64_t result_bytes, bool sums_flow, bool is_update) {
  is_update_ = is_update;
  if (sums_flow) let_partials_through(bytes, result_bytes);
  Few<size_t, 8> order;  // of operands, the largest first
  for (size_t i = 0; i < have_.size(); ++i) order.push_back(i);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return bytes[a] > bytes[b] || (bytes[a] == bytes[b] && a < b); });
  for (const size_t operand : order) {
    if (have_[operand]) take_cuts(operand);
  }
  if (rule_.ring) take_ring();
  return cuts_;
}

FactorCuts NodeChoice::extend(const FactorCuts& given) {
  cuts_ = given;
  for (size_t operand = 0; operand < have_.size(); ++operand) {
    if (have_[operand]) take_cuts(operand);
  }
  if (rule_.ring && cuts_.axes[static_cast<size_t>(rule_.ring->first)].empty()) take_ring();
  return cuts_;
}

std::string NodeChoice::why() const {
  Few<int, 8> from;
  for (const int operand : owners_) {
    if (operand >= 0 && !is_among(from, operand)) from.push_back(operand);
  }
  std::string out = cuts_.linear_set >= 0 ? "a partial sum flows through" : "";
  for (const int operand : from) {
    out += fmt::format("{}operand {} comes as {}", out.empty() ? "" : "; ", operand,
                       to_string(*have_[static_cast<size_t>(operand)], mesh_));
  }
  return out.empty() ? "no operand comes cut" : out;
}

// The first linear set whose operands are all partial over the same axes, the others being whole over them.
void NodeChoice::let_partials_through(const std::vector<int64_t>& bytes, int64_t result_bytes) {
  for (size_t set = 0; set < rule_.linear.size(); ++set) {
    const std::vector<int>& members = rule_.linear[set];
    const std::optional<Layout>& first = have_[static_cast<size_t>(members.front())];
    if (!first || !first->is_partial()) continue;
    int64_t partial_bytes = 0;
    for (const int member : members) partial_bytes += bytes[static_cast<size_t>(member)];
    if (result_bytes > partial_bytes || !fits_through(members, first->partial)) continue;
    cuts_.through = first->partial;
    cuts_.linear_set = static_cast<int>(set);
    for (const PartialAxis& p : first->partial) used_.push_back(p.axis);
    return;
  }
}

bool NodeChoice::fits_through(const std::vector<int>& members, const PartialAxes& partial) const {
  for (size_t i = 0; i < have_.size(); ++i) {
    if (is_among(members, static_cast<int>(i))) {
      if (!have_[i] || have_[i]->partial != partial) return false;
      continue;
    }
    if (!have_[i]) continue;
    for (const PartialAxis& p : partial) {
      if (have_[i]->uses(p.axis)) return false;
    }
  }
  return std::all_of(partial.begin(), partial.end(),
                     [](const PartialAxis& p) { return p.reduction == Reduction::kSum; });
}

void NodeChoice::take_cuts(size_t operand) {
  const DimFactors& dims = rule_.in[operand];
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    size_t part = 0;
    const Axes& axes = have_[operand]->dims[dim];
    for (const int axis : axes) {
      if (is_among(used_, axis)) continue;
      // A factor that another operand has cut already keeps its choice.
      while (part < dims[dim].size() && !add(dims[dim][part], axis, static_cast<int>(operand), axes)) ++part;
      if (part == dims[dim].size()) break;
    }
  }
}

// The two factors of a ring are cut where an operand comes cut in each of them, over the same free axes.
void NodeChoice::take_ring() {
  const auto first = find_cut(rule_.ring->first);
  const auto second = find_cut(rule_.ring->second);
  if (!first || !second || first->axes != second->axes) return;
  FactorCuts trial = cuts_;
  trial.axes[static_cast<size_t>(rule_.ring->first)] = first->axes;
  trial.axes[static_cast<size_t>(rule_.ring->second)] = second->axes;
  if (!is_ring(rule_, trial) || !why_illegal(rule_, trial, mesh_).empty()) return;
  cuts_ = std::move(trial);
  owners_[static_cast<size_t>(rule_.ring->first)] = first->operand;
  owners_[static_cast<size_t>(rule_.ring->second)] = second->operand;
}

std::optional<NodeChoice::FoundCut> NodeChoice::find_cut(int factor) const {
  for (size_t operand = 0; operand < have_.size(); ++operand) {
    for (size_t dim = 0; have_[operand] && dim < rule_.in[operand].size(); ++dim) {
      if (rule_.in[operand][dim] != FactorsOfDim{factor} || have_[operand]->dims[dim].empty()) continue;
      return FoundCut{have_[operand]->dims[dim], static_cast<int>(operand)};
    }
  }
  return std::nullopt;
}

bool NodeChoice::add(int factor, int axis, int operand, const Axes& of_dim) {
  const auto f = static_cast<size_t>(factor);
  const bool is_of_other = owners_[f] >= 0 && owners_[f] != operand;
  if (is_of_other && !(is_update_ && goes_on(cuts_.axes[f], axis, of_dim))) return false;
  cuts_.axes[f].push_back(axis);
  if (!why_illegal(rule_, cuts_, mesh_).empty()) {
    cuts_.axes[f].pop_back();
    return false;
  }
  owners_[f] = operand;
  used_.push_back(axis);
  return true;
}

}  // namespace trireme
