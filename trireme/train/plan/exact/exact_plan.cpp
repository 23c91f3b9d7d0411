#include "trireme/train/plan/exact/exact_plan.h"

#include <algorithm>

#include "trireme/base/error.h"

namespace trireme {

std::vector<std::string> ExactWay::keys(const ModelParts& parts) const {
  std::vector<std::string> out = outer.way().keys();
  out.push_back(parts.stages_key(begins));
  return out;
}

std::vector<ExactWay> exact_ways(WayTables& tables, const OuterWays& ways, OuterResult found) {
  std::vector<ExactWay> out;
  for (SolvedWay& each : found.best) {
    const OuterWay way = ways.at(each.way);
    StageProblem problem = *tables.problem_of(way);
    std::vector<int64_t> bytes = bytes_of_crews(problem, each.begins);
    std::vector<int64_t> host = bytes_elsewhere(problem, each.begins, Tier::kHost);
    std::vector<int64_t> disk = bytes_elsewhere(problem, each.begins, Tier::kDisk);
    out.push_back({way, std::move(each.begins), each.price, std::move(bytes), std::move(problem), std::move(host),
                   std::move(disk)});
  }
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
  const OuterWays ways = setting.ways(request.ranks);
  WayTables tables(setting, request.threads);
  OuterResult found = tables.search(ways, request.ranks, request.top, request.on_exact, request.most_jobs);
  out.ledger = found.ledger;
  out.is_proven = found.is_proven;
  out.least_ps = found.bound_ps;
  out.best = exact_ways(tables, ways, std::move(found));
  out.jobs_compiled = tables.pricer().jobs_compiled();
  out.first_refusal = tables.pricer().refusal();
  out.refused_joined = tables.refused_joined();
  out.asked = tables.asked();
  if (out.best.empty() && out.is_proven) out.nearest = nearest_fit(tables, setting, ways, request.ranks);
  out.setting = std::move(setting);
  return out;
}

PlanFile plan_file(const ExactPlan& plan, int64_t ranks, size_t chosen) {
  require(!plan.best.empty(), "plan: nothing fits, so there is no plan to write");
  const ExactWay& best = plan.best.at(chosen);
  const OuterLedger& l = plan.ledger;
  return {.ranks = ranks,
          .machine = plan.machine.name,
          .graph = plan.graph,
          .keys = best.keys(plan.parts),
          .step_ps = best.price.total,
          .arena_bytes = std::ranges::max(best.crew_bytes),
          .bound_ps = plan.least_ps,
          .ledger = {.ways = l.ways,
                     .do_not_divide = l.do_not_divide,
                     .memory_least = l.memory_least,
                     .needless = l.bound + l.slower + l.needless + l.open,
                     .memory = l.memory,
                     .fit = l.solved}};
}

}  // namespace trireme
