// What prices ways for advice: all of them compiled, or the prices of parts.
#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/plan/advice.h"
#include "trireme/train/plan/exact_plan.h"

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

  std::optional<AdvisedWay> price(const Way& way, const std::vector<std::string>& keys) override {
    PlanRequest with = request_;
    try {
      set_keys(with.job, keys);
      return advised(way, cost_of(compile_way(with, way)));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kInvalidArgument && error.kind() != ErrorKind::kUnsupported) throw;
      return std::nullopt;
    }
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
        tables_(setting_, request.threads),
        on_progress_(request.on_exact) {}

  WaysAnswer best_of(const Filter& filter) override {
    WaysAnswer out;
    std::vector<OuterWay> ways;
    for (const OuterWay& way : ways_) {
      if (!filter(way.way())) continue;
      ++out.ways;
      const OuterCandidate candidate = candidate_of(way, ranks_, setting_.figures);
      if (candidate.divides && candidate.least_bytes > setting_.memory_bytes)
        note_too_large(candidate.least_bytes, out);
      ways.push_back(way);
    }
    const std::vector<AdvisedWay> found = found_of(ways, 1);
    out.refusal = tables_.pricer().refusal();
    if (!found.empty()) out.best = found.front();
    return out;
  }

  std::vector<AdvisedWay> fastest(size_t most) override { return found_of(ways_, most); }

  std::optional<AdvisedWay> price(const Way& way, const std::vector<std::string>& keys) override {
    if (!keys.empty()) return std::nullopt;
    return best_of([&](const Way& each) { return each.text() == way.text(); }).best;
  }

 private:
  std::vector<AdvisedWay> found_of(const std::vector<OuterWay>& ways, size_t most) {
    std::vector<AdvisedWay> out;
    for (const ExactWay& way : exact_ways(tables_, ways, tables_.search(ways, ranks_, most, on_progress_))) {
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
  std::vector<OuterWay> ways_;
  WayTables tables_;  // of the setting
  WayTables::OnProgress on_progress_;
};

}  // namespace

std::unique_ptr<AdviceSearch> compiled_advice_search(const PlanRequest& request) {
  return std::make_unique<CompiledAdvice>(request);
}

std::unique_ptr<AdviceSearch> exact_advice_search(const PlanRequest& request) {
  return std::make_unique<ExactAdvice>(request);
}

}  // namespace trireme
