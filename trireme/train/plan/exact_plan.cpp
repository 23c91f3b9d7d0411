#include "trireme/train/plan/exact_plan.h"

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/planner/outer/pipeline_shape.h"

namespace trireme {
namespace {

// Tables of ways, from prices of parts.
class WayTables {
 public:
  WayTables(PartPricer& pricer, int64_t layers) : pricer_(pricer), layers_(layers) {}

  std::optional<StageProblem> problem_of(const OuterWay& way) {
    const std::optional<PartPrices>& prices = pricer_.prices(way.inner);
    add(certified_prices(way.inner, prices), asked_.prices);
    if (!prices) return std::nullopt;
    return problem_with(way, *prices);
  }

  // From passes alone; what is done once a step, and what crosses, may take nothing.
  std::optional<int64_t> bound_of(const OuterWay& way, bool with_again) {
    const std::optional<PartPrices>& prices = pricer_.passes_alone(way.inner, with_again);
    add(certified_passes(way.inner, with_again, prices), asked_.passes);
    if (!prices) return std::nullopt;
    StageProblem problem = problem_with(way, *prices);
    problem.crossing = 0;
    for (PartPrice& part : problem.parts) part.update = part.sync = 0;
    return bound_of_cuts(problem) - way.pp;  // rounding
  }

  const CertifiedTables& asked() const { return asked_; }

 private:
  static void add(CertifiedTable table, std::map<CertifiedCut, CertifiedTable>& to) {
    const CertifiedCut cut = table.cut;
    to.emplace(cut, std::move(table));
  }

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
  CertifiedTables asked_;
  std::map<std::pair<std::string, int64_t>, PipelineShape> shapes_;
};

}  // namespace

std::vector<std::string> ExactWay::keys(const ModelParts& parts) const {
  std::vector<std::string> out = outer.way().keys();
  out.push_back(parts.stages_key(begins));
  return out;
}

ExactPlan plan_exact(const PlanRequest& request) {
  ExactSetting setting = exact_setting(request);
  ExactPlan out{.graph = setting.graph,
                .machine = setting.machine,
                .memory_bytes = setting.memory_bytes,
                .parts = setting.parts,
                .flops = setting.flops,
                .peak_flops_per_s = setting.peak_flops_per_s,
                .bound_ps = setting.figures.arithmetic_ps};
  const std::vector<OuterWay> ways = setting.ways(request.ranks);
  std::vector<OuterCandidate> candidates;
  for (const OuterWay& way : ways) candidates.push_back(candidate_of(way, request.ranks, setting.figures));
  PartPricer pricer(setting.job, out.parts, request.threads);
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
  out.setting = std::move(setting);
  out.asked = tables.asked();
  return out;
}

PlanFile plan_file(const ExactPlan& plan, int64_t ranks, size_t chosen) {
  require(!plan.best.empty(), "plan: nothing fits, so that there is no plan to write");
  const ExactWay& best = plan.best.at(chosen);
  const OuterLedger& l = plan.ledger;
  const double step_s = static_cast<double>(best.price.total) * 1e-12;
  return {.ranks = ranks,
          .machine = plan.machine.name,
          .graph = plan.graph,
          .keys = best.keys(plan.parts),
          .step_s = step_s,
          .arena_bytes = std::ranges::max(best.stage_bytes),
          .bound_s = static_cast<double>(plan.best.front().price.total) * 1e-12,
          .ledger = {.ways = l.ways,
                     .do_not_divide = l.do_not_divide,
                     .memory_least = l.memory_least,
                     .needless = l.bound + l.slower,
                     .memory = l.memory,
                     .fit = l.solved}};
}

}  // namespace trireme
