#include "trireme/train/plan/exact/exact_compiled.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"
#include "trireme/train/plan/exact/ways_beside.h"

namespace trireme {
namespace {

CompiledWay compile_exact(const ExactPlan& plan, const ExactWay& way, const PlanRequest& request) {
  CompiledWay out;
  try {
    JobConfig job = plan.setting.job;
    set_keys(job, way.keys(plan.parts));
    const auto model = make_model(job);
    const Assembly assembly = assembly_of(job, *model, request.ranks);
    JobGraphs graphs = graphs_of(assembly, request.ranks);
    const CompileOptions how = compile_options(assembly, graphs.parallel, request.ranks, request.threads);
    out.cost = cost_of(compile(std::move(graphs.step), std::move(graphs.evaluation), how).step);
    out.cost->flops = plan.flops;
    out.fits = bytes_beyond(way.outer.way(), *out.cost, plan.memory_bytes, plan.setting.beside) == 0;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInvalidArgument && error.kind() != ErrorKind::kUnsupported) throw;
    out.refusal = error.what();
  }
  return out;
}

PlanLedger sum_of(PlanLedger a, const PlanLedger& b) {
  for (const auto count : {&PlanLedger::ways, &PlanLedger::do_not_divide, &PlanLedger::memory_least,
                           &PlanLedger::needless, &PlanLedger::memory, &PlanLedger::fit})
    a.*count += b.*count;
  return a;
}

PlanFile::Compiled compiled_of(const WayCost& cost) {
  return {std::llround(cost.step_s * 1e12), cost.most_bytes()};
}

std::string beside_text(const JobPlan& beside) {
  if (beside.ledger.ways == 0) return "";
  const PlanLedger& l = beside.ledger;
  std::string out = fmt::format(
      "beside them, of {} that no table knows (what --auto finds, and micro-batches of more than {} rows): {} fit, {} "
      "compiled and too large, {} too large by their parameters alone, {} recompute or have things elsewhere without "
      "need, {} do not go with the model, the batch or the ranks\n",
      counted(l.ways, "way"), kMostRows, l.fit, l.memory, l.memory_least, l.needless, l.do_not_divide);
  for (const PlannedWay& each : beside.best) {
    out += fmt::format("  {} takes {:.3f} ms, {:.1f} MiB\n", each.way.text(), each.cost.step_s * 1e3,
                       static_cast<double>(each.cost.most_bytes()) / 1048576.0);
    out += tiers_text(each.cost);
  }
  return out;
}

}  // namespace

std::vector<CompiledWay> compile_best(const ExactPlan& plan, const PlanRequest& request) {
  std::vector<CompiledWay> out;
  for (size_t i = 0; i < plan.ways(); ++i) {
    if (request.on_way) request.on_way(i + 1, plan.ways());
    out.push_back(compile_exact(plan, plan.way(i), request));
  }
  return out;
}

std::optional<size_t> fastest_that_fits(const std::vector<CompiledWay>& compiled) {
  std::optional<size_t> out;
  for (size_t i = 0; i < compiled.size(); ++i) {
    if (!compiled[i].fits) continue;
    if (!out || compiled[i].cost->step_s < compiled[*out].cost->step_s) out = i;
  }
  return out;
}

CompiledPlan compiled_plan(const ExactPlan& plan, const PlanRequest& request) {
  CompiledPlan out{.ways = compile_best(plan, request), .beside = compile_beside(plan, request), .which = {}};
  out.which = fastest_that_fits(out.ways);
  const auto& beside = out.beside.best;
  if (out.which && !beside.empty() &&
      beside.front().cost.step_s < (1 - kLeastGainBeside) * out.ways[*out.which].cost->step_s)
    out.which.reset();
  return out;
}

Way CompiledPlan::way(const ExactPlan& plan) const {
  return which ? plan.way(*which).outer.way() : beside.best.front().way;
}

const WayCost& CompiledPlan::cost() const {
  return which ? *ways[*which].cost : beside.best.front().cost;
}

void require_any(const ExactPlan& plan, const CompiledPlan& compiled) {
  require(plan.best.empty() || compiled.has_any(),
          "plan: none of the {} best ways by their tables fits once it is compiled; ask for more ways with --top, or "
          "plan for a little less memory with --memory",
          plan.ways());
}

std::string compiled_text(const ExactPlan& plan, const CompiledPlan& compiled) {
  std::string out;
  if (plan.ways() > 0) {
    out =
        plan.best.empty() ? "tables add up what parts need at their fullest moments. What may fit all the same,\n" : "";
    out += "compiled as training compiles them, in virtual time:\n";
  }
  for (size_t i = 0; i < compiled.ways.size(); ++i) {
    const ExactWay& way = plan.way(i);
    const CompiledWay& as = compiled.ways[i];
    if (i == plan.best.size() && i > 0) out += "the best by their tables of other pp, tp, cp, ep, dp or zero:\n";
    out += "  " + way.outer.way().text();
    if (!as.cost) {
      out += fmt::format(" is refused: {}\n", as.refusal);
      continue;
    }
    const double step_ms = as.cost->step_s * 1e3, by_tables_ms = static_cast<double>(way.price.total) * 1e-9;
    const auto bytes = static_cast<double>(as.cost->most_bytes());
    const auto by_tables = static_cast<double>(std::ranges::max(way.crew_bytes));
    out += fmt::format(" takes {:.3f} ms (tables {:+.1f} %), {:.1f} MiB (tables {:+.1f} %){}\n", step_ms,
                       100 * (by_tables_ms / step_ms - 1), bytes / 1048576.0, 100 * (by_tables / bytes - 1),
                       as.fits ? "" : ": it does not fit");
    out += tiers_text(*as.cost);
  }
  return out + beside_text(compiled.beside);
}

std::string chosen_text(const ExactPlan& plan, const CompiledPlan& compiled) {
  if (!compiled.has_any()) return plan.ways() > 0 ? "none of them fits\n" : "";
  std::string out;
  if (plan.best.empty() || compiled.which != 0)
    out += "the fastest of them that fits is the plan: " + compiled.way(plan).text() + "\n";
  if (compiled.which && !plan.fits_by_tables(plan.way(*compiled.which)))
    out += "nothing is proven of it: what is proven is by the tables, by which it does not fit\n";
  return out;
}

JobPlan as_job_plan(const ExactPlan& plan, const CompiledPlan& compiled) {
  JobPlan out = compiled.beside;
  for (size_t i = 0; i < compiled.ways.size(); ++i) {
    if (compiled.ways[i].fits && i != compiled.which)
      out.best.push_back({plan.way(i).outer.way(), *compiled.ways[i].cost});
  }
  std::ranges::stable_sort(out.best, {}, [](const PlannedWay& each) { return each.cost.step_s; });
  if (compiled.which) out.best.insert(out.best.begin(), {compiled.way(plan), compiled.cost()});
  out.ledger = sum_of(ledger_of(plan.ledger), compiled.beside.ledger);
  return out;
}

PlanFile plan_file(const ExactPlan& plan, const PlanRequest& request, const CompiledPlan& compiled) {
  if (compiled.which) return plan_file(plan, request.ranks, *compiled.which, &compiled.cost());
  PlanFile out = plan_file(as_job_plan(plan, compiled), request);
  out.compiled = compiled_of(compiled.cost());
  return out;
}

}  // namespace trireme
