#include "trireme/train/plan/questions/what_if.h"

#include <fmt/format.h>

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/exec/plan/execution_plan.h"

namespace trireme {
namespace {

double mib_of(int64_t bytes) {
  return static_cast<double>(bytes) / 1048576.0;
}

std::string beside(const ComparedWay& chosen, const ComparedWay& kept) {
  std::string out = fmt::format("  {:<14} {:>12} {:>12} {:>12}\n", "", "chosen", "asked for", "difference");
  const auto row = [&](std::string_view name, double a, double b, std::string_view unit, int digits) {
    out +=
        fmt::format("  {:<14} {:>12.{}f} {:>12.{}f} {:>+12.{}f} {}\n", name, a, digits, b, digits, b - a, digits, unit);
  };
  const auto seconds_of = [](const ComparedWay& way, const std::string& item) {
    const auto found = std::ranges::find(way.items, item, &std::pair<std::string, double>::first);
    return found == way.items.end() ? 0 : found->second;
  };
  row("step", chosen.step_s * 1e3, kept.step_s * 1e3, "ms", 3);
  for (const auto& [item, seconds] : chosen.items) row(item, seconds * 1e3, seconds_of(kept, item) * 1e3, "ms", 3);
  for (const auto& [item, seconds] : kept.items) {
    if (std::ranges::find(chosen.items, item, &std::pair<std::string, double>::first) == chosen.items.end())
      row(item, 0, seconds * 1e3, "ms", 3);
  }
  row("memory", mib_of(chosen.bytes), mib_of(kept.bytes), "MiB", 1);
  return out;
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

// What is the same for both searches: `why_none` says why no way that keeps it can be taken.
std::string why_not(const WayRule& rule, int64_t ways, const std::optional<ComparedWay>& best,
                    const std::optional<ComparedWay>& asked, const std::function<std::string()>& why_none) {
  std::string out = fmt::format("why not {}: ", rule.text());
  if (ways == 0)
    return out +
           "each of it can be asked for, but no way has all of it: pp, tp, cp and ep together divide the "
           "ranks, and zero needs ranks that they leave for data\n";
  if (!asked) return out + "no way that keeps it can be taken\n" + why_none();
  if (!best) return out + fmt::format("{} keeps it, and takes {:.3f} ms\n", asked->text, asked->step_s * 1e3);
  if (best->text == asked->text) return out + "the best way keeps it\n";
  out += fmt::format("the best way that keeps it, {}, takes {:.3f} ms, {:+.2f} %\n", asked->text, asked->step_s * 1e3,
                     100 * (asked->step_s / best->step_s - 1));
  return out + beside(*best, *asked);
}

std::string refused_text(int64_t refused, int64_t ways, std::string_view first) {
  if (refused == 0) return "";
  return fmt::format("  {} of {} do not go with the model, the batch or the ranks{}{}\n", refused, ways,
                     first.empty() ? "" : ": ", first);
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

ComparedWay compared(const PlannedWay& way) {
  const WayCost& cost = way.cost;
  return {.text = way.way.text(),
          .step_s = cost.step_s,
          .items = {{"forward", cost.forward_s},
                    {"backward", cost.backward_s},
                    {"recomputed", cost.again_s},
                    {"update", cost.update_s},
                    {"exposed", cost.exposed_s},
                    {"waiting", cost.waiting_s}},
          .bytes = cost.most_bytes()};
}

ComparedWay compared(const ExactWay& way) {
  ComparedWay out{.text = way_text(way),
                  .step_s = static_cast<double>(way.price.total) * 1e-12,
                  .items = {},
                  .bytes = std::ranges::max(way.crew_bytes)};
  for (const auto& [name, ps] : step_items(way)) out.items.emplace_back(name, static_cast<double>(ps) * 1e-12);
  return out;
}

std::optional<ComparedWay> best_of(const JobPlan& plan) {
  return plan.best.empty() ? std::nullopt : std::optional(compared(plan.best.front()));
}

std::optional<ComparedWay> best_of(const ExactPlan& plan) {
  return plan.best.empty() ? std::nullopt : std::optional(compared(plan.best.front()));
}

std::string why_not_text(const JobPlan& chosen, const JobPlan& kept, const WayRule& rule) {
  const PlanLedger& ledger = kept.ledger;
  return why_not(rule, ledger.ways, best_of(chosen), best_of(kept), [&] {
    return why_none_fits(kept) + refused_text(ledger.do_not_divide, ledger.ways, ledger.first_refusal);
  });
}

std::string why_not_text(const ComparedPlan& chosen, const ComparedPlan& kept, const WayRule& rule) {
  const auto best = [&](const ComparedPlan& of) {
    if (!of.compiled) return best_of(of.plan);
    return of.compiled->has_any() ? best_of(as_job_plan(of.plan, *of.compiled)) : std::nullopt;
  };
  const PlanLedger ledger = kept.compiled ? as_job_plan(kept.plan, *kept.compiled).ledger : ledger_of(kept.plan.ledger);
  std::string out = why_not(rule, ledger.ways, best(chosen), best(kept), [&] {
    const std::string& of_tables = kept.plan.first_refusal;
    return (kept.plan.nearest ? nearest_fit_text(*kept.plan.nearest, kept.plan.memory_bytes) : "") +
           refused_text(ledger.do_not_divide, ledger.ways, of_tables.empty() ? ledger.first_refusal : of_tables);
  });
  if (!kept.plan.is_proven)
    out += "  not proven, as the search was stopped (--most-jobs): there may be a faster way that keeps it\n";
  return out;
}

std::vector<Sensitivity> sensitivities(
    const PlanRequest& request, const Machine& machine, int64_t memory_bytes,
    const std::function<std::optional<ComparedWay>(const PlanRequest&)>& plan_again) {
  require(!request.job.parallel.machine.empty(),
          "plan: sensitivities change the figures of a machine's file, and none is given; name one with --machine");
  const TempDirectory files;
  std::vector<Sensitivity> out;
  const auto look = [&](std::string what, const Machine& changed, int64_t memory) {
    PlanRequest other = request;
    other.job.parallel.machine = files / fmt::format("{}.toml", out.size());
    write_machine(changed, other.job.parallel.machine);
    other.memory_bytes = memory;
    other.top = 1;
    out.push_back({std::move(what), plan_again(other)});
  };
  look("all links half as fast", with_links(machine, 0, 0.5), memory_bytes);
  look("all links twice as fast", with_links(machine, 0, 2), memory_bytes);
  for (size_t level = 1; level < machine.levels.size(); ++level) {  // that some pair of these ranks needs
    if (machine.levels[level - 1].devices >= request.ranks) break;
    const bool is_last = level + 1 == machine.levels.size();
    look(fmt::format("{}{} half as fast", machine.levels[level].name, is_last ? "" : " and beyond"),
         with_links(machine, level, 0.5), memory_bytes);
  }
  look("half the memory", machine, memory_bytes / 2);
  look("twice the memory", machine, memory_bytes * 2);
  look("arithmetic twice as fast", with_arithmetic(machine, 2), memory_bytes);
  return out;
}

std::string sensitivities_text(const std::optional<ComparedWay>& now, const std::vector<Sensitivity>& all) {
  std::string out = "if the machine were different, planned again:\n";
  for (const Sensitivity& each : all) {
    out += fmt::format("  {:<26} ", each.what);
    if (!each.best) {
      out += "nothing fits\n";
      continue;
    }
    out += fmt::format("{:>12.3f} ms", each.best->step_s * 1e3);
    if (!now) {
      out += ", by " + each.best->text + "\n";
      continue;
    }
    out += fmt::format(" ({:+.2f} %), {}\n", 100 * (each.best->step_s / now->step_s - 1),
                       each.best->text == now->text ? "by the same way" : "by " + each.best->text);
  }
  return out;
}

}  // namespace trireme
