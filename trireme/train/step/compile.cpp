#include "trireme/train/step/compile.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/exec/soundness.h"
#include "trireme/op/build.h"
#include "trireme/partition/by_hand.h"
#include "trireme/partition/micro_batches.h"
#include "trireme/partition/partition.h"
#include "trireme/train/step/invariant.h"

namespace trireme {

namespace {

// What says how the compiler cuts a model, or moves what it cuts, has no effect on one that its own code cuts.
void check_by_hand(const CompileOptions& options) {
  const Parallel& p = options.parallel;
  require(
      options.numerics == Numerics::kFast,
      "numerics = 'invariant' is not for models cut by hand, whose collectives are their own; use numerics = 'fast'");
  require(
      p.accumulation == 1,
      "{} micro-batches a step: a model that is cut by hand takes its batch in one; use 1, or let the compiler cut it",
      p.accumulation);
  const Communication usual;
  const std::pair<bool, std::string> given[] = {
      {p.optimizer.level != 0, fmt::format("optimizer parallelism of level {} (zero)", p.optimizer.level)},
      {!p.strategy.empty(), "a strategy"},
      {!p.ops.empty(), p.ops.empty() ? "" : fmt::format("the rule for ops '{}'", p.ops.front().pattern)},
      {!p.parameters.empty(),
       p.parameters.empty() ? "" : fmt::format("the rule for parameters '{}'", p.parameters.front().pattern)},
      {p.communication.all_to_all != usual.all_to_all, "enable_alltoall = false"},
      {p.communication.gradients_in_f32 != usual.gradients_in_f32, "gradient_fp32_sync = false"},
      {p.communication.all_in_f32 != usual.all_in_f32, "force_fp32_communication"}};
  for (const auto& [is_given, what] : given) {
    require(!is_given,
            "{} is for what the compiler cuts; this model is cut by hand (mode hybrid_parallel, or layerwise "
            "parameters); leave it out",
            what);
  }
}

}  // namespace

Compiled compile(Graph graph, const CompileOptions& options) {
  const std::vector<std::string> wrong = verify(graph);
  invariant(wrong.empty(), "graph '{}': {}", graph.name(), wrong.empty() ? "" : wrong.front());
  Compiled out;
  out.graph = std::move(graph);
  const Communication& how = options.parallel.communication;
  if (options.parallel.by_hand) {
    check_by_hand(options);
    out.strategy = semi_auto(out.graph, options.ranks,
                             {.mesh = options.parallel.mesh, .dataset = "full_batch", .follow_requests = false});
    out.partitioned = by_hand(out.graph, out.strategy);
  } else {
    out.strategy =
        semi_auto(out.graph, options.ranks, options.parallel, {.stored = options.stored, .numerics = options.numerics});
    out.partitioned =
        partition(out.graph, out.strategy,
                  {.costs = reshard_costs(how, out.strategy.mesh), .sum_types = sum_types(out.graph, how)});
  }
  const bool in_tree = options.numerics == Numerics::kInvariant;
  PassOptions passes = options.passes;
  if (in_tree) {
    require(passes.loss_pieces == 1,
            "numerics = 'invariant' sums in an order of its own, loss_pieces = {} in pieces; leave one out",
            passes.loss_pieces);
    require_invariant(out.graph, out.strategy);
    require_invariant(out.partitioned);
  }
  if (!how.machine) out.measured = how.measured;
  if (!how.machine && !out.measured && options.measure) out.measured = options.measure(out.strategy.mesh);
  const Communication by_rates{.machine = out.measured ? out.measured : how.machine};
  out.rates = {reshard_costs(by_rates, out.strategy.mesh), by_rates.machine};
  passes.all_reduce = {.bucket_bytes = how.bucket_bytes, .bucket_ends = how.bucket_ends, .rates = out.rates};
  if (!how.fuse_all_reduce) passes.disabled.emplace_back("fuse_all_reduce");
  out.program = run_passes(in_micro_batches(out.partitioned, {.sums_in_tree = in_tree}), passes);
  out.plan = plan_execution(
      out.program,
      {.threads = options.threads, .numerics = options.numerics, .external_parameters = options.external_parameters});
  std::vector<std::string> unsound = verify(out.plan);
  if (unsound.empty()) unsound = check_communication(out.plan);
  invariant(unsound.empty(), "plan '{}': {}", out.plan.name, unsound.empty() ? "" : unsound.front());
  return out;
}

Compiled compile_beside(const Compiled& step, Graph graph, const CompileOptions& options) {
  CompileOptions how = options;
  how.external_parameters = true;
  how.measure = {};  // all of a job goes by the same
  how.parallel.communication.measured = step.measured;
  if (!how.parallel.strategy.empty()) how.parallel.mesh = to_string(step.strategy.mesh);  // the file brings its own
  std::map<std::string, Layout> stored;
  for (const PlanInput& input : step.plan.inputs) {
    const bool is_kept = input.role == Role::kParameter || input.role == Role::kState;
    const bool is_batch =
        input.role == Role::kData && !how.parallel.strategy.empty();  // the file says how it is cut, too
    if (!is_kept && !is_batch) continue;
    stored.emplace(input.name, step.plan.values[static_cast<size_t>(input.value)].layout);
  }
  how.stored = &stored;
  return compile(std::move(graph), how);
}

CompiledJob compile(Graph step, std::optional<Graph> evaluation, const CompileOptions& options) {
  CompiledJob out{compile(std::move(step), options), std::nullopt};
  if (!evaluation) return out;
  out.evaluation = compile_beside(out.step, std::move(*evaluation), options);
  ExecutionPlan& plan = out.step.plan;
  plan.arena().bytes = std::max(plan.arena().bytes, plan.arena().persistent + out.evaluation->plan.arena().bytes);
  return out;
}

}  // namespace trireme
