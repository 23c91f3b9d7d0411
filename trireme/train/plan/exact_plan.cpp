#include "trireme/train/plan/exact_plan.h"

#include <algorithm>
#include <map>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/planner/outer/pipeline_shape.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/report/utilisation.h"

namespace trireme {
namespace {

// Tables of ways, from prices of parts.
class WayTables {
 public:
  WayTables(PartPricer& pricer, int64_t layers) : pricer_(pricer), layers_(layers) {}

  std::optional<StageProblem> problem_of(const OuterWay& way) {
    const std::optional<PartPrices>& prices = pricer_.prices(way.inner);
    if (!prices) return std::nullopt;
    return problem_with(way, *prices);
  }

  // From passes alone; what is done once a step, and what crosses, may take nothing.
  std::optional<int64_t> bound_of(const OuterWay& way, bool with_again) {
    const std::optional<PartPrices>& prices = pricer_.passes_alone(way.inner, with_again);
    if (!prices) return std::nullopt;
    StageProblem problem = problem_with(way, *prices);
    problem.crossing = 0;
    for (PartPrice& part : problem.parts) part.update = part.sync = 0;
    return bound_of_cuts(problem) - way.pp;  // rounding
  }

 private:
  StageProblem problem_with(const OuterWay& way, const PartPrices& prices) {
    StageProblem out{
        .shape = shape(way.schedule, way.pp), .micro_batches = way.micro_batches, .crossing = prices.crossing};
    out.parts.push_back(prices.before);
    out.parts.insert(out.parts.end(), static_cast<size_t>(layers_), prices.block);
    out.parts.push_back(prices.after);
    return out;
  }

  const PipelineShape& shape(const std::string& schedule, int64_t pp) {
    const auto found = shapes_.find({schedule, pp});
    if (found != shapes_.end()) return found->second;
    return shapes_.emplace(std::pair(schedule, pp), shape_of_schedule(schedule, pp)).first->second;
  }

  PartPricer& pricer_;
  int64_t layers_;
  std::map<std::pair<std::string, int64_t>, PipelineShape> shapes_;
};

StepFigures figures_of(const Graph& step, const JobConfig& job, ExactPlan& plan, int64_t ranks) {
  StepFigures out;
  for (const Input& input : step.inputs()) {
    if (input.role == Role::kParameter) out.parameter_bytes += step.type(input.value).bytes();
    if (input.role == Role::kState) out.state_bytes += step.type(input.value).bytes();
  }
  plan.flops = flops_of(step);
  const Machine& machine = plan.machine;
  const std::string compute(to_string(job.train.step.compute));
  plan.peak_flops_per_s = machine.flops_of(compute) * static_cast<double>(ranks);
  double achievable = machine.achievable;
  for (const OpRate& rate : machine.op_rates) achievable = std::max(achievable, rate.achievable);
  const double fastest = std::max(machine.flops_of("f32"), machine.flops_of(compute));
  out.arithmetic_s = plan.flops / (fastest * achievable * static_cast<double>(ranks));
  return out;
}

int64_t positions_of(const JobConfig& job) {
  return predicts_classes(job) ? 1 : fields_of(job)[0].sample.elements();
}

}  // namespace

std::vector<std::string> ExactWay::keys(const ModelParts& parts) const {
  std::vector<std::string> out = outer.way().keys();
  out.push_back(parts.stages_key(begins));
  return out;
}

ExactPlan plan_exact(const PlanRequest& request) {
  require(request.ranks >= 1, "plan: {} ranks; it must be 1 or more", request.ranks);
  const JobConfig job = without_cuts(request.job);
  const auto model = make_model(job);
  const Assembly assembly = assembly_of(job, *model, 1);
  const Graph step = graphs_of(assembly, 1).step;
  ExactPlan out{.graph = hash_of_graph(step), .parts = parts_of(step)};
  const Communication& how = assembly.options.parallel.communication;
  out.machine = how.machine ? *how.machine : how.measured ? *how.measured : Machine::this_host();
  const int64_t of_device = make_device(assembly.options.device)->memory_bytes();
  out.memory_bytes = request.memory_bytes > 0 ? request.memory_bytes
                     : of_device > 0          ? of_device
                                              : out.machine.memory_bytes * out.machine.devices_per_host / request.ranks;
  const StepFigures figures = figures_of(step, job, out, request.ranks);
  out.bound_ps = static_cast<int64_t>(figures.arithmetic_s * 1e12);

  const std::vector<OuterWay> ways =
      outer_ways(model_of(job).cuttable(), request.ranks, job.train.fit.batch, positions_of(job), out.parts.count());
  std::vector<OuterCandidate> candidates;
  for (const OuterWay& way : ways) candidates.push_back(candidate_of(way, request.ranks, figures));
  PartPricer pricer(job, out.parts, request.threads);
  WayTables tables(pricer, out.parts.layers);
  const OuterQuestions ask{.bounds = {[&](size_t i) { return tables.bound_of(ways[i], false); },
                                      [&](size_t i) { return tables.bound_of(ways[i], true); }},
                           .problem = [&](size_t i) { return tables.problem_of(ways[i]); }};
  OuterResult found = search_outer(candidates, out.memory_bytes, request.top, ask);
  out.ledger = found.ledger;
  for (SolvedWay& each : found.best) {
    StageProblem problem = *tables.problem_of(ways[each.candidate]);
    problem.memory = out.memory_bytes;
    std::vector<int64_t> bytes = bytes_of_stages(problem, each.begins);
    out.best.push_back(
        {ways[each.candidate], std::move(each.begins), each.price, std::move(bytes), std::move(problem)});
  }
  out.jobs_compiled = pricer.jobs_compiled();
  out.first_refusal = pricer.refusal();
  return out;
}

PlanFile plan_file(const ExactPlan& plan, int64_t ranks) {
  require(!plan.best.empty(), "plan: nothing fits, so that there is no plan to write");
  const ExactWay& best = plan.best.front();
  const OuterLedger& l = plan.ledger;
  const double step_s = static_cast<double>(best.price.total) * 1e-12;
  return {.ranks = ranks,
          .machine = plan.machine.name,
          .graph = plan.graph,
          .keys = best.keys(plan.parts),
          .step_s = step_s,
          .arena_bytes = std::ranges::max(best.stage_bytes),
          .bound_s = step_s,
          .ledger = {.ways = l.ways,
                     .do_not_divide = l.do_not_divide,
                     .memory_least = l.memory_least,
                     .needless = l.bound + l.slower,
                     .memory = l.memory,
                     .fit = l.solved}};
}

}  // namespace trireme
