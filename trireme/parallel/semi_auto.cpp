// semi_auto (parallel.h): what is asked of a graph, put in terms of its values and nodes, and propagated.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/base/words.h"
#include "trireme/op/op_def.h"
#include "trireme/op/rank_groups.h"
#include "trireme/op/structural.h"
#include "trireme/parallel/asked/op_names.h"
#include "trireme/parallel/batch_in_parts.h"
#include "trireme/parallel/batch_layouts.h"
#include "trireme/parallel/parallel.h"
#include "trireme/parallel/propagate/op_attributes.h"
#include "trireme/parallel/propagate/op_cuts.h"
#include "trireme/parallel/searched_in_parts.h"
#include "trireme/parallel/strategy_reuse.h"

namespace trireme {
namespace {

// Who asked for a parameter's layout.
struct Asked {
  Layout layout;
  std::string who;
  bool stored = false;  // a rule for the parameter itself: ops may read it in other layouts
};

class SemiAuto {
 public:
  SemiAuto(const Graph& graph, int64_t ranks, const Parallel& parallel, const SemiAutoOptions& options)
      : graph_(graph),
        parallel_(parallel),
        options_(options),
        stored_(options.stored),
        occurrences_(occurrences_of(graph)),
        forward_(forward_ops_by_scope(graph)),
        mesh_(mesh_of_ranks(parallel, ranks)),
        all_(with_micro_batches(mesh_, micro_batches_of(parallel) * parts_of_micro_batch(parallel),
                                seq_chunks_of(parallel))),
        copies_(parallel.mesh.copies()) {
    asks_.inputs.resize(graph.inputs().size());
    asks_.sums_flow = options.numerics == Numerics::kFast;
    asks_.says_why = options.says_why;
    asks_.across_stages = nodes_across_stages(graph, options.stages);
  }

  Strategy run() {
    for (const Node& node : graph_.nodes()) check_collective(node);
    ask_data();
    for (const LayoutRule& rule : parallel_.parameters) ask_parameters(rule);
    for (const ShardRequest& request : graph_.shard_requests()) {
      // One rank cuts nothing, and its mesh need not have the axes.
      if (mesh_.devices() == 1 || !parallel_.follow_requests) break;
      OpPattern scope;
      scope.scope = request.scope;
      ask_op(scope, request.cuts, fmt::format("shard() of '{}'", request.scope));
    }
    for (const OpRule& rule : parallel_.ops) ask_ops(rule);
    settle_asks();
    if (asks_.sums_flow || !options_.decide) find_axes_within();  // a search for bits takes no such order
    const bool in_parts = micro_batches(all_) > 1;
    std::optional<Strategy> found;
    if (options_.decide) found = options_.decide(graph_, mesh_, asks_);
    if (found && in_parts)
      ask_found(graph_, *found, cut_by_micro_batches(graph_, parallel_), parallel_.optimizer.level == 0, asks_);
    BatchInParts(graph_, parallel_, all_).ask(asks_);
    Strategy plain = found && !in_parts ? *found : propagate(graph_, all_, asks_);
    if (found && in_parts) tell_who_found(*found, plain);
    tell_who_asked(plain);
    if (parallel_.optimizer.level == 0 && stored_ == nullptr) return plain;
    if (found && !in_parts) keep_decided(plain);
    for (size_t i = 0; i < plain.inputs.size(); ++i) asks_.inputs[i] = plain.inputs[i];
    if (stored_ != nullptr) {
      use_stored();
    } else {
      ask_optimizer_parallel(graph_, plain, parallel_.optimizer, asks_);
    }
    Strategy out = propagate(graph_, all_, asks_);
    tell_who_asked(out);
    for (size_t i = 0; i < out.inputs.size() && options_.says_why; ++i) {
      out.why_inputs[i] =
          out.inputs[i] == plain.inputs[i]
              ? plain.why_inputs[i]
              : fmt::format("sliced by optimizer parallelism of level {}; read as {}: {}", parallel_.optimizer.level,
                            to_string(plain.inputs[i], all_), plain.why_inputs[i]);
    }
    return out;
  }

 private:
  // Whether the results are of the operands' types: a rank that takes no part can go on with what it has.
  bool keeps_types(const Node& node) const {
    return std::equal(node.inputs.begin(), node.inputs.end(), node.outputs.begin(), node.outputs.end(),
                      [&](ValueId in, ValueId out) { return graph_.type(in) == graph_.type(out); });
  }

  // A collective in the model's own code must fit the mesh.
  void check_collective(const Node& node) const {
    if (!def_of(node).collective) return;
    const RankGroups groups = groups_of(node);
    const std::string wrong = groups.why_not(mesh_);
    require(wrong.empty(), "{} of '{}' {}", node.op->name, graph_.scope_of(node), wrong);
    if (keeps_types(node) || groups.ranks.empty() || static_cast<int64_t>(groups.ranks.size()) == mesh_.devices())
      return;
    int64_t outside = 0;
    while (std::find(groups.ranks.begin(), groups.ranks.end(), outside) != groups.ranks.end()) ++outside;
    fail(ErrorKind::kInvalidArgument,
         "{} of '{}' is over {}, and rank {} is in none of its groups; its result has another shape than its operand, "
         "so every rank of the {} must be in a group: list them all",
         node.op->name, graph_.scope_of(node), groups.text(mesh_), outside, mesh_.devices());
  }

  void ask_data() {
    const BatchLayouts layouts(graph_, parallel_, mesh_);
    if (stored_ == nullptr) layouts.check_rules();  // a graph beside a step's need not have all fields
    size_t index = 0;
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const Input& input = graph_.inputs()[i];
      if (input.role == Role::kSchedule) asks_.inputs[i] = Layout::replicated(graph_.type(input.value).shape.rank());
      if (input.role != Role::kData) continue;
      const bool is_stored = stored_ != nullptr && stored_->contains(input.name);
      if (is_stored || !is_found_by_search() || layouts.is_asked(input))
        asks_.inputs[i] = is_stored ? stored_data(input) : layouts.of(input, index);
      ++index;
    }
  }

  // How a batch lies of which nobody says it.
  bool is_found_by_search() const { return options_.decide && !goes_on_from_batch(parallel_.search); }

  // What was decided stays, but for the updates.
  void keep_decided(const Strategy& plain) {
    for (size_t i = 0; i < plain.nodes.size(); ++i) {
      if (graph_.nodes()[i].phase != Phase::kUpdate) asks_.nodes.emplace(static_cast<NodeId>(i), plain.nodes[i]);
    }
  }

  // As the training step has the batch.
  Layout stored_data(const Input& input) const {
    const Layout& layout = stored_->at(input.name);
    check(layout, graph_.type(input.value).shape, mesh_,
          fmt::format("data input '{}' cut as in the training step", input.name));
    return layout;
  }

  void ask_parameters(const LayoutRule& rule) {
    std::vector<std::string> names;
    bool any = false;
    for (const Input& input : graph_.inputs()) {
      if (input.role != Role::kParameter) continue;
      names.push_back(input.name);
      if (!matches(rule.pattern, input.name)) continue;
      any = true;
      const Shape& shape = graph_.type(input.value).shape;
      Layout layout = rule.layout.on(mesh_);
      check(layout, shape, mesh_, fmt::format("parameter '{}'", input.name), parts_of(input));
      require(!layout.is_partial(), "parameter '{}' is asked for as a partial sum ({}); a parameter can be cut only",
              input.name, to_string(rule.layout));
      parameters_[input.value] = {std::move(layout), fmt::format("parameter rule '{}'", rule.pattern), true};
    }
    require(any, "parameter rule '{}' matches no parameter.{}", rule.pattern, suggestion(rule.pattern, names));
  }

  // "<scope>", "<scope>/<op>" or "<scope>/<op>#<k>", with patterns in the scope. The graph of an evaluation has not all
  // ops of the training step, which the rules are for.
  void ask_ops(const OpRule& rule) {
    const OpPattern& pattern = rule.pattern;
    std::vector<std::string_view> matched;
    for (const OpsOfScope& each : forward_) {
      if (pattern.scope.names(each.scope)) matched.push_back(each.scope);
    }
    const auto* attribute = std::get_if<OpAttribute>(&rule.asked.what);
    const std::string name_of_rule = to_string(pattern);
    require(attribute == nullptr || !pattern.op.empty(),
            "rule '{} = {}': an attribute is for ops; name them after a '/', like '{}/reduce_sum'", name_of_rule,
            rule.asked.text, name_of_rule);
    const std::string who = fmt::format("rule '{}'", name_of_rule);
    bool any = false;
    for (const std::string_view name : matched) {
      OpPattern one = pattern;
      one.scope = name;
      any = (attribute != nullptr ? ask_attribute_of(one, *attribute, who)
                                  : ask_op(one, std::get<Cuts>(rule.asked.what), who)) ||
            any;
    }
    if (any || stored_ != nullptr) return;
    std::vector<std::string> scopes;
    for (const OpsOfScope& each : forward_) scopes.emplace_back(each.scope);
    require(!matched.empty(), "rule '{}' matches no part of the model.{}", name_of_rule,
            suggestion(pattern.scope.text(), scopes));
    OpPattern first = pattern;
    first.scope = matched.front();
    fail_without_op(first, attribute == nullptr ? &std::get<Cuts>(rule.asked.what) : nullptr, who);
  }

  // Of all ops of that name in the scope, or of the given one; whether there is one.
  bool ask_attribute_of(const OpPattern& pattern, const OpAttribute& attribute, const std::string& who) {
    bool any = false;
    for (const NodeId id : forward_ops_in(pattern.scope.text())) {
      if (!is_op(pattern, graph_.node(id), occurrence(id))) continue;
      any = true;
      if (mesh_.devices() == 1) continue;
      try {
        ask_attribute(attribute, graph_, id, mesh_, asks_);
      } catch (Error& e) {
        e.note(fmt::format("asked by {}", who));
        throw;
      }
    }
    return any;
  }

  std::span<const NodeId> forward_ops_in(std::string_view scope) const {
    const auto found = std::ranges::find(forward_, scope, &OpsOfScope::scope);
    return found == forward_.end() ? std::span<const NodeId>() : found->ops;
  }
  int occurrence(NodeId id) const { return occurrences_[static_cast<size_t>(id)]; }

  // Of the first op that fits; whether there is one, as there must be in a training step.
  bool ask_op(const OpPattern& pattern, const Cuts& cuts, const std::string& who) {
    const std::vector<int> ranks = trireme::ranks_of(cuts.operands);
    for (const NodeId id : forward_ops_in(pattern.scope.text())) {
      const Node& node = graph_.node(id);
      if (pattern.op.empty() ? ranks_of(node) != ranks : !is_op(pattern, node, occurrence(id))) continue;
      try {
        ops_[id] = {op_cuts(cuts, graph_, node, mesh_, copies_), who};
      } catch (Error& e) {
        e.note(fmt::format("asked by {}", who));
        throw;
      }
      return true;
    }
    if (stored_ == nullptr) fail_without_op(pattern, &cuts, who);
    return false;
  }

  // `cuts`: what the op should be cut by; null where an attribute names it.
  [[noreturn]] void fail_without_op(const OpPattern& pattern, const Cuts* cuts, const std::string& who) const {
    std::vector<std::string> candidates;
    for (const NodeId id : forward_ops_in(pattern.scope.text()))
      candidates.push_back(occurrence_text(graph_.node(id).op->name, occurrence(id)));
    fail(ErrorKind::kInvalidArgument, "{}: '{}' has no op {}; its ops are {}", who, pattern.scope.text(),
         pattern.op.empty()
             ? fmt::format("whose operands have {} dimensions", joined_text(trireme::ranks_of(cuts->operands), ", "))
             : fmt::format("'{}'", occurrence_text(pattern.op, std::max(pattern.occurrence, 0))),
         candidates.empty() ? "none" : quoted_list(candidates));
  }

  std::vector<int> ranks_of(const Node& node) const {
    std::vector<int> out;
    for (const ValueId id : node.inputs) out.push_back(graph_.type(id).shape.rank());
    return out;
  }

  // An op's cuts are also what is asked of the parameters it reads.
  void settle_asks() {
    for (auto& [id, asked] : ops_) {
      const Node& node = graph_.node(id);
      const std::vector<Layout> operands = operand_layouts(*rule_of(graph_, node), asked.op.cuts);
      for (size_t i = 0; i < operands.size(); ++i) ask_operand(node.inputs[i], operands[i], asked.who);
      for (size_t i = 0; i < asked.op.results.size(); ++i) asks_.seen_as[node.outputs[i]] = *asked.op.results[i];
      asks_.nodes[id] = asked.op.cuts;
    }
    for (const auto& [value, asked] : parameters_) {
      asks_.inputs[static_cast<size_t>(graph_.value(value).index)] = asked.layout;
    }
  }

  // Ranks that share a batch and, in some op, a weight: they exchange samples there.
  void find_axes_within() {
    Few<int, 8> of_batch;
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const std::optional<Layout>& asked = asks_.inputs[i];
      if (graph_.inputs()[i].role != Role::kData || !asked || asked->dims.empty()) continue;
      of_batch.append(asked->dims[0].begin(), asked->dims[0].end());
    }
    for (const auto& [value, asked] : parameters_) {
      if (asked.stored) continue;
      std::ranges::copy_if(of_batch, std::back_inserter(asks_.within_micro_batches),
                           [&layout = asked.layout](int axis) { return layout.dim_cut_by(axis) >= 0; });
    }
  }

  // What is asked of a parameter's cast is asked of the parameter.
  void ask_operand(ValueId value, const Layout& layout, const std::string& who) {
    const NodeId producer = graph_.value(value).producer;
    if (producer >= 0 && is_cast(graph_.node(producer)))
      return ask_operand(graph_.node(producer).inputs[0], layout, who);
    const Value& v = graph_.value(value);
    if (v.producer >= 0 || graph_.inputs()[static_cast<size_t>(v.index)].role != Role::kParameter) return;
    const auto [known, is_new] = parameters_.try_emplace(value, Asked{layout, who});
    if (is_new || known->second.stored || known->second.layout == layout) return;
    fail(ErrorKind::kInvalidArgument,
         "parameter '{}' is asked for in two layouts: {} by {}, and {} by {}; a parameter is stored once, so ask for "
         "one layout, or add a rule for the parameter that gives the stored one",
         graph_.inputs()[static_cast<size_t>(v.index)].name, to_string(known->second.layout, mesh_), known->second.who,
         to_string(layout, mesh_), who);
  }

  // Parameters and state that lie in another layout than the graph reads them in are resharded where they are read.
  void use_stored() {
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const Input& input = graph_.inputs()[i];
      const auto found = stored_->find(input.name);
      if (input.role == Role::kData || found == stored_->end() || found->second == *asks_.inputs[i]) continue;
      asks_.seen_as[input.value] = *asks_.inputs[i];
      asks_.inputs[i] = found->second;
    }
  }

  // Of inputs and forward ops; what a gradient follows is said by propagation.
  void tell_who_found(const Strategy& found, Strategy& strategy) const {
    if (!options_.says_why) return;
    if (!found.why_inputs.empty()) strategy.why_inputs = found.why_inputs;
    for (size_t i = 0; i < found.why_nodes.size(); ++i) {
      if (graph_.nodes()[i].phase == Phase::kForward) strategy.why_nodes[i] = found.why_nodes[i];
    }
  }

  void tell_who_asked(Strategy& strategy) const {
    if (!options_.says_why) return;
    for (const auto& [id, asked] : ops_) strategy.why_nodes[static_cast<size_t>(id)] = "asked for by " + asked.who;
    for (const auto& [value, asked] : parameters_) {
      strategy.why_inputs[static_cast<size_t>(graph_.value(value).index)] = "asked for by " + asked.who;
    }
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      if (graph_.inputs()[i].role != Role::kData || !asks_.inputs[i]) continue;
      strategy.why_inputs[i] = BatchLayouts(graph_, parallel_, mesh_).why(graph_.inputs()[i]);
    }
  }

  struct AskedOp {
    OpCuts op;
    std::string who;
  };

  const Graph& graph_;
  const Parallel& parallel_;
  const SemiAutoOptions& options_;
  const std::map<std::string, Layout>* stored_;
  std::vector<int> occurrences_;  // of nodes
  std::vector<OpsOfScope> forward_;
  Mesh mesh_;       // of the ranks, by whose axes everything is asked
  Mesh all_;        // with micro-batches
  int64_t copies_;  // that ops may be computed in on each rank
  Asks asks_;
  std::map<NodeId, AskedOp> ops_;
  std::map<ValueId, Asked> parameters_;
};

template <class Read>
auto for_graph(const Graph& graph, Read&& read) {
  try {
    return read();
  } catch (Error& e) {
    e.note(fmt::format("the strategy is for another model than '{}', or was changed by hand", graph.name()));
    throw;
  }
}

// `ranks`: of each part of a pipeline, as the strategy's mesh is.
void check_ranks(const StrategyFile& file, int64_t ranks, int64_t crews) {
  const Mesh& mesh = file.mesh();
  const int64_t its = without_micro_batches(mesh).devices();
  require(
      crews > 1 || file.lines().stages.empty(),
      "the strategy is for parts of a pipeline of {} each (mesh '{}') and the job has no pipeline; set parallel.pp{}",
      counted(its, "rank"), to_string(mesh),
      ranks > its && ranks % its == 0 ? fmt::format(" = {}", ranks / its) : " to the number of parts");
  if (crews == 1) {
    require(its == ranks, "the strategy is for {} (mesh '{}') but the job has {}; start {}", counted(its, "rank"),
            to_string(mesh), ranks, counted(its, "rank"));
  }
  require(its == ranks,
          "the strategy is for parts of a pipeline of {} each (mesh '{}') but each of the {} parts (parallel.pp) has "
          "{}; start {}",
          counted(its, "rank"), to_string(mesh), crews, ranks, counted(its * crews, "rank"));
}

// With the parameters' layouts that were written down as rules.
Parallel with_parameters(const Parallel& parallel, const Graph& graph, int64_t ranks) {
  const std::map<std::string, Layout> layouts =
      for_graph(graph, [&] { return parameter_layouts(parallel.strategy, graph); });
  const Mesh& mesh = parallel.strategy.mesh();
  check_ranks(parallel.strategy, ranks, parallel.pipeline.crews);
  Parallel out = parallel;
  out.strategy = {};
  out.mesh = mesh;
  for (const auto& [name, layout] : layouts) out.parameters.push_back({name, {layout, mesh}});
  return out;
}

// A strategy that was written down for this graph, or for another one of the model.
Strategy written_strategy(const Parallel& parallel, const Graph& graph, int64_t ranks, const SemiAutoOptions& options) {
  const bool exact = options.stored == nullptr && is_written_for(parallel.strategy, graph);
  if (exact) check_states(parallel.strategy, graph);
  Strategy strategy = exact ? for_graph(graph, [&] { return strategy_for(parallel.strategy, graph); })
                            : reuse_strategy(parallel.strategy, graph, parallel, options);
  if (options.numerics == Numerics::kInvariant && strategy.sums.each) strategy.sums.each = false;  // else other bits
  check_ranks(parallel.strategy, ranks, parallel.pipeline.crews);
  const int64_t count = micro_batches(strategy.mesh), parts = parts_of_micro_batch(parallel);
  require(
      parallel.accumulation == 1 || parallel.accumulation * parts == count,
      "the strategy is for {} micro-batches a step (mesh '{}') but {} are set; leave that out, or use another strategy",
      count, to_string(strategy.mesh), parallel.accumulation * parts);
  require(
      count % parts == 0,
      "the strategy is for {} micro-batches a step (mesh '{}'), which cannot be {} each of {} others (copies that are "
      "interleaved, or chunks of positions); use another strategy, or leave that out",
      count, to_string(strategy.mesh), parts, count / parts);
  if (exact) {
    strategy.why_inputs.assign(graph.inputs().size(), "the strategy file says so");
    strategy.why_nodes.assign(graph.nodes().size(), "the strategy file says so");
  }
  return strategy;
}

}  // namespace

Strategy semi_auto(const Graph& graph, int64_t ranks, const Parallel& parallel, const SemiAutoOptions& options) {
  if (!parallel.strategy.empty() && !parallel.strategy.has_parameters_only())
    return written_strategy(parallel, graph, ranks, options);
  if (!parallel.strategy.empty() && options.stored == nullptr) {
    return semi_auto(graph, ranks, with_parameters(parallel, graph, ranks), options);
  }
  Strategy out = SemiAuto(graph, ranks, parallel, options).run();
  out.sums = sum_order(graph, parallel, out.mesh);
  return out;
}

Strategy data_parallel(const Graph& graph, int64_t ranks) {
  return semi_auto(graph, ranks, {});
}

}  // namespace trireme
