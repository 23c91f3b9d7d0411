#include "trireme/planner/least_communication.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <tuple>
#include <utility>

#include "trireme/parallel/propagate/propagate.h"
#include "trireme/planner/cut_flows.h"
#include "trireme/planner/units.h"

namespace trireme {
namespace {

// MindSpore's factors for an element of a weight, whose gradients are summed once a step, and for one of a value that
// one op makes, and another reads, along different dimensions; 1: of another tensor of which ranks sum terms.
constexpr double kOfWeight = 0.25, kOfOthers = 16;

enum class Order { kHeaviestFirst, kLastFirst };

// A product in one division of the ranks: what it was given before, and the ways to give it one factor more.
struct Way {
  FactorCuts cuts;
  double within = 0;    // elements exchanged within the product, weighed
  double of_terms = 0;  // of these, all but those of weights
  bool sums = false;    // forward
};
struct Division {
  std::vector<double> of_operands, of_results;  // elements of a rank's pieces
  std::vector<Way> ways = {};
};

// The factor that the axis cuts; -1 if it cuts none or several.
int factor_cut_by(const FactorCuts& cuts, int axis) {
  int out = -1;
  for (size_t factor = 0; factor < cuts.axes.size(); ++factor) {
    if (std::ranges::find(cuts.axes[factor], axis) == cuts.axes[factor].end()) continue;
    if (out >= 0) return -1;
    out = static_cast<int>(factor);
  }
  return out;
}

bool slides(const ShardingRule& rule, int factor) {
  return std::ranges::find(rule.windows, factor, &WindowedDim::factor) != rule.windows.end();
}

// Of values: whether they are made of parameters alone.
std::vector<char> weights_of(const Graph& graph) {
  std::vector<char> out(graph.values().size(), 0);
  for (const Input& input : graph.inputs())
    out[static_cast<size_t>(input.value)] = input.role == Role::kParameter ? 1 : 0;
  for (const Node& node : graph.nodes()) {
    const auto is_weight = [&](ValueId id) { return out[static_cast<size_t>(id)] != 0; };
    const bool all = !node.inputs.empty() && std::ranges::all_of(node.inputs, is_weight);
    for (const ValueId result : node.outputs) out[static_cast<size_t>(result)] = all ? 1 : 0;
  }
  return out;
}

class Divisions {
 public:
  struct Found {
    std::vector<FactorCuts> cuts;  // of products
    double exchanged = 0;          // weighed elements, of all divisions
    std::vector<double> of_terms;  // of axes: without those of weights
  };

  Divisions(const Graph& graph, const Mesh& mesh, const SearchOptions& options, const SearchConditions& conditions)
      : graph_(graph),
        mesh_(mesh),
        asks_(conditions.asks),
        limits_(conditions.candidates),
        units_(graph),
        is_weight_(weights_of(graph)),
        ops_(graph, units_) {
    limits_.limits = options;
    limits_.sums_flow = conditions.asks.sums_flow;
    for (size_t unit = 0; unit < units_.size(); ++unit) {
      const NodeId id = units_.nodes(unit).front();
      if (!is_forward(id)) continue;
      const bool is_asked = asks_.nodes.contains(id);
      const bool is_found = !is_asked && !follows_by_itself(id) && is_product(rule(id));
      if (is_found) products_.push_back({id, unit});
      ops_.decides[static_cast<size_t>(id)] = is_asked || is_found ? 1 : 0;
    }
  }

  Found run(Order order) const {
    Found out;
    for (const Product& product : products_) out.cuts.push_back(uncut(rule(product.id)));
    out.of_terms.resize(static_cast<size_t>(mesh_.axes()));
    for (int axis = 0; axis < mesh_.axes(); ++axis) divide(axis, order, out);
    return out;
  }

  // Axes are alike for this search if they are factors of one axis and of one size, unless an op is asked for by them.
  // Those along which most is exchanged besides weights become the last ones, whose ranks are nearest to each other.
  void place(Found& found) const {
    if (std::ranges::any_of(asks_.nodes, [&](const auto& asked) { return is_forward(asked.first); })) return;
    std::vector<int> axes(found.of_terms.size());
    std::iota(axes.begin(), axes.end(), 0);
    const auto key = [&](int axis) {
      return std::tuple(mesh_.user_axis_of(axis), mesh_.axis(axis).size, found.of_terms[static_cast<size_t>(axis)]);
    };
    std::ranges::stable_sort(axes, {}, key);
    std::vector<int> place_of(axes.size());  // alike axes lie side by side in a mesh
    for (size_t place = 0; place < axes.size(); ++place)
      place_of[static_cast<size_t>(axes[place])] = static_cast<int>(place);
    for (FactorCuts& cuts : found.cuts) {
      for (Axes& of_factor : cuts.axes) {
        for (int& axis : of_factor) axis = place_of[static_cast<size_t>(axis)];
        std::ranges::sort(of_factor);
      }
    }
  }

  // What follows and may not be cut as its operands come (CandidateOptions::allows) is run whole.
  Strategy strategy(const Found& found) const {
    Asks all = asks_;
    for (size_t p = 0; p < products_.size(); ++p) all.nodes.emplace(products_[p].id, found.cuts[p]);
    while (true) {
      Strategy out = propagate(graph_, mesh_, all);
      const size_t before = all.nodes.size();
      for (size_t unit = 0; unit < units_.size(); ++unit) {
        const NodeId id = units_.nodes(unit).front();
        if (!is_forward(id) || all.nodes.contains(id) || follows_by_itself(id)) continue;
        if (!units_.allow(unit, out.nodes[static_cast<size_t>(id)], mesh_, limits_))
          all.nodes.emplace(id, uncut(rule(id)));
      }
      if (all.nodes.size() > before) continue;
      for (const Product& product : products_) {
        if (asks_.says_why) out.why_nodes[static_cast<size_t>(product.id)] = "found by " + to_string(limits_.limits);
      }
      return out;
    }
  }

 private:
  struct Product {
    NodeId id = 0;
    size_t unit = 0;
  };

  bool is_forward(NodeId id) const { return graph_.node(id).phase == Phase::kForward; }
  // What somebody says of an op besides cuts is for propagation to work out.
  bool follows_by_itself(NodeId id) const { return asks_.as_it_comes.contains(id) || asks_.unsummed.contains(id); }
  const ShardingRule& rule(NodeId id) const { return units_.rule(id); }

  std::vector<double> elements(std::span<const ValueId> values, const std::vector<Layout>& layouts) const {
    std::vector<double> out;
    for (size_t i = 0; i < values.size(); ++i)
      out.push_back(static_cast<double>(local_shape(graph_.type(values[i]).shape, layouts[i], mesh_).elements()));
    return out;
  }

  // Ranks exchange a share of each tensor that the factor does not cut: terms of a result are summed forward, and those
  // of an operand's gradient on the way back.
  Way way_of(const Product& product, const Division& division, FactorCuts cuts, int factor, int axis) const {
    const Node& node = graph_.node(product.id);
    const ShardingRule& of = rule(product.id);
    const auto parts = static_cast<double>(mesh_.axis(axis).size);
    const double share = (parts - 1) / parts;
    Way out{.cuts = std::move(cuts), .sums = is_summed(of, factor)};
    double of_weights = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (stands_in(of.in[i], factor)) continue;
      const bool is_weight = is_weight_[static_cast<size_t>(node.inputs[i])] != 0;
      (is_weight ? of_weights : out.of_terms) += division.of_operands[i] * share;
    }
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      if (!stands_in(of.out[k], factor)) out.of_terms += division.of_results[k] * share;
    }
    out.within = out.of_terms + of_weights * kOfWeight;
    return out;
  }

  Division division_of(const Product& product, const FactorCuts& before, int axis) const {
    const Node& node = graph_.node(product.id);
    const ShardingRule& of = rule(product.id);
    Division out{.of_operands = elements(node.inputs, operand_layouts(of, before)),
                 .of_results = elements(node.outputs, result_layouts(of, before))};
    for (FactorCuts& more : candidates(graph_, product.id, of, before, {AxisGroup{axis}}, mesh_, limits_)) {
      const int factor = factor_cut_by(more, axis);
      if (factor < 0 || slides(of, factor) || !units_.allow(product.unit, more, mesh_, limits_)) continue;
      out.ways.push_back(way_of(product, out, std::move(more), factor, axis));
    }
    keep_those_looked_at(out.ways);
    // Of two that cost as much, the one without a sum.
    std::ranges::stable_sort(out.ways, {}, &Way::sums);
    return out;
  }

  void keep_those_looked_at(std::vector<Way>& ways) const {
    std::vector<int64_t> costs{0};  // of the way that divides nothing, which is looked at anyway
    for (const Way& way : ways) costs.push_back(static_cast<int64_t>(way.within));
    std::vector<Way> kept;
    for (const size_t i : looked_at(costs, limits_.limits)) {
      if (i > 0) kept.push_back(std::move(ways[i - 1]));
    }
    ways = std::move(kept);
  }

  double between(const Product& product, const Division& division, const Way& way, const CutFlows& flows,
                 int axis) const {
    const Node& node = graph_.node(product.id);
    const std::vector<Layout> operands = operand_layouts(rule(product.id), way.cuts);
    const std::vector<Layout> results = result_layouts(rule(product.id), way.cuts);
    double out = 0;
    const auto others = [&](const CutFlows::Dims& dims, const Layout& layout) {
      return static_cast<double>(std::ranges::count_if(dims, [&](int dim) { return dim != layout.dim_cut_by(axis); }));
    };
    for (size_t i = 0; i < operands.size(); ++i)
      out += others(flows.made(node.inputs[i]), operands[i]) * division.of_operands[i] * kOfOthers;
    for (size_t k = 0; k < results.size(); ++k)
      out += others(flows.read(node.outputs[k]), results[k]) * division.of_results[k] * kOfOthers;
    return out;
  }

  std::vector<size_t> in_order(Order order, const std::vector<Division>& divisions) const {
    std::vector<size_t> out(products_.size());
    std::iota(out.begin(), out.end(), size_t{0});
    if (order == Order::kLastFirst) {
      std::ranges::reverse(out);
      return out;
    }
    const auto weight = [&](size_t p) {
      double most = 0;
      for (const Way& way : divisions[p].ways) most = std::max(most, way.within);
      return most;
    };
    std::ranges::stable_sort(out, [&](size_t a, size_t b) { return weight(a) > weight(b); });
    return out;
  }

  void divide(int axis, Order order, Found& found) const {
    CutFlows flows(ops_, axis);
    for (const auto& [id, cuts] : asks_.nodes) {
      if (is_forward(id)) flows.add(id, cuts);
    }
    std::vector<Division> divisions;
    for (size_t p = 0; p < products_.size(); ++p) divisions.push_back(division_of(products_[p], found.cuts[p], axis));
    for (const size_t p : in_order(order, divisions)) {
      const Way* best = nullptr;
      double least = 0, least_between = 0;
      for (const Way& way : divisions[p].ways) {
        const double others = between(products_[p], divisions[p], way, flows, axis);
        if (best == nullptr || way.within + others < least)
          best = &way, least = way.within + others, least_between = others;
      }
      if (best != nullptr) {
        found.cuts[p] = best->cuts;
        found.exchanged += least;
        found.of_terms[static_cast<size_t>(axis)] += best->of_terms + least_between;
      }
      flows.add(products_[p].id, found.cuts[p]);
    }
  }

  const Graph& graph_;
  const Mesh& mesh_;
  const Asks& asks_;
  CandidateOptions limits_;
  const Units units_;
  const std::vector<char> is_weight_;  // of values
  ForwardOps ops_;
  std::vector<Product> products_;  // in the order of the graph
};

}  // namespace

Strategy least_communication(const Graph& graph, const Mesh& mesh, const SearchOptions& options,
                             const SearchConditions& conditions) {
  const Divisions divisions(graph, mesh, options, conditions);
  // What is decided first binds the rest. MindSpore's documents say that it goes by weight; its program goes from the
  // last op to the first.
  Divisions::Found by_weight = divisions.run(Order::kHeaviestFirst), from_last = divisions.run(Order::kLastFirst);
  Divisions::Found& best = from_last.exchanged < by_weight.exchanged ? from_last : by_weight;
  divisions.place(best);
  return divisions.strategy(best);
}

}  // namespace trireme
