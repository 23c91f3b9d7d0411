#include "trireme/train/plan/exact/exact_compiled.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/train/job/job_assembly.h"
#include "trireme/train/job/kinds.h"

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
    out.fits = bytes_beyond(way.outer.way(), *out.cost, plan.memory_bytes, plan.setting.beside) == 0;
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kInvalidArgument && error.kind() != ErrorKind::kUnsupported) throw;
    out.refusal = error.what();
  }
  return out;
}

}  // namespace

std::vector<CompiledWay> compile_best(const ExactPlan& plan, const PlanRequest& request) {
  std::vector<CompiledWay> out;
  for (size_t i = 0; i < plan.ways(); ++i) out.push_back(compile_exact(plan, plan.way(i), request));
  return out;
}

size_t fastest_that_fits(const ExactPlan& plan, const std::vector<CompiledWay>& compiled) {
  size_t out = compiled.size();
  for (size_t i = 0; i < compiled.size(); ++i) {
    if (!compiled[i].fits) continue;
    if (out == compiled.size() || compiled[i].cost->step_s < compiled[out].cost->step_s) out = i;
  }
  require(out < compiled.size(),
          "plan: none of the {} best ways by their tables fits once it is compiled; ask for more ways with --top, or "
          "plan for a little less memory with --memory",
          plan.ways());
  return out;
}

std::string compiled_text(const ExactPlan& plan, const std::vector<CompiledWay>& compiled) {
  std::string out = "compiled as training compiles them, in virtual time:\n";
  for (size_t i = 0; i < compiled.size(); ++i) {
    const ExactWay& way = plan.way(i);
    if (i == plan.best.size()) out += "the best by their tables of other pp, tp, cp, ep or dp:\n";
    out += "  " + way.outer.way().text();
    if (!compiled[i].cost) {
      out += fmt::format(" is refused: {}\n", compiled[i].refusal);
      continue;
    }
    const double step_ms = compiled[i].cost->step_s * 1e3, by_tables_ms = static_cast<double>(way.price.total) * 1e-9;
    const auto bytes = static_cast<double>(compiled[i].cost->most_bytes());
    const auto by_tables = static_cast<double>(std::ranges::max(way.crew_bytes));
    out += fmt::format(" takes {:.3f} ms (tables {:+.1f} %), {:.1f} MiB (tables {:+.1f} %){}\n", step_ms,
                       100 * (by_tables_ms / step_ms - 1), bytes / 1048576.0, 100 * (by_tables / bytes - 1),
                       compiled[i].fits ? "" : ": it does not fit");
    out += tiers_text(*compiled[i].cost);
  }
  return out;
}

}  // namespace trireme
