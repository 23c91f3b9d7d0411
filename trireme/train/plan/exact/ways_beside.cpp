#include "trireme/train/plan/exact/ways_beside.h"

#include <algorithm>

namespace trireme {
namespace {

// Of the variants and recomputation that the plan's ways have, or of none.
bool is_placed_like(const Way& way, const Way& of_plan) {
  const auto is_either = [](const auto& value, const auto& none, const auto& other) {
    return value == none || value == other;
  };
  return is_either(way.recompute, WayRecompute::kNone, of_plan.recompute) &&
         is_either(way.keep, Tier::kDevice, of_plan.keep) && is_either(way.place, UpdatePlace(), of_plan.place) &&
         is_either(way.kept_slices, false, of_plan.kept_slices);
}

// What --auto finds may be the fastest in any number of stages: it can leave ranks without work of their own, where
// links are so slow that this is faster. By flags, a way whose micro-batches have the most rows that tables have.
bool is_like(const Way& way, const OuterWay& known) {
  const Way of_plan = known.way();
  if (!is_placed_like(way, of_plan)) return false;
  return way.is_searched ||
         (known.inner.rows == kMostRows && way.pp == of_plan.pp && way.tp == of_plan.tp && way.cp == of_plan.cp &&
          way.ep == of_plan.ep && way.sp == of_plan.sp && way.zero == of_plan.zero);
}

// Of what compiling it takes: block by block, for each micro-batch, and as much as for some of these to find cuts.
int64_t passes_of(const Way& way, int64_t layers) {
  constexpr int64_t kPassesOfSearch = 8;
  return layers * (way.micro_batches + (way.is_searched ? kPassesOfSearch : 0));
}

// Those that are compiled: by how much that takes, until it is too much.
std::vector<Way> worth_compiling(const ExactPlan& plan, const PlanRequest& request) {
  std::vector<OuterWay> known;
  std::vector<Way> out;
  for (size_t i = 0; i < plan.ways(); ++i) known.push_back(plan.way(i).outer);
  for (Way& way : ways_of(request)) {
    const auto like = [&](const OuterWay& each) { return is_like(way, each); };
    if (has_no_table(way, plan.setting, request.ranks) && (plan.best.empty() || std::ranges::any_of(known, like)))
      out.push_back(std::move(way));
  }
  if (plan.best.empty()) return out;
  const auto passes = [&](const Way& way) { return passes_of(way, plan.parts.layers()); };
  std::ranges::stable_sort(out, {}, passes);
  int64_t sum = 0;
  const auto last = std::ranges::find_if(out, [&](const Way& way) {
    sum += passes(way);
    return sum > kMostPassesBeside;
  });
  out.erase(last, out.end());
  return out;
}

}  // namespace

bool has_no_table(const Way& way, const ExactSetting& setting, int64_t ranks) {
  if (way.is_searched) return true;
  if (setting.figures.is_joined) return false;
  const int64_t shares = ranks / (way.pp * way.tp * way.cp) * way.micro_batches;
  const int64_t batch = setting.job.train.fit.batch;
  return batch % shares == 0 && batch / shares > kMostRows;
}

std::vector<Way> example_ways(const ExactSetting& setting, const PlanRequest& request) {
  std::vector<Way> out = setting.ways(request.ranks).examples();
  if (request.ranks > kMostRanksOfBestCompiled) return out;
  for (Way& way : ways_of(request)) {
    if (has_no_table(way, setting, request.ranks)) out.push_back(std::move(way));
  }
  return out;
}

JobPlan compile_beside(const ExactPlan& plan, const PlanRequest& request) {
  if (request.ranks > kMostRanksOfBestCompiled) return {};
  const std::vector<Way> ways = worth_compiling(plan, request);
  PlanRequest beside = request;
  beside.is_asked = [&](const Way& way) { return std::ranges::find(ways, way) != ways.end(); };
  return plan_job(beside);
}

}  // namespace trireme
