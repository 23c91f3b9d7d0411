#include "trireme/planner/strategy_problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "trireme/base/error.h"
#include "trireme/planner/candidates.h"

namespace trireme {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 20;  // of the table of one value

bool can_become(const Layout& have, const Layout& want) {
  return std::all_of(want.partial.begin(), want.partial.end(), [&](const PartialAxis& p) {
    return std::find(have.partial.begin(), have.partial.end(), p) != have.partial.end();
  });
}

std::string key_of(const ValueReader& reader, const Mesh& mesh) {
  std::string out = fmt::format("{}/{}/{}", to_string(reader.layout, mesh), to_string(reader.phase), reader.stage);
  for (const WindowAttrs& attrs : reader.windows) out += "/" + Attrs::of(attrs).text();
  return out;
}

}  // namespace

StrategyProblem::StrategyProblem(const Graph& graph, const Strategy& base, const std::vector<int>& axes,
                                 const PartitionOptions& options, const CostModel& model)
    : graph_(graph),
      base_(base),
      model_(model),
      pricer_(graph, options, model),
      made_(graph.values().size(), -1),
      made_as_(graph.values().size()),
      askers_(graph.values().size()) {
  add_inputs(axes);
  for (size_t i = 0; i < graph.nodes().size(); ++i) add_node(static_cast<NodeId>(i), axes);
  add_outputs();
  for (size_t v = 0; v < graph.values().size(); ++v) add_value(static_cast<ValueId>(v));
  check(problem_);
}

// A variable whose labels are the distinct ones of these layouts.
int StrategyProblem::add_layouts(const std::vector<Layout>& layouts, std::vector<int32_t>& label_of,
                                 std::vector<Layout>& labels) {
  for (const Layout& layout : layouts) {
    const auto at = std::find(labels.begin(), labels.end(), layout) - labels.begin();
    if (static_cast<size_t>(at) == labels.size()) labels.push_back(layout);
    label_of.push_back(static_cast<int32_t>(at));
  }
  return problem_.add_variable(static_cast<int>(labels.size()));
}

void StrategyProblem::add_inputs(const std::vector<int>& axes) {
  for (size_t i = 0; i < graph_.inputs().size(); ++i) {
    const ValueId value = graph_.inputs()[i].value;
    const auto at = static_cast<size_t>(value);
    made_as_[at] = candidates(graph_.type(value).shape, base_.inputs[i], axes, model_.mesh());
    made_[at] = problem_.add_variable(static_cast<int>(made_as_[at].size()));
  }
}

void StrategyProblem::add_node(NodeId id, const std::vector<int>& axes) {
  const Node& node = graph_.node(id);
  const RuleOf rule = rule_of(graph_, node);
  cuts_.push_back(candidates(*rule, base_.nodes[static_cast<size_t>(id)], axes, model_.mesh()));
  std::vector<NodePrice> prices;
  std::vector<std::vector<Layout>> in(node.inputs.size()), out(node.outputs.size());
  for (const FactorCuts& cuts : cuts_.back()) {
    prices.push_back(pricer_.node(id, cuts));
    const std::vector<Layout> asks = operand_layouts(*rule, cuts), gives = result_layouts(*rule, cuts);
    for (size_t k = 0; k < in.size(); ++k) in[k].push_back(asks[k]);
    for (size_t k = 0; k < out.size(); ++k) out[k].push_back(gives[k]);
  }
  std::vector<int> variables;
  std::vector<std::vector<int32_t>> labels;  // of each of them, by candidate
  for (size_t k = 0; k < in.size(); ++k) {
    // Readers that see the value through unlike windows ask for it in unlike ways, although it lies alike.
    Asker asker;
    std::vector<std::string> keys;
    std::vector<int32_t>& label_of = labels.emplace_back();
    for (size_t c = 0; c < prices.size(); ++c) {
      ValueReader reader{in[k][c], node.phase};
      for (const auto& [operand, attrs] : prices[c].windows) {
        if (operand == k) reader.windows.push_back(attrs);
      }
      const std::string key = key_of(reader, model_.mesh());
      const auto at = std::find(keys.begin(), keys.end(), key) - keys.begin();
      if (static_cast<size_t>(at) == keys.size()) keys.push_back(key), asker.labels.push_back(std::move(reader));
      label_of.push_back(static_cast<int32_t>(at));
    }
    asker.variable = problem_.add_variable(static_cast<int>(asker.labels.size()));
    variables.push_back(asker.variable);
    askers_[static_cast<size_t>(node.inputs[k])].push_back(std::move(asker));
  }
  for (size_t k = 0; k < out.size(); ++k) {
    const auto value = static_cast<size_t>(node.outputs[k]);
    made_[value] = add_layouts(out[k], labels.emplace_back(), made_as_[value]);
    variables.push_back(made_[value]);
  }
  node_table_.push_back(problem_.tables.size());
  search::Table& table = problem_.add_table(variables);
  row_candidate_.emplace_back();
  std::vector<int32_t> row(variables.size());
  for (size_t c = 0; c < prices.size(); ++c) {
    for (size_t i = 0; i < row.size(); ++i) row[i] = labels[i][c];
    table.add(row, {prices[c].ps, 0});
    row_candidate_.back().push_back(static_cast<int32_t>(c));
  }
}

// An output that updates an input gets its layout, others are replicated.
void StrategyProblem::add_outputs() {
  for (const Output& output : graph_.outputs()) {
    Asker asker;
    if (output.updates == kNoValue) {
      asker.labels.push_back({Layout::replicated(graph_.type(output.value).shape.rank()), Phase::kUpdate});
    } else {
      const auto updated = static_cast<size_t>(output.updates);
      asker.variable = made_[updated];
      for (const Layout& layout : made_as_[updated]) asker.labels.push_back({layout, Phase::kUpdate});
    }
    askers_[static_cast<size_t>(output.value)].push_back(std::move(asker));
  }
}

void StrategyProblem::add_value(ValueId id) {
  const auto at = static_cast<size_t>(id);
  const std::vector<Asker>& askers = askers_[at];
  std::vector<int> variables{made_[at]};
  std::vector<int> sizes{static_cast<int>(made_as_[at].size())};
  for (const Asker& asker : askers) {
    const bool is_new = std::find(variables.begin(), variables.end(), asker.variable) == variables.end();
    if (asker.variable < 0 || !is_new) continue;
    variables.push_back(asker.variable);
    sizes.push_back(static_cast<int>(asker.labels.size()));
  }
  double rows = 1;
  for (const int size : sizes) rows *= size;
  if (rows > static_cast<double>(kMostRows)) {
    fail(ErrorKind::kUnsupported,
         "%{} of graph '{}' can be made and asked for by its {} readers in {:.0f} ways; at most {} are searched. Give "
         "fewer axes at a time, or cut the ops around it by rules",
         id, graph_.name(), askers.size(), rows, kMostRows);
  }
  search::Table& table = problem_.add_table(variables);
  std::vector<int32_t> labels(variables.size(), 0);
  const auto label_of = [&](int variable) {
    return static_cast<size_t>(
        labels[static_cast<size_t>(std::find(variables.begin(), variables.end(), variable) - variables.begin())]);
  };
  for (;;) {
    const Layout& have = made_as_[at][static_cast<size_t>(labels[0])];
    std::vector<ValueReader> readers;
    bool goes = true;
    for (const Asker& asker : askers) {
      readers.push_back(asker.labels[asker.variable < 0 ? 0 : label_of(asker.variable)]);
      goes = goes && can_become(have, readers.back().layout);
    }
    if (goes) table.add(labels, {delivery_ps(id, have, readers), kept_bytes(id, have)});
    size_t i = 0;
    while (i < sizes.size() && ++labels[i] == sizes[i]) labels[i++] = 0;
    if (i == sizes.size()) break;
  }
}

// Alike values of alike readers are priced once.
int64_t StrategyProblem::delivery_ps(ValueId id, const Layout& have, const std::vector<ValueReader>& readers) {
  const bool is_input = graph_.value(id).producer < 0;
  std::string key = fmt::format("{} {} {} {}", to_string(graph_.type(id)), to_string(have, model_.mesh()), is_input,
                                to_string(pricer_.sums_of(id)));
  std::set<std::string> asked;
  for (const ValueReader& reader : readers) {
    std::string one = key_of(reader, model_.mesh());
    if (asked.insert(one).second) key += "|" + one;
  }
  const auto [known, is_new] = delivered_.try_emplace(std::move(key), 0);
  if (is_new) known->second = pricer_.value(id, have, readers);
  return known->second;
}

// What a rank holds from step to step, or from the forward to the backward pass.
int64_t StrategyProblem::kept_bytes(ValueId id, const Layout& have) const {
  const TensorType& type = graph_.type(id);
  const NodeId producer = graph_.value(id).producer;
  const auto reads_back = [](const Asker& asker) { return asker.labels.front().phase == Phase::kBackward; };
  const std::vector<Asker>& askers = askers_[static_cast<size_t>(id)];
  const bool is_kept = producer < 0 || (graph_.node(producer).phase == Phase::kForward &&
                                        std::any_of(askers.begin(), askers.end(), reads_back));
  if (!is_kept) return 0;
  return TensorType{type.dtype, local_shape(type.shape, have, model_.mesh())}.bytes();
}

Strategy StrategyProblem::strategy(const search::Choice& choice) const {
  Strategy out;
  out.mesh = model_.mesh();
  const auto layout_of = [&](ValueId id) -> const Layout& {
    const auto at = static_cast<size_t>(id);
    return made_as_[at][static_cast<size_t>(choice.labels[static_cast<size_t>(made_[at])])];
  };
  for (const Input& input : graph_.inputs()) out.inputs.push_back(layout_of(input.value));
  for (size_t i = 0; i < graph_.nodes().size(); ++i) {
    const auto row = static_cast<size_t>(choice.rows[node_table_[i]]);
    out.nodes.push_back(cuts_[i][static_cast<size_t>(row_candidate_[i][row])]);
  }
  for (const Output& output : graph_.outputs()) {
    out.outputs.push_back(output.updates == kNoValue ? Layout::replicated(graph_.type(output.value).shape.rank())
                                                     : layout_of(output.updates));
  }
  return out;
}

}  // namespace trireme
