#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/base/bytes_text.h"
#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/train/plan/auto/auto_search_impl.h"
#include "trireme/train/plan/exact/crew_kinds.h"
#include "trireme/train/plan/exact/exact_compiled.h"

namespace trireme {
namespace {

constexpr size_t kMostOthers = 2;  // that are told

std::string said_bytes(int64_t bytes) {
  return bytes_text(static_cast<double>(bytes));
}

// "no way of cutting 'gpt' over 2 ranks with pp=2".
std::string no_way(const PlanRequest& request, const WayRule& kept) {
  return fmt::format("plan: no way of cutting '{}' over {}{}", request.job.name, counted(request.ranks, "rank"),
                     kept.asked.empty() ? "" : fmt::format(" with {}", kept.text()));
}

Error nothing_fits(const PlanRequest& request, const WayRule& kept, int64_t memory_bytes) {
  return {ErrorKind::kInvalidArgument,
          fmt::format("{} fits in {} on each rank", no_way(request, kept), said_bytes(memory_bytes))};
}

[[noreturn]] void fail_by_compiling(const JobPlan& plan, const PlanRequest& request, const WayRule& kept) {
  require(plan.ledger.do_not_divide < plan.ledger.ways, "{} works: {}", no_way(request, kept),
          plan.ledger.first_refusal);
  Error error = nothing_fits(request, kept, plan.memory_bytes);
  if (plan.smallest)
    error.note(fmt::format("the smallest, {}, takes {} on the fullest rank", plan.smallest->way.text(),
                           said_bytes(plan.smallest->cost.most_bytes())));
  throw error;
}

[[noreturn]] void fail_exactly(const ExactPlan& plan, const PlanRequest& request, const WayRule& kept,
                               const std::optional<CompiledPlan>& compiled) {
  if (plan.ledger.ways == 0 && compiled) fail_by_compiling(compiled->beside, request, kept);
  require(plan.ledger.do_not_divide < plan.ledger.ways || plan.first_refusal.empty(), "{} works: {}",
          no_way(request, kept), plan.first_refusal);
  require(plan.is_proven,
          "{} that fits in {} on each rank was found before the search was stopped; `trireme plan --search exact "
          "--most-jobs 0` goes on",
          no_way(request, kept), said_bytes(plan.memory_bytes));
  Error error = nothing_fits(request, kept, plan.memory_bytes);
  if (plan.nearest) {
    error.note(fmt::format("the smallest, {}, takes {} on the fullest rank", plan.nearest->way.way().text(),
                           said_bytes(plan.nearest->bytes)));
    for (const auto& [what, change] :
         {std::pair("ranks", &plan.nearest->ranks), std::pair("samples in a batch", &plan.nearest->batch)}) {
      if (*change)
        error.note(fmt::format("{} {} would do, by {}: {} a rank", (*change)->to, what, (*change)->way.way().text(),
                               said_bytes((*change)->bytes)));
    }
  }
  throw error;
}

// The heads of both texts, with the way.
std::string head_text(std::string_view search, const PlanRequest& request, const WayRule& kept, const Machine& machine,
                      int64_t memory_bytes, const std::string& way) {
  return fmt::format("plan of {} for {} by the rates of {}, {} of memory a rank\n  {}\n", search,
                     counted(request.ranks, "rank"), named_rates(machine), said_bytes(memory_bytes), way) +
         (kept.asked.empty() ? "" : fmt::format("  kept, as the job says it: {}\n", kept.text()));
}

// "1.2 ms forward, 2.4 ms backward", but for what takes no time.
std::string times_text(const std::vector<std::pair<std::string, double>>& seconds) {
  std::vector<std::string> out;
  for (const auto& [name, s] : seconds) {
    if (s > 0) out.push_back(fmt::format("{:.3f} ms {}", s * 1e3, name));
  }
  return joined_text(out, ", ");
}

std::string times_text(const WayCost& cost) {
  return times_text({{"forward", cost.forward_s},
                     {"backward", cost.backward_s},
                     {"recomputed", cost.again_s},
                     {"of the update", cost.update_s},
                     {"exposed", cost.exposed_s},
                     {"waiting", cost.waiting_s}});
}

std::string times_text(const ExactWay& way) {
  std::vector<std::pair<std::string, double>> out;
  for (const auto& [name, ps] : step_items(way)) out.emplace_back(name, static_cast<double>(ps) * 1e-12);
  return times_text(out);
}

// What the fullest rank holds.
std::string memory_line(int64_t bytes, const std::vector<std::pair<std::string, int64_t>>& kinds) {
  std::vector<std::string> out;
  for (const auto& [name, of] : kinds) {
    if (of > 0) out.push_back(fmt::format("{} {}", said_bytes(of), name));
  }
  return fmt::format("  memory {} of the fullest rank: {}\n", said_bytes(bytes), joined_text(out, ", "));
}

std::string memory_line(const WayCost& cost) {
  const auto fullest = std::ranges::max_element(cost.memory, {}, &WayCost::Memory::arena);
  std::vector<std::pair<std::string, int64_t>> kinds;
  for (int kind = 0; kind < kHoldings; ++kind)
    kinds.emplace_back(to_string(static_cast<Holding>(kind)), fullest->kinds[static_cast<size_t>(kind)]);
  kinds.emplace_back("gaps", fullest->gaps());
  return memory_line(fullest->arena, kinds) + tiers_text(cost);
}

std::string memory_line(const ExactWay& way) {
  const auto fullest = std::ranges::max_element(way.crew_bytes);
  const auto crew = static_cast<size_t>(fullest - way.crew_bytes.begin());
  return memory_line(*fullest, kinds_of_crews(way.problem, way.begins)[crew]);
}

std::string stages_line(const ExactPlan& plan, const ExactWay& way) {
  if (way.outer.pp == 1 || way.outer.virtual_stages > 1) return "";
  return fmt::format("  layers of its stages: {}\n", joined_text(way.layers_of_stages(plan.parts), ", "));
}

std::string other_line(const Way& way, double step_s) {
  return fmt::format("  other: {} takes {:.3f} ms\n", way.text(), step_s * 1e3);
}

// What was compiled for an exact plan, if anything is for so many ranks.
std::optional<CompiledPlan> compiled_of(const ExactPlan& plan, const PlanRequest& request) {
  if (request.ranks > kMostRanksOfBestCompiled) return std::nullopt;
  CompiledPlan out = compiled_plan(plan, request);
  try {
    require_any(plan, out);
  } catch (Error& error) {
    error.note("these are flags of `trireme plan`, and `trireme train --plan` trains by what it writes");
    throw;
  }
  return out;
}

// Of the step's figures that are the same however it was found.
double share_of_peak(const ExactPlan& plan, double step_s) {
  return 100 * plan.flops / (step_s * plan.peak_flops_per_s);
}

std::string proof_line(const ExactPlan& plan) {
  const double least_ms = static_cast<double>(plan.least_ps) * 1e-9;
  const std::string ways = counted(plan.ledger.ways, "way");
  if (!plan.is_proven)
    return fmt::format("  not proven, as the search was stopped: by the tables none of {} takes less than {:.3f} ms\n",
                       ways, least_ms);
  if (plan.best.empty()) return fmt::format("  by the tables none of {} fits\n", ways);
  return fmt::format("  proven by the tables of {}: by these none takes less than {:.3f} ms\n", ways, least_ms);
}

std::string beside_line(const JobPlan& beside) {
  if (beside.ledger.ways == 0) return "";
  return fmt::format("  beside these, of {} that no table knows {} fit\n", counted(beside.ledger.ways, "way"),
                     beside.ledger.fit);
}

// By the tables alone.
std::string text_of(const ExactPlan& plan, const PlanRequest& request, const WayRule& kept) {
  const ExactWay& way = plan.best.front();
  const auto seconds = [](const ExactWay& of) { return static_cast<double>(of.price.total) * 1e-12; };
  std::string out = head_text("the exact search", request, kept, plan.machine, plan.memory_bytes, way_text(way));
  out += stages_line(plan, way);
  out += fmt::format("  step {:.3f} ms by its tables, {:.1f} % of the peak: {}\n", seconds(way) * 1e3,
                     share_of_peak(plan, seconds(way)), times_text(way));
  out += memory_line(way);
  for (size_t i = 1; i < std::min(plan.best.size(), kMostOthers + 1); ++i)
    out += other_line(plan.best[i].outer.way(), seconds(plan.best[i]));
  return out + proof_line(plan);
}

// By what was compiled.
std::string text_of(const ExactPlan& plan, const PlanRequest& request, const WayRule& kept,
                    const CompiledPlan& compiled) {
  const WayCost& cost = compiled.cost();
  const std::optional<ExactWay> tables = compiled.which ? std::optional(plan.way(*compiled.which)) : std::nullopt;
  std::string out = head_text("the exact search", request, kept, plan.machine, plan.memory_bytes,
                              tables ? way_text(*tables) : compiled.way(plan).text());
  if (tables) out += stages_line(plan, *tables);
  out += fmt::format(
      "  step {:.3f} ms in virtual time{}, {:.1f} % of the peak: {}\n", cost.step_s * 1e3,
      tables ? fmt::format(" ({:.3f} ms by its tables)", static_cast<double>(tables->price.total) * 1e-9) : "",
      share_of_peak(plan, cost.step_s), times_text(cost));
  out += memory_line(cost);
  const JobPlan all = as_job_plan(plan, compiled);
  for (size_t i = 1; i < std::min(all.best.size(), kMostOthers + 1); ++i)
    out += other_line(all.best[i].way, all.best[i].cost.step_s);
  return out + proof_line(plan) + beside_line(compiled.beside);
}

std::string text_of(const JobPlan& plan, const PlanRequest& request, const WayRule& kept) {
  const WayCost& cost = plan.best.front().cost;
  std::string out = head_text("all ways, each compiled,", request, kept, plan.machine, plan.memory_bytes,
                              plan.best.front().way.text());
  out += fmt::format("  step {:.3f} ms in virtual time, {:.1f} % of the peak: {}\n", cost.step_s * 1e3,
                     100 * cost.flops / (cost.step_s * plan.peak_flops_per_s), times_text(cost));
  out += memory_line(cost);
  for (size_t i = 1; i < std::min(plan.best.size(), kMostOthers + 1); ++i)
    out += other_line(plan.best[i].way, plan.best[i].cost.step_s);
  return out + fmt::format("  of {} {} fit, and none of these takes less\n", counted(plan.ledger.ways, "way"),
                           plan.ledger.fit);
}

}  // namespace

AutoFound find_exactly(const PlanRequest& request, const WayRule& kept) {
  const ExactPlan plan = plan_exact(request);
  const std::optional<CompiledPlan> compiled = compiled_of(plan, request);
  if (plan.best.empty() && !(compiled && compiled->has_any())) fail_exactly(plan, request, kept, compiled);
  if (!compiled)
    return {.file = plan_file(plan, request.ranks),
            .way = plan.best.front().outer.way().text(),
            .text = text_of(plan, request, kept)};
  return {.file = plan_file(plan, request, *compiled),
          .way = compiled->way(plan).text(),
          .text = text_of(plan, request, kept, *compiled)};
}

AutoFound find_by_compiling(const PlanRequest& request, const WayRule& kept) {
  const JobPlan plan = plan_job(request);
  if (plan.best.empty()) fail_by_compiling(plan, request, kept);
  return {.file = plan_file(plan, request), .way = plan.best.front().way.text(), .text = text_of(plan, request, kept)};
}

}  // namespace trireme
