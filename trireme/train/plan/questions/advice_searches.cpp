// What prices ways for advice: all of them compiled, or the prices of parts.
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/plan/exact/exact_plan.h"
#include "trireme/train/plan/questions/advice.h"

namespace trireme {
namespace {

AdvisedWay advised(const Way& way, const WayCost& cost) {
  return {.way = way,
          .text = way.text(),
          .step_s = cost.step_s,
          .bytes = cost.most_bytes(),
          .items = {{"computing", cost.forward_s + cost.backward_s},
                    {"what is computed again", cost.again_s},
                    {"the update", cost.update_s},
                    {"communication that nothing hides", cost.exposed_s},
                    {"waiting for other ranks", cost.waiting_s}}};
}

void note_too_large(int64_t bytes, WaysAnswer& out) {
  if (bytes > 0 && (out.fewest_bytes == 0 || bytes < out.fewest_bytes)) out.fewest_bytes = bytes;
}

class CompiledAdvice : public AdviceSearch {
 public:
  explicit CompiledAdvice(const PlanRequest& request) : request_(request) {
    PlanRequest all = request;
    all.top = static_cast<size_t>(-1);
    plan_ = plan_job(all);
    ways_ = ways_of(request);
  }

  WaysAnswer best_of(const Filter& filter) override {
    WaysAnswer out{.ways = std::ranges::count_if(ways_, filter), .refusal = ""};
    for (const PlannedWay& each : plan_.best) {
      if (!filter(each.way)) continue;
      out.best = advised(each.way, each.cost);
      return out;
    }
    for (const JobPlan::TooLarge& each : plan_.too_large) {
      if (filter(each.way)) note_too_large(each.bytes, out);
    }
    const auto refused = std::ranges::find_if(plan_.refused, [&](const auto& each) { return filter(each.first); });
    if (refused != plan_.refused.end()) out.refusal = refused->second;
    return out;
  }

  std::vector<AdvisedWay> fastest(size_t most) override {
    std::vector<AdvisedWay> out;
    for (const PlannedWay& each : plan_.best) {
      if (out.size() < most) out.push_back(advised(each.way, each.cost));
    }
    return out;
  }

  std::optional<AdvisedWay> price(const Way& way) override {
    const std::optional<WayCost> cost = cost_of_way(request_, way);
    return cost ? std::optional(advised(way, *cost)) : std::nullopt;
  }

 private:
  PlanRequest request_;
  JobPlan plan_;
  std::vector<Way> ways_;
};

class ExactAdvice : public AdviceSearch {
 public:
  explicit ExactAdvice(const PlanRequest& request)
      : ranks_(request.ranks),
        setting_(exact_setting(request)),
        ways_(setting_.ways(ranks_)),
        tables_(setting_, request.threads, request.tables),
        on_progress_(request.on_exact),
        most_jobs_(request.most_jobs) {}

  WaysAnswer best_of(const Filter& filter) override {
    WaysAnswer out;
    const OuterWays ways = ways_.kept_by([&](const OuterWay& way) { return filter(way.way()); });
    out.ways = ways.count();
    for (size_t i = 0; i < ways.size(); ++i) {
      if (!ways.has(i) || !divides(ways.at(i))) continue;
      const int64_t least = least_bytes(ways.at(i), ranks_, setting_.figures);
      if (least > setting_.memory_bytes) note_too_large(least, out);
    }
    const std::vector<AdvisedWay> found = found_of(ways, 1, out.is_proven);
    out.refusal = tables_.pricer().refusal();
    if (!found.empty()) out.best = found.front();
    return out;
  }

  std::vector<AdvisedWay> fastest(size_t most) override {
    bool is_proven = true;
    return found_of(ways_, most, is_proven);
  }

  bool is_proven() const override { return is_proven_; }

  std::optional<AdvisedWay> price(const Way& way) override {
    return best_of([&](const Way& each) { return each.text() == way.text(); }).best;
  }

 private:
  std::vector<AdvisedWay> found_of(const OuterWays& ways, size_t most, bool& is_proven) {
    std::vector<AdvisedWay> out;
    OuterResult found = tables_.search(ways, ranks_, most, on_progress_, most_jobs_);
    is_proven = found.is_proven;
    is_proven_ = is_proven_ && is_proven;
    for (const ExactWay& way : exact_ways(tables_, ways, std::move(found))) {
      AdvisedWay& into = out.emplace_back(AdvisedWay{.way = way.outer.way(),
                                                     .text = way_text(way),
                                                     .step_s = static_cast<double>(way.price.total) * 1e-12,
                                                     .bytes = std::ranges::max(way.crew_bytes)});
      for (const auto& [name, ps] : step_items(way)) into.items.emplace_back(name, static_cast<double>(ps) * 1e-12);
    }
    return out;
  }

  int64_t ranks_;
  ExactSetting setting_;
  OuterWays ways_;
  WayTables tables_;  // of the setting
  WayTables::OnProgress on_progress_;
  int64_t most_jobs_ = 0;
  bool is_proven_ = true;
};

}  // namespace

std::unique_ptr<AdviceSearch> compiled_advice_search(const PlanRequest& request) {
  return std::make_unique<CompiledAdvice>(request);
}

std::unique_ptr<AdviceSearch> exact_advice_search(const PlanRequest& request) {
  return std::make_unique<ExactAdvice>(request);
}

}  // namespace trireme
