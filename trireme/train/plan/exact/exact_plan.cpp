#include "trireme/train/plan/exact/exact_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "trireme/base/error.h"

namespace trireme {

namespace {

// Tables are off by about as much for ways of one kind: how much of what they count as if nothing hid it is hidden.
using WayKind = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, WayRecompute>;
using KindOf = WayKind (*)(const OuterWay&);

WayKind cut_of(const OuterWay& way) {
  const InnerWay& inner = way.inner;
  return {way.pp, inner.tp, inner.cp, inner.ep, inner.dp, 0, false, WayRecompute::kNone};
}

WayKind cut_and_slices_of(const OuterWay& way) {
  WayKind out = cut_of(way);
  std::get<5>(out) = way.inner.zero;
  std::get<6>(out) = way.inner.sp;
  return out;
}

WayKind cut_slices_and_recompute_of(const OuterWay& way) {
  WayKind out = cut_and_slices_of(way);
  std::get<7>(out) = way.inner.recompute;
  return out;
}

// The best way of each kind that may be the fastest once it is compiled.
class WorthCompiling {
 public:
  WorthCompiling(WayTables& tables, const OuterWays& ways, const ExactPlan& plan, const PlanRequest& request)
      : tables_(tables), ways_(ways), plan_(plan), request_(request) {}

  std::vector<ExactWay> find(bool is_joined) {
    compare_with(plan_.best.front());
    add(ways_, cut_of, request_.other_cuts);
    if (request_.ranks > kMostRanksOfBestCompiled) return std::move(out_);
    const bool is_scarce = plan_.ledger.memory > 0;
    passes_left_ = kMostPassesOfOthers;
    add(ways_, is_scarce ? cut_slices_and_recompute_of : cut_and_slices_of, kMostOfKinds);
    if (is_scarce && !is_joined) add_too_large();
    return std::move(out_);
  }

  // Where nothing fits by the tables.
  std::vector<ExactWay> find_too_large() {
    passes_left_ = kMostPassesOfOthers;
    std::optional<ExactWay> best;
    for (const double above : kMostAbove) {
      const OuterWays ways = add_memory_above(above);
      std::vector<ExactWay> found = exact_ways(tables_, ways, best_of(ways));
      if (!found.empty() && (!best || found.front().price.total < best->price.total)) best = std::move(found.front());
    }
    if (best) {
      compare_with(*best);
      add_too_large();
    }
    tables_.add_memory(0);
    return std::move(out_);
  }

 private:
  static constexpr size_t kMostOfKinds = 24;

  // The best by its tables, of those that others are compared with.
  void compare_with(const ExactWay& best) {
    worth_ps_ = static_cast<int64_t>(static_cast<double>(best.price.total) * kWorthCompiling);
    passes_of_best_ = passes_of(best);
  }

  // Of what compiling a way takes: block by block, for each micro-batch.
  int64_t passes_of(const ExactWay& way) const { return plan_.parts.layers() * way.outer.micro_batches; }

  bool is_known(const OuterWay& way) const {
    const auto is_it = [&](const ExactWay& each) { return each.outer == way; };
    return std::ranges::any_of(plan_.best, is_it) || std::ranges::any_of(out_, is_it);
  }

  // Up to `most` of kinds that nothing is of yet, by time.
  void add(const OuterWays& ways, KindOf kind_of, size_t most) {
    std::set<WayKind> known;
    for (const ExactWay& way : plan_.best) known.insert(kind_of(way.outer));
    for (const ExactWay& way : out_) known.insert(kind_of(way.outer));
    for (size_t i = 0; i < most && add_best(ways, kind_of, known); ++i) {
    }
  }

  OuterResult best_of(const OuterWays& ways) {
    return tables_.search(ways, request_.ranks, 1, request_.on_exact, request_.most_jobs);
  }

  // False: no other is worth it.
  bool add_best(const OuterWays& ways, KindOf kind_of, std::set<WayKind>& known) {
    if (passes_left_ < passes_of_best_) return false;
    const OuterWays left = ways.with_cuts([&](const OuterWay& way) { return !known.contains(kind_of(way)); });
    if (left.count() == 0) return false;
    OuterResult found = best_of(left);
    if (found.best.empty() || found.best.front().price.total > worth_ps_) return false;
    ExactWay way = std::move(exact_ways(tables_, left, std::move(found)).front());
    known.insert(kind_of(way.outer));
    if (is_known(way.outer)) return true;
    passes_left_ -= passes_of(way);
    out_.push_back(std::move(way));
    return true;
  }

  // What may fit, though its tables say that it does not: they add up what the parts need at their fullest moments.
  // With slices of state, or several stages, that is more than a program takes, by up to so much of it; with one
  // micro-batch by most, as what it keeps goes while its gradients come.
  static double most_bytes_above(const OuterWay& way) {
    if (way.inner.zero > 1) return way.micro_batches == 1 ? 0.6 : 0.3;
    return way.inner.zero == 1 ? 0.3 : way.pp > 1 ? 0.2 : 0;
  }
  static constexpr std::array kMostAbove{0.2, 0.3, 0.6};
  // From now on a rank has so much more memory: those of which it may be that much.
  OuterWays add_memory_above(double above) {
    tables_.add_memory(static_cast<int64_t>(above * static_cast<double>(plan_.memory_bytes)));
    return ways_.with_cuts([&](const OuterWay& way) { return most_bytes_above(way) == above; });
  }
  void add_too_large() {
    for (const double above : kMostAbove) {
      if (passes_left_ < passes_of_best_) break;
      const OuterWays some = add_memory_above(above);
      std::set<WayKind> known;
      for (size_t i = 0; i < kMostOfKinds && add_best(some, cut_slices_and_recompute_of, known); ++i) {
      }
    }
    tables_.add_memory(0);
  }

  WayTables& tables_;
  const OuterWays& ways_;
  const ExactPlan& plan_;
  const PlanRequest& request_;
  int64_t worth_ps_ = 0, passes_of_best_ = 0;
  int64_t passes_left_ = std::numeric_limits<int64_t>::max();
  std::vector<ExactWay> out_;
};

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
  if (!out.best.empty() && out.is_proven && request.other_cuts > 0)
    out.others = WorthCompiling(tables, ways, out, request).find(setting.figures.is_joined);
  if (out.best.empty() && out.is_proven) {
    out.nearest = nearest_fit(tables, setting, ways, request.ranks, request.on_exact, request.most_jobs);
    const bool may_fit = request.ranks <= kMostRanksOfBestCompiled && !setting.figures.is_joined;
    if (may_fit && request.other_cuts > 0) out.others = WorthCompiling(tables, ways, out, request).find_too_large();
  }
  out.jobs_compiled = tables.pricer().jobs_compiled();
  out.tables_reused = tables.pricer().tables_reused();
  out.setting = std::move(setting);
  return out;
}

PlanLedger ledger_of(const OuterLedger& of) {
  return {.ways = of.ways,
          .do_not_divide = of.do_not_divide,
          .memory_least = of.memory_least,
          .needless = of.bound + of.slower + of.needless + of.open,
          .memory = of.memory,
          .fit = of.solved};
}

PlanFile plan_file(const ExactPlan& plan, int64_t ranks, size_t chosen, const WayCost* compiled) {
  require(chosen < plan.ways(), "plan: nothing fits, so there is no plan to write");
  const ExactWay& best = plan.way(chosen);
  std::vector<std::string> keys = best.keys(plan.parts);
  for (std::string& key : keys_of_places(plan.setting.job)) keys.push_back(std::move(key));
  return {.ranks = ranks,
          .machine = plan.machine.name,
          .graph = plan.graph,
          .keys = std::move(keys),
          .step_ps = best.price.total,
          .arena_bytes = std::ranges::max(best.crew_bytes),
          .bound_ps = plan.fits_by_tables(best) ? plan.least_ps : plan.bound_ps,
          .compiled = compiled ? std::optional(
                                     PlanFile::Compiled{std::llround(compiled->step_s * 1e12), compiled->most_bytes()})
                               : std::nullopt,
          .ledger = ledger_of(plan.ledger)};
}

}  // namespace trireme
