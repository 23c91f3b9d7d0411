// What prices ways for advice: all of them compiled, or the prices of parts.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/planner/outer/pipeline_shape.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
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
    ways_ = ways_of(without_cuts(request.job), request.ranks);
    if (request.is_asked) std::erase_if(ways_, [&](const Way& way) { return !request.is_asked(way); });
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
      : job_(without_cuts(request.job)), ranks_(request.ranks), model_(make_model(job_)) {
    const Assembly assembly = assembly_of(job_, *model_, 1);
    const Graph step = graphs_of(assembly, 1).step;
    parts_ = parts_of(step);
    memory_bytes_ = memory_of_rank(request, assembly);
    kept_ = kept_by(step);
    pricer_ = std::make_unique<PartPricer>(job_, parts_, request.threads);
    const int64_t positions = predicts_classes(job_) ? 1 : fields_of(job_)[0].sample.elements();
    ways_ = outer_ways(model_of(job_).cuttable(), ranks_, job_.train.fit.batch, positions, parts_.count());
  }

  WaysAnswer best_of(const Filter& filter) override {
    WaysAnswer out;
    std::vector<OuterWay> ways;
    std::vector<OuterCandidate> candidates;
    for (const OuterWay& way : ways_) {
      if (!filter(way.way())) continue;
      ++out.ways;
      const OuterCandidate candidate = candidate_for(way);
      if (candidate.divides && candidate.least_bytes > memory_bytes_) note_too_large(candidate.least_bytes, out);
      ways.push_back(way);
      candidates.push_back(candidate);
    }
    const std::vector<AdvisedWay> found = found_of(ways, candidates, 1);
    out.refusal = pricer_->refusal();
    if (!found.empty()) out.best = found.front();
    return out;
  }

  std::vector<AdvisedWay> fastest(size_t most) override {
    std::vector<OuterCandidate> candidates;
    for (const OuterWay& way : ways_) candidates.push_back(candidate_for(way));
    return found_of(ways_, candidates, most);
  }

  std::optional<AdvisedWay> price(const Way& way, const std::vector<std::string>& keys) override {
    if (!keys.empty()) return std::nullopt;
    return best_of([&](const Way& each) { return each.text() == way.text(); }).best;
  }

 private:
  OuterCandidate candidate_for(const OuterWay& way) const {
    return {.divides = way.micro_batches >= way.pp,  // a pipeline fills
            .least_bytes = least_bytes(way.way(), ranks_, kept_)};
  }

  std::vector<AdvisedWay> found_of(const std::vector<OuterWay>& ways, const std::vector<OuterCandidate>& candidates,
                                   size_t most) {
    const OuterQuestions ask{.bounds = {[&](size_t i) { return bound_of(ways[i], false); },
                                        [&](size_t i) { return bound_of(ways[i], true); }},
                             .problem = [&](size_t i) { return problem_of(ways[i]); }};
    std::vector<AdvisedWay> out;
    for (const SolvedWay& each : search_outer(candidates, memory_bytes_, most, ask).best) {
      const OuterWay& outer = ways[each.candidate];
      const ExactWay way{
          .outer = outer, .begins = each.begins, .price = each.price, .stage_bytes = {}, .problem = *problem_of(outer)};
      AdvisedWay& into =
          out.emplace_back(AdvisedWay{.way = outer.way(),
                                      .text = way_text(way),
                                      .step_s = static_cast<double>(each.price.total) * 1e-12,
                                      .bytes = std::ranges::max(bytes_of_stages(way.problem, each.begins))});
      for (const auto& [name, ps] : step_items(way)) into.items.emplace_back(name, static_cast<double>(ps) * 1e-12);
    }
    return out;
  }

  StageProblem problem_with(const OuterWay& way, const PartPrices& prices) {
    const auto [shape, is_new] = shapes_.try_emplace({way.schedule, way.pp});
    if (is_new) shape->second = shape_of_schedule(way.schedule, way.pp);
    StageProblem out{.shape = shape->second,
                     .micro_batches = way.micro_batches,
                     .crossing = prices.crossing,
                     .memory = memory_bytes_};
    out.parts.assign(static_cast<size_t>(parts_.count()), prices.block);
    out.parts.front() = prices.before;
    out.parts.back() = prices.after;
    return out;
  }

  std::optional<StageProblem> problem_of(const OuterWay& way) {
    const std::optional<PartPrices>& prices = pricer_->prices(way.inner);
    return prices ? std::optional(problem_with(way, *prices)) : std::nullopt;
  }

  // From passes alone; what is done once a step, and what crosses, may take nothing.
  std::optional<int64_t> bound_of(const OuterWay& way, bool with_again) {
    const std::optional<PartPrices>& prices = pricer_->passes_alone(way.inner, with_again);
    if (!prices) return std::nullopt;
    StageProblem problem = problem_with(way, *prices);
    problem.crossing = 0;
    for (PartPrice& part : problem.parts) part.update = part.sync = 0;
    return bound_of_cuts(problem) - way.pp;  // rounding
  }

  const JobConfig job_;
  int64_t ranks_;
  const std::unique_ptr<nn::Module> model_;
  ModelParts parts_;
  int64_t memory_bytes_ = 0;
  KeptBytes kept_;
  std::unique_ptr<PartPricer> pricer_;
  std::vector<OuterWay> ways_;
  std::map<std::pair<std::string, int64_t>, PipelineShape> shapes_;
};

}  // namespace

std::unique_ptr<AdviceSearch> compiled_advice_search(const PlanRequest& request) {
  return std::make_unique<CompiledAdvice>(request);
}

std::unique_ptr<AdviceSearch> exact_advice_search(const PlanRequest& request) {
  return std::make_unique<ExactAdvice>(request);
}

}  // namespace trireme
