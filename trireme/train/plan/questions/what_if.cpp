#include "trireme/train/plan/questions/what_if.h"

#include <fmt/format.h>

#include <functional>

#include "trireme/base/error.h"
#include "trireme/exec/plan/execution_plan.h"

namespace trireme {
namespace {

double mib_of(int64_t bytes) {
  return static_cast<double>(bytes) / 1048576.0;
}

std::string beside(const PlannedWay& chosen, const PlannedWay& kept) {
  std::string out = fmt::format("  {:<14} {:>12} {:>12} {:>12}\n", "", "chosen", "asked for", "difference");
  const auto ms = [&](const char* name, double WayCost::*part) {
    const double a = chosen.cost.*part * 1e3, b = kept.cost.*part * 1e3;
    out += fmt::format("  {:<14} {:>12.3f} {:>12.3f} {:>+12.3f} ms\n", name, a, b, b - a);
  };
  ms("step", &WayCost::step_s);
  ms("forward", &WayCost::forward_s);
  ms("backward", &WayCost::backward_s);
  ms("recomputed", &WayCost::again_s);
  ms("update", &WayCost::update_s);
  ms("exposed", &WayCost::exposed_s);
  ms("waiting", &WayCost::waiting_s);
  const double a = mib_of(chosen.cost.most_bytes()), b = mib_of(kept.cost.most_bytes());
  return out + fmt::format("  {:<14} {:>12.1f} {:>12.1f} {:>+12.1f} MiB\n", "memory", a, b, b - a);
}

std::string why_none_fits(const JobPlan& kept) {
  std::string out;
  if (kept.smallest) {
    const WayCost& cost = kept.smallest->cost;
    out += fmt::format("  the smallest, {}, takes {:.1f} MiB, {:.1f} more than the {:.1f} of a rank\n",
                       kept.smallest->way.text(), mib_of(cost.most_bytes()),
                       mib_of(cost.most_bytes() - kept.memory_bytes), mib_of(kept.memory_bytes));
    const WayCost::Memory* largest = &cost.memory.front();
    for (const WayCost::Memory& each : cost.memory) {
      if (each.arena > largest->arena) largest = &each;
    }
    for (int kind = 0; kind < kHoldings; ++kind) {
      const int64_t bytes = largest->kinds[static_cast<size_t>(kind)];
      if (bytes > 0)
        out += fmt::format("    {:<11} {:>10.1f} MiB\n", to_string(static_cast<Holding>(kind)), mib_of(bytes));
    }
  } else if (kept.least_bytes > 0) {
    out +=
        fmt::format("  parameters and state alone take at least {:.1f} MiB, {:.1f} more than the {:.1f} of a rank\n",
                    mib_of(kept.least_bytes), mib_of(kept.least_bytes - kept.memory_bytes), mib_of(kept.memory_bytes));
  }
  return out;
}

Machine with_links(Machine machine, size_t from, double factor) {
  for (size_t level = from; level < machine.levels.size(); ++level) machine.levels[level].bytes_per_s *= factor;
  return machine;
}

Machine with_arithmetic(Machine machine, double factor) {
  for (auto& [type, rate] : machine.flops_per_s) rate *= factor;
  return machine;
}

}  // namespace

std::string why_not_text(const JobPlan& chosen, const JobPlan& kept, const WayRule& rule) {
  const PlanLedger& ledger = kept.ledger;
  std::string out = fmt::format("why not {}: ", rule.text());
  if (ledger.ways == 0)
    return out +
           "each of it can be asked for, but no way has all of it: pp, tp, cp and ep together divide the "
           "ranks, and zero needs ranks that they leave for data\n";
  if (!kept.best.empty() && !chosen.best.empty()) {
    const PlannedWay &best = chosen.best.front(), &asked = kept.best.front();
    if (best.way.text() == asked.way.text()) return out + "the best way keeps it\n";
    out += fmt::format("the best way that keeps it, {}, takes {:.3f} ms, {:+.2f} %\n", asked.way.text(),
                       asked.cost.step_s * 1e3, 100 * (asked.cost.step_s / best.cost.step_s - 1));
    return out + beside(best, asked);
  }
  out += "no way that keeps it can be taken\n" + why_none_fits(kept);
  if (ledger.do_not_divide > 0)
    out += fmt::format("  {} of {} do not go with the model, the batch or the ranks: {}\n", ledger.do_not_divide,
                       ledger.ways, ledger.first_refusal);
  return out;
}

std::vector<Sensitivity> sensitivities(const PlanRequest& request, const JobPlan& plan) {
  require(!request.job.parallel.machine.empty(),
          "plan: sensitivities change the figures of a machine's file, and none is given; give one by --machine");
  std::vector<Sensitivity> out;
  const auto look = [&](std::string what, const Machine& machine, int64_t memory_bytes) {
    PlanRequest other = request;
    other.machine = machine;
    other.memory_bytes = memory_bytes;
    other.top = 1;
    out.push_back({std::move(what), plan_job(other)});
  };
  const Machine& machine = plan.machine;
  const int64_t memory = plan.memory_bytes;
  look("all links half as fast", with_links(machine, 0, 0.5), memory);
  look("all links twice as fast", with_links(machine, 0, 2), memory);
  for (size_t level = 1; level < machine.levels.size(); ++level) {  // that some pair of these ranks needs
    if (machine.levels[level - 1].devices >= request.ranks) break;
    const bool is_last = level + 1 == machine.levels.size();
    look(fmt::format("{}{} half as fast", machine.levels[level].name, is_last ? "" : " and beyond"),
         with_links(machine, level, 0.5), memory);
  }
  look("half the memory", machine, memory / 2);
  look("twice the memory", machine, memory * 2);
  look("arithmetic twice as fast", with_arithmetic(machine, 2), memory);
  return out;
}

std::string sensitivities_text(const JobPlan& plan, const std::vector<Sensitivity>& all) {
  std::string out = "if the machine were different, planned again:\n";
  for (const Sensitivity& each : all) {
    out += fmt::format("  {:<26} ", each.what);
    if (each.plan.best.empty()) {
      out += "nothing fits\n";
      continue;
    }
    const PlannedWay& best = each.plan.best.front();
    out += fmt::format("{:>12.3f} ms", best.cost.step_s * 1e3);
    if (plan.best.empty()) {
      out += ", by " + best.way.text() + "\n";
      continue;
    }
    const PlannedWay& now = plan.best.front();
    const bool is_same = best.way.text() == now.way.text();
    out += fmt::format(" ({:+.2f} %), {}\n", 100 * (best.cost.step_s / now.cost.step_s - 1),
                       is_same ? "by the same way" : "by " + best.way.text());
  }
  return out;
}

}  // namespace trireme
