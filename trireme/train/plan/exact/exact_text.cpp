// What the exact search found, for people.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "trireme/base/counted.h"
#include "trireme/train/plan/exact/crew_kinds.h"
#include "trireme/train/plan/exact/exact_plan.h"

namespace trireme {
namespace {

double exact_ms(int64_t ps) {
  return static_cast<double>(ps) * 1e-9;
}

double exact_mib(int64_t bytes) {
  return static_cast<double>(bytes) / 1048576.0;
}

std::string ledger_text(const ExactPlan& plan) {
  const OuterLedger& l = plan.ledger;
  const char* const joined =
      plan.setting.figures.is_joined
          ? "no pipeline is among the ways, and none with several micro-batches: these depend on each other in this "
            "mixture, so that all would be kept until the last one has gone forward. Let model.expert_groups be a "
            "multiple of train.batch, and model.aux_loss_factor = 0\n"
          : "";
  return joined +
         fmt::format(
             "{}: {} solved, {} slower by their prices or bounds of them, {} too large by these, {} too large by their "
             "parameters alone, {} slower by their arithmetic alone, {}{} do not go with the model, the batch or the "
             "ranks{}\n"
             "{} jobs of one block were compiled for the prices of parts{}; nothing of the job's size was\n",
             counted(l.ways, "way"), l.solved, l.slower, l.memory, l.memory_least, l.bound,
             l.needless > 0
                 ? fmt::format("{} have state, updates or kept activations farther, or these in slices, without need, ",
                               l.needless)
                 : "",
             l.do_not_divide, l.open == 0 ? "" : fmt::format(", {} undecided", l.open), plan.jobs_compiled,
             plan.tables_reused == 0 ? ""
                                     : fmt::format(" beside {} known before", counted(plan.tables_reused, "table")));
}

// Ways that differ in sp, the vocabulary, rows and virtual stages alone are one line, of the fastest of them.
bool are_alike(const ExactWay& a, const ExactWay& b) {
  const auto key = [](const OuterWay& way) {
    const InnerWay& of = way.inner;
    return std::tuple(way.pp, of.tp, of.cp, of.ep, of.dp, way.schedule, of.recompute, of.zero, of.kept_slices, of.keep,
                      of.place);
  };
  return key(a.outer) == key(b.outer);
}

std::string next_text(const ExactPlan& plan) {
  std::string out;
  const auto& ways = plan.best;
  for (auto way = ways.begin(); way != ways.end(); ++way) {
    const auto alike = [&](const ExactWay& other) { return are_alike(other, *way); };
    if (std::any_of(ways.begin(), way, alike)) continue;
    const auto others = std::count_if(way + 1, ways.end(), alike);
    const std::string like_it = others == 0 ? "" : fmt::format("{} like it", others);
    if (way == ways.begin()) {
      if (others > 0)
        out += fmt::format("next: {}, other than it in sp, vocabulary, rows or virtual stages\n", like_it);
      continue;
    }
    out += fmt::format("next: {} takes {:.3f} ms, {:.1f} MiB{}\n", way_text(*way), exact_ms(way->price.total),
                       exact_mib(std::ranges::max(way->crew_bytes)), others == 0 ? "" : ", and " + like_it);
  }
  return out;
}

std::string items_text(const ExactWay& way) {
  std::string out;
  for (const auto& [name, ps] : step_items(way)) out += fmt::format("  {:<13} {:>12.3f} ms\n", name, exact_ms(ps));
  return out;
}

constexpr size_t kMostStageLines = 8;  // entries

std::string kinds_text(const ByteKinds& kinds) {
  std::string out;
  for (const auto& [name, bytes] : kinds) {
    if (bytes > 0) out += fmt::format("  {:<38} {:>10.1f} MiB\n", name, exact_mib(bytes));
  }
  return out;
}

// Crews that follow each other and hold the same are one entry; where that makes many, the fullest is. Where each has
// one stage crews are called that.
std::string stages_text(const ExactPlan& plan, const ExactWay& way) {
  std::string out;
  const char* const what = way.outer.virtual_stages == 1 ? "stage" : "crew";
  const std::vector<ByteKinds> kinds = kinds_of_crews(way.problem, way.begins);
  size_t unlike = 0;
  for (size_t i = 0; i < kinds.size(); ++i) unlike += i == 0 || kinds[i] != kinds[i - 1] ? 1 : 0;
  if (unlike > kMostStageLines) {
    const auto [least, most] = std::ranges::minmax_element(way.crew_bytes);
    const auto fullest = static_cast<size_t>(most - way.crew_bytes.begin());
    return fmt::format("memory of each of {} {}s {:.1f} to {:.1f} MiB, the most of {} {}\n", way.crew_bytes.size(),
                       what, exact_mib(*least), exact_mib(*most), what, fullest) +
           kinds_text(kinds[fullest]);
  }
  const auto crews = way.crew_bytes.size();
  for (size_t first = 0, end = 0; first < crews; first = end) {
    while (end < crews && kinds[end] == kinds[first]) ++end;
    const std::string which = crews == 1         ? ""
                              : end - first == 1 ? fmt::format(" of {} {}", what, first)
                                                 : fmt::format(" of each of {}s {} to {}", what, first, end - 1);
    out += fmt::format("memory{} {:.1f} MiB", which, exact_mib(way.crew_bytes[first]));
    if (way.outer.virtual_stages == 1) {
      const int64_t last_part = end < crews ? way.begins[end] - 1 : plan.parts.count() - 1;
      out += fmt::format(", parts {} to {}", way.begins[first], last_part);
    }
    out += "\n" + kinds_text(kinds[first]);
  }
  return out;
}

// What lies beside the device, of the crew that has the most there, and what a rank has.
std::string beside_text(const ExactPlan& plan, const ExactWay& way) {
  std::string out;
  const BesideBytes& room = plan.setting.beside;
  for (const auto& [tier, crews, of] :
       {std::tuple(Tier::kHost, &way.host_bytes, room.host), std::tuple(Tier::kDisk, &way.disk_bytes, room.disk)}) {
    const int64_t most = std::ranges::max(*crews);
    if (most > 0)
      out += fmt::format("on the {} {:.1f} MiB of {:.1f} a rank\n", to_string(tier), exact_mib(most), exact_mib(of));
  }
  return out;
}

// Of the crew whose step takes longest once.
int64_t moves_of_step(const ExactWay& way) {
  std::vector<std::pair<int64_t, int64_t>> crews(way.crew_bytes.size());  // all that is done once; of it the moves
  for (size_t stage = 0; stage < way.begins.size(); ++stage) {
    const size_t end =
        stage + 1 < way.begins.size() ? static_cast<size_t>(way.begins[stage + 1]) : way.problem.parts.size();
    for (auto i = static_cast<size_t>(way.begins[stage]); i < end; ++i) {
      crews[stage % crews.size()].first += way.problem.parts[i].once();
      crews[stage % crews.size()].second += way.problem.parts[i].moves();
    }
  }
  return std::ranges::max(crews).second;
}

}  // namespace

std::string way_text(const ExactWay& way) {
  const InnerWay& inner = way.outer.inner;
  std::string out = way.outer.way().text();
  if (inner.dp > 1) out += fmt::format(" (dp {}, {} each)", inner.dp, counted(inner.rows, "row"));
  return out;
}

std::vector<std::pair<std::string, int64_t>> step_items(const ExactWay& way) {
  PartPrice sum;
  int64_t passes = 0;
  for (const PartPrice& part : way.problem.parts) {
    passes += part.pass();
    for (const auto field : {&PartPrice::forward, &PartPrice::input_grad, &PartPrice::weight_grad, &PartPrice::again,
                             &PartPrice::moving_forward, &PartPrice::moving_backward})
      sum.*field += part.*field;
  }
  const int64_t all = way.problem.micro_batches, crews = way.problem.shape.crews();
  const auto of = [&](int64_t ps) { return ps * all / crews; };
  const int64_t average = of(passes);
  const int64_t moves = moves_of_step(way);
  std::vector<std::pair<std::string, int64_t>> out{{"forward", of(sum.forward)},
                                                   {"backward", of(sum.input_grad + sum.weight_grad)},
                                                   {"recomputed", of(sum.again)},
                                                   {"collectives", of(sum.moving_forward + sum.moving_backward)},
                                                   {"imbalance", all * way.price.slowest - average},
                                                   {"bubble", way.price.fill},
                                                   {"messages", way.price.crossings},
                                                   {"sums, update", way.price.once - moves}};
  if (way.outer.inner.keep != Tier::kDevice) out.emplace_back("kept's moves", of(passes - sum.pass()));
  const bool updates = way.outer.inner.place.update == Tier::kHost;
  if (moves > 0) out.emplace_back(updates ? "host's update" : "state's moves", moves);
  return out;
}

std::string exact_text(const ExactPlan& plan, int64_t ranks, int64_t tokens, std::string_view unit) {
  std::string out = fmt::format("plan for {} by the rates of {}, {:.1f} MiB of memory a rank\n", counted(ranks, "rank"),
                                named_rates(plan.machine), exact_mib(plan.memory_bytes));
  if (plan.best.empty()) {
    if (!plan.is_proven) {
      out += "no way that fits was found before the search was stopped; give it more with --most-jobs\n";
      return out + ledger_text(plan);
    }
    if (plan.ledger.ways == 0) return out + "no way that tables know is among those asked for\n";
    out += fmt::format("{}no way of cutting it fits in {:.1f} MiB on each rank\n",
                       plan.others.empty() ? "" : "by the tables ", exact_mib(plan.memory_bytes));
    if (plan.ledger.do_not_divide == plan.ledger.ways && !plan.first_refusal.empty())
      out += fmt::format("  {}\n", plan.first_refusal);
    if (plan.nearest) out += nearest_fit_text(*plan.nearest, plan.memory_bytes);
    return out + ledger_text(plan);
  }
  const ExactWay& best = plan.best.front();
  const double step_s = static_cast<double>(best.price.total) * 1e-12;
  out += fmt::format("best: {}\n", way_text(best));
  out += fmt::format("step {:>12.3f} ms, {:.4g} {}/s, {:.1f} % of the peak; from the tables of its parts, with all\n",
                     exact_ms(best.price.total), static_cast<double>(tokens) / step_s, unit,
                     100 * plan.flops / (step_s * plan.peak_flops_per_s));
  out += "collectives as if nothing hid them\n";
  out += items_text(best) + stages_text(plan, best) + beside_text(plan, best);
  out += next_text(plan);
  if (plan.is_proven) {
    out += fmt::format("proven over the tables: no way takes less than {:.3f} ms; gap 0\n", exact_ms(best.price.total));
  } else {
    out += fmt::format(
        "not proven, as the search was stopped (--most-jobs): by the tables no way takes less than {:.3f} ms, {:.1f} % "
        "below this one\n",
        exact_ms(plan.least_ps),
        100 * (1 - static_cast<double>(plan.least_ps) / static_cast<double>(best.price.total)));
  }
  out += fmt::format("no way at all takes less than {:.3f} ms, the arithmetic alone\n", exact_ms(plan.bound_ps));
  return out + ledger_text(plan);
}

}  // namespace trireme
