#include "trireme/train/plan/exact/exact_plan.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"

namespace trireme {

namespace {

bool are_cut_alike(const OuterWay& a, const OuterWay& b) {
  return a.pp == b.pp && a.inner.tp == b.inner.tp && a.inner.cp == b.inner.cp && a.inner.ep == b.inner.ep &&
         a.inner.dp == b.inner.dp;
}

// Tables say little of ways whose times differ by less than they are off, and ways that are cut alike are off alike:
// of each other cut the best one, as long as it may be the fastest when it is compiled.
std::vector<ExactWay> best_of_other_cuts(WayTables& tables, const OuterWays& ways, const std::vector<ExactWay>& best,
                                         const PlanRequest& request) {
  std::vector<ExactWay> out;
  const auto worth = static_cast<int64_t>(static_cast<double>(best.front().price.total) * kWorthCompiling);
  while (out.size() < request.other_cuts) {
    const OuterWays left = ways.kept_by([&](const OuterWay& way) {
      const auto is_like = [&](const ExactWay& other) { return are_cut_alike(other.outer, way); };
      return std::ranges::none_of(best, is_like) && std::ranges::none_of(out, is_like);
    });
    if (left.count() == 0) break;
    OuterResult found = tables.search(left, request.ranks, 1, request.on_exact, request.most_jobs);
    if (found.best.empty() || found.best.front().price.total > worth) break;
    out.push_back(std::move(exact_ways(tables, left, std::move(found)).front()));
  }
  return out;
}

}  // namespace

std::vector<std::string> ExactWay::keys(const ModelParts& parts) const {
  std::vector<std::string> out = outer.way().keys();
  out.push_back(parts.stages_key(begins));
  return out;
}

// The first part is what stands before the layers, the last one what stands after them.
std::vector<int64_t> ExactWay::layers_of_stages(const ModelParts& parts) const {
  const int64_t after = parts.count() - 1;
  std::vector<int64_t> out;
  for (size_t stage = 0; stage < begins.size(); ++stage) {
    const int64_t end = stage + 1 < begins.size() ? begins[stage + 1] : after;
    out.push_back(std::min(end, after) - std::max<int64_t>(begins[stage], 1));
  }
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
  WayTables tables(setting, request.threads, request.tables);
  OuterResult found = tables.search(ways, request.ranks, request.top, request.on_exact, request.most_jobs);
  out.ledger = found.ledger;
  out.is_proven = found.is_proven;
  out.least_ps = found.bound_ps;
  out.best = exact_ways(tables, ways, std::move(found));
  out.first_refusal = tables.pricer().refusal();
  out.asked = tables.asked();  // before others are
  if (!out.best.empty() && out.is_proven) out.others = best_of_other_cuts(tables, ways, out.best, request);
  if (out.best.empty() && out.is_proven)
    out.nearest = nearest_fit(tables, setting, ways, request.ranks, request.on_exact, request.most_jobs);
  out.jobs_compiled = tables.pricer().jobs_compiled();
  out.tables_reused = tables.pricer().tables_reused();
  out.setting = std::move(setting);
  return out;
}

PlanFile plan_file(const ExactPlan& plan, int64_t ranks, size_t chosen, const WayCost* compiled) {
  require(!plan.best.empty(), "plan: nothing fits, so there is no plan to write");
  const ExactWay& best = plan.way(chosen);
  const OuterLedger& l = plan.ledger;
  std::vector<std::string> keys = best.keys(plan.parts);
  for (std::string& key : keys_of_places(plan.setting.job)) keys.push_back(std::move(key));
  return {.ranks = ranks,
          .machine = plan.machine.name,
          .graph = plan.graph,
          .keys = std::move(keys),
          .step_ps = best.price.total,
          .arena_bytes = std::ranges::max(best.crew_bytes),
          .bound_ps = plan.least_ps,
          .compiled = compiled ? std::optional(
                                     PlanFile::Compiled{std::llround(compiled->step_s * 1e12), compiled->most_bytes()})
                               : std::nullopt,
          .ledger = {.ways = l.ways,
                     .do_not_divide = l.do_not_divide,
                     .memory_least = l.memory_least,
                     .needless = l.bound + l.slower + l.needless + l.open,
                     .memory = l.memory,
                     .fit = l.solved}};
}

}  // namespace trireme
