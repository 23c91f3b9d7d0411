#include "tests/equivalence/random_strategy.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/op/op_def.h"
#include "trireme/parallel/parallel.h"
#include "trireme/planner/candidates.h"
#include "trireme/train/step/compile/invariant.h"

namespace trireme::equivalence {
namespace {

Mesh random_mesh(Draw& draw) {
  static const std::vector<std::string> kMeshes{"",          "dp=2",      "dp=2",      "dp=3",          "dp=4",
                                                "dp=2,tp=2", "dp=2,tp=2", "dp=6",      "dp=2,tp=3",     "dp=3,tp=2",
                                                "dp=8",      "dp=4,tp=2", "dp=2,tp=4", "dp=2,tp=2,sp=2"};
  const Mesh mesh = parse_mesh(draw.of(kMeshes));
  return draw.chance(20) ? with_micro_batches(mesh, draw.of({2, 2, 3, 4})) : mesh;
}

// Of the ranks alone, or with the axes of micro-batches where they may stand in an input.
Layout as_input(Layout layout, const Mesh& mesh, Role role) {
  const auto is_ours = [&](int axis) { return is_micro_batch_axis(mesh, axis); };
  for (Axes& axes : layout.dims) {
    if (role != Role::kData) erase_if(axes, is_ours);
    std::stable_partition(axes.begin(), axes.end(), [&](int axis) { return !is_ours(axis); });
  }
  return layout;
}

// Each axis cuts a random dimension that falls in such parts, or none. Micro-batches are of equal size.
Layout random_layout(const Shape& shape, const Mesh& mesh, Draw& draw, Parts parts = Parts::kEven) {
  Layout layout = Layout::replicated(shape.rank());
  std::vector<int> axes;
  for (int axis = 0; axis < mesh.axes(); ++axis) axes.push_back(axis);
  draw.shuffle(axes);
  for (const int axis : axes) {
    const auto dim = static_cast<size_t>(draw.below(shape.rank() + 1));
    if (dim == layout.dims.size()) continue;
    layout.dims[dim].push_back(axis);
    if (!fits(layout, shape, mesh, micro_batches(mesh) > 1 ? Parts::kEven : parts)) layout.dims[dim].pop_back();
  }
  return layout;
}

// What cuts may do to bits.
struct Bits {
  Numerics numerics = Numerics::kFast;
  std::vector<int> within = {};  // axes that cut finer than micro-batches
};

// Where bits must not depend on cuts, now and then one axis of ranks cuts finer than micro-batches.
Bits random_bits(Numerics numerics, const Mesh& mesh, Draw& draw) {
  Bits out{.numerics = numerics};
  const int axes = without_micro_batches(mesh).axes();
  if (numerics == Numerics::kFast || micro_batches(mesh) == 1 || axes == 0 || !draw.chance(50)) return out;
  out.within.push_back(static_cast<int>(draw.below(axes)));
  return out;
}

// An op that is to be cut.
struct Op {
  const Graph& graph;
  const Node& node;
  const Mesh& mesh;
  const Bits& bits;
  ShardingRule rule = *rule_of(graph, node);

  bool takes(const FactorCuts& cuts) const {
    return why_illegal(rule, cuts, mesh).empty() &&
           (bits.numerics == Numerics::kFast ||
            why_not_invariant(graph, node, cuts, mesh, cpu_device(), bits.within).empty());
  }
};

// Lets sums that are not done yet flow through a linear set of operands, all of which must come as
// such sums.
void let_through(const ShardingRule& rule, const std::vector<Layout>& have, FactorCuts& cuts, Draw& draw) {
  if (rule.linear.empty() || !draw.chance(70)) return;
  const auto set = static_cast<size_t>(draw.below(static_cast<int64_t>(rule.linear.size())));
  const std::vector<int>& members = rule.linear[set];
  for (const PartialAxis& p : have[static_cast<size_t>(members.front())].partial) {
    const bool all = std::all_of(members.begin(), members.end(), [&](int member) {
      return have[static_cast<size_t>(member)].is_partial_over(p.axis) && p.reduction == Reduction::kSum &&
             have[static_cast<size_t>(member)].partial.front().reduction == Reduction::kSum;
    });
    if (all && draw.chance(80)) cuts.through.push_back(p);
  }
  if (!cuts.through.empty()) cuts.linear_set = static_cast<int>(set);
}

// Now and then the op is computed in two copies on each rank, where it can be.
void copy_along_a_factor(const Op& op, FactorCuts& cuts, Draw& draw) {
  if (def_of(op.node).traits.reads_place || op.rule.factors.empty() || !draw.chance(15)) return;
  FactorCuts trial = cuts;
  trial.copied_factor = static_cast<int>(draw.below(static_cast<int64_t>(op.rule.factors.size())));
  trial.copies = draw.of({2, 2, 3});
  if (op.takes(trial)) cuts = std::move(trial);
}

// Cuts both factors of the rule's ring over the axis, or neither.
bool add_to_ring(const Op& op, FactorCuts& cuts, int axis) {
  FactorCuts trial = cuts;
  trial.axes[static_cast<size_t>(op.rule.ring->first)].push_back(axis);
  trial.axes[static_cast<size_t>(op.rule.ring->second)].push_back(axis);
  if (!op.takes(trial)) return false;
  cuts = std::move(trial);
  return true;
}

// `have`: the layouts the operands are made in.
FactorCuts random_cuts(const Op& op, const std::vector<Layout>& have, Draw& draw) {
  const ShardingRule& rule = op.rule;
  FactorCuts cuts = uncut(rule);
  let_through(rule, have, cuts, draw);
  if (!op.takes(cuts)) cuts = uncut(rule);
  std::vector<int> axes;
  for (int axis = 0; axis < op.mesh.axes(); ++axis) axes.push_back(axis);
  draw.shuffle(axes);
  for (const int axis : axes) {
    if (rule.factors.empty() || draw.chance(15)) continue;
    if (rule.ring && draw.chance(50) && add_to_ring(op, cuts, axis)) continue;
    for (int attempt = 0; attempt < 3; ++attempt) {
      Axes& factor = cuts.axes[static_cast<size_t>(draw.below(static_cast<int64_t>(rule.factors.size())))];
      factor.push_back(axis);
      if (op.takes(cuts)) break;
      factor.pop_back();
    }
  }
  return cuts;
}

// Every input, node and output on its own.
Strategy anything_legal(const Graph& graph, const Mesh& mesh, Draw& draw, const Bits& bits) {
  Strategy out;
  out.mesh = mesh;
  std::vector<Layout> layouts(graph.values().size());
  for (const Input& input : graph.inputs()) {
    out.inputs.push_back(
        as_input(random_layout(graph.type(input.value).shape, mesh, draw, parts_of(input)), mesh, input.role));
    layouts[static_cast<size_t>(input.value)] = out.inputs.back();
  }
  for (const Node& node : graph.nodes()) {
    const Op op{graph, node, mesh, bits};
    std::vector<Layout> have;
    for (const ValueId id : node.inputs) have.push_back(layouts[static_cast<size_t>(id)]);
    out.nodes.push_back(draw.chance(85) ? random_cuts(op, have, draw) : uncut(op.rule));
    copy_along_a_factor(op, out.nodes.back(), draw);
    const std::vector<Layout> results = result_layouts(op.rule, out.nodes.back());
    for (size_t i = 0; i < results.size(); ++i) layouts[static_cast<size_t>(node.outputs[i])] = results[i];
  }
  for (const Output& output : graph.outputs()) {
    out.outputs.push_back(
        output.updates == kNoValue
            ? as_input(random_layout(graph.type(output.value).shape, mesh, draw, Parts::kUneven), mesh, Role::kState)
            : layouts[static_cast<size_t>(output.updates)]);
  }
  return out;
}

OptimizerParallel random_optimizer_parallel(const Mesh& mesh, Draw& draw) {
  OptimizerParallel out;
  out.level = static_cast<int>(draw.below(4));
  out.threshold_kb = 0;
  out.shard_size = draw.chance(50) ? -1 : 1 + draw.below(without_micro_batches(mesh).devices());
  return out;
}

Strategy from_random_asks(const Graph& graph, const Mesh& mesh, Draw& draw, const Bits& bits) {
  Asks asks;
  asks.sums_flow = bits.numerics == Numerics::kFast;
  for (const Input& input : graph.inputs()) {
    const Layout layout =
        as_input(random_layout(graph.type(input.value).shape, mesh, draw, parts_of(input)), mesh, input.role);
    const bool must = micro_batches(mesh) > 1 && input.role != Role::kData;  // its reader may be cut in micro-batches
    asks.inputs.push_back(must || draw.chance(50) ? std::optional(layout) : std::nullopt);
  }
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const Node& node = graph.nodes()[i];
    if (!draw.chance(20)) continue;
    const std::vector<Layout> unknown(node.inputs.size());
    asks.nodes[static_cast<NodeId>(i)] = random_cuts({graph, node, mesh, bits}, unknown, draw);
  }
  for (size_t id = 0; id < graph.values().size(); ++id) {
    if (!draw.chance(10)) continue;
    asks.seen_as[static_cast<ValueId>(id)] = random_layout(graph.values()[id].type->shape, mesh, draw, Parts::kUneven);
  }
  const Strategy plain = propagate(graph, mesh, asks);
  for (size_t i = 0; i < plain.inputs.size(); ++i) asks.inputs[i] = plain.inputs[i];
  ask_optimizer_parallel(graph, plain, random_optimizer_parallel(mesh, draw), asks);
  return propagate(graph, mesh, std::move(asks));
}

// The layout with entries for dimensions that some input has: others are refused.
std::string with_entries_of(const Graph& graph, const std::string& layout) {
  if (!layout.starts_with('[')) return layout;
  int most = 0;
  for (const Input& input : graph.inputs())
    if (input.role == Role::kData) most = std::max(most, graph.type(input.value).shape.rank());
  size_t end = 0;
  for (int dim = 0; dim < most && end != std::string::npos; ++dim) end = layout.find_first_of(",]", end + 1);
  if (most == 0) return "full_batch";
  return end == std::string::npos ? layout : layout.substr(0, end) + "]";
}

// A layout for the leading dimensions of every input, or numbers of parts of each.
std::string random_dataset(const Graph& graph, const Mesh& mesh, Draw& draw) {
  static const std::vector<std::string> kDatasets{"data_parallel", "full_batch", "[dp]", "[-, dp]", "[-, -, dp]"};
  if (mesh.axes() == 0) return "full_batch";
  if (draw.chance(60)) return with_entries_of(graph, draw.of(kDatasets));
  std::string out;
  for (const Input& input : graph.inputs()) {
    if (input.role != Role::kData) continue;
    const Layout layout = random_layout(graph.type(input.value).shape, mesh, draw);
    std::string numbers;
    for (int dim = 0; dim < layout.rank(); ++dim)
      numbers += fmt::format("{}{}", dim > 0 ? "," : "", layout.cuts(dim, mesh));
    out += fmt::format("{}{{{}}}", out.empty() ? "" : ",", numbers);
  }
  return "{" + out + "}";
}

// Layouts of the operands of some ops, the first of their name in their part of the graph.
std::vector<OpRule> random_rules(const Graph& graph, const Mesh& mesh, Draw& draw, const Bits& bits) {
  std::vector<OpRule> out;
  for (const Node& node : graph.nodes()) {
    const std::string_view scope = graph.scope_of(node);
    if (node.phase != Phase::kForward || node.inputs.empty() || !scope.starts_with("part") || !draw.chance(20))
      continue;
    const std::string pattern = fmt::format("{}/{}", scope, node.op->name);
    const auto first = std::find_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& other) {
      return graph.scope_of(other) == scope && other.op == node.op && other.phase == Phase::kForward;
    });
    const Op op{graph, *first, mesh, bits};
    const std::vector<Layout> unknown(first->inputs.size());
    std::string cuts;
    for (const Layout& layout : operand_layouts(op.rule, random_cuts(op, unknown, draw))) {
      cuts += fmt::format("{}{}", cuts.empty() ? "" : ", ", to_string(layout, mesh));
    }
    out.push_back({pattern, cuts});
  }
  return out;
}

// As configuration says it. Batches that the dataset's cut does not divide are refused, so every rank then has all of
// it; so are rules that ask for one parameter in two layouts, which are then left out.
Strategy from_configuration(const Graph& graph, const Mesh& all, Draw& draw, Numerics numerics) {
  const Mesh mesh = without_micro_batches(all);
  Parallel parallel{.mesh = to_string(mesh),
                    .accumulation = micro_batches(all),
                    .dataset = random_dataset(graph, mesh, draw),
                    .ops = random_rules(graph, mesh, draw, {.numerics = numerics}),
                    .optimizer = random_optimizer_parallel(mesh, draw)};
  for (const Input& input : graph.inputs()) {
    if (input.role != Role::kParameter || !draw.chance(40)) continue;
    const Layout layout = random_layout(graph.type(input.value).shape, mesh, draw, Parts::kUneven);
    parallel.parameters.push_back({input.name, to_string(layout, mesh)});
  }
  for (int attempt = 0; attempt < 4; ++attempt) {
    try {
      return semi_auto(graph, mesh.devices(), parallel, {.numerics = numerics});
    } catch (const Error& e) {
      const auto says = [&](std::string_view words) { return e.text().find(words) != std::string::npos; };
      if (e.kind() != ErrorKind::kInvalidArgument) throw;
      if (says("asked for in two layouts")) {
        parallel.ops.clear();
      } else if (parallel.accumulation > 1 && (says("micro-batches") || says("is a scalar"))) {
        parallel.accumulation = 1;
      } else if (says("batch") || says("data input")) {
        parallel.dataset = "full_batch";
      } else {
        throw;
      }
    }
  }
  return semi_auto(graph, mesh.devices(), parallel, {.numerics = numerics});
}

}  // namespace

Strategy random_strategy(const Graph& graph, Draw& draw, Numerics numerics) {
  const Mesh mesh = random_mesh(draw);
  switch (draw.below(4)) {
    case 0:
      return from_configuration(graph, mesh, draw, numerics);
    case 1:
      return from_random_asks(graph, mesh, draw, random_bits(numerics, mesh, draw));
    default:
      return anything_legal(graph, mesh, draw, random_bits(numerics, mesh, draw));
  }
}

Strategy random_strategy_of_text(const Graph& graph, Draw& draw, const PipelineParallel& pipeline,
                                 int64_t micro_batches, const ScopeStages& stages) {
  // A mesh, and a cut of the batch over it.
  static const std::vector<std::pair<std::string, std::string>> kCuts{
      {"", "full_batch"},  {"dp=2", "[dp]"},      {"dp=2", "full_batch"},    {"tp=2", "full_batch"},
      {"tp=2", "[-, tp]"}, {"dp=2,tp=2", "[dp]"}, {"dp=2,tp=2", "[dp, tp]"}, {"tp=2", "data_parallel"}};
  const auto& [mesh_text, dataset] = draw.of(kCuts);
  const Mesh mesh = parse_mesh(mesh_text);
  require(mesh.devices() * pipeline.crews <= 8, "more than 8 ranks");
  Parallel parallel{.mesh = to_string(mesh),
                    .accumulation = micro_batches,
                    .dataset = with_entries_of(graph, dataset),
                    .optimizer = random_optimizer_parallel(mesh, draw),
                    .pipeline = pipeline};
  if (draw.chance(50)) parallel.ops = random_rules(graph, mesh, draw, {});
  return semi_auto(graph, mesh.devices(), parallel, {.stages = stages});
}

}  // namespace trireme::equivalence
