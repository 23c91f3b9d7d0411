// The page of an exact plan: the step as the tables of its parts and the schedule's timetable have it.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/parallel/timetable/schedules.h"
#include "trireme/parallel/timetable/timetable_time.h"
#include "trireme/train/plan/plan_page.h"
#include "trireme/train/report/progress.h"

namespace trireme {
namespace {

std::string ms_text(int64_t ps) {
  return fmt::format("{:.3f} ms", static_cast<double>(ps) * 1e-9);
}

// What one stage takes, part by part.
struct StageParts {
  int64_t forward = 0, input = 0, weight = 0, once = 0;  // ps
  int64_t persistent = 0, gradients = 0, work = 0;       // bytes
  int64_t kept = 0, waiting = 0;                         // bytes of a micro-batch
};

std::vector<StageParts> stages_of_way(const ExactWay& way) {
  std::vector<StageParts> out;
  for (size_t stage = 0; stage < way.begins.size(); ++stage) {
    const size_t end =
        stage + 1 < way.begins.size() ? static_cast<size_t>(way.begins[stage + 1]) : way.problem.parts.size();
    StageParts& sum = out.emplace_back();
    for (auto i = static_cast<size_t>(way.begins[stage]); i < end; ++i) {
      const PartPrice& part = way.problem.parts[i];
      sum.forward += part.forward_pass();
      sum.input += part.input_pass();
      sum.weight += part.weight_grad;
      sum.once += part.once();
      sum.persistent += part.persistent;
      sum.gradients += part.gradients;
      sum.kept += part.kept;
      sum.waiting += part.waiting;
      sum.work = std::max(sum.work, part.work);
    }
  }
  return out;
}

// One crew: passes of its micro-batches, one after the other.
Timetable alone(int64_t micro_batches) {
  Timetable out{.name = "alone", .micro_batches = static_cast<int>(micro_batches), .crews = {{}}};
  for (int i = 0; i < out.micro_batches; ++i) {
    out.crews[0].push_back({Unit::Pass::kForward, 0, i});
    out.crews[0].push_back({Unit::Pass::kBackward, 0, i});
  }
  return out;
}

// The schedule's timetable with the stages' passes. Times are in seconds.
struct TimedTimetable {
  Timetable timetable;
  TimetableTime time;
};

TimedTimetable timed_timetable(const ExactWay& way, const std::vector<StageParts>& stages) {
  const auto crews = static_cast<int64_t>(stages.size());
  const auto pass = [](const StageParts& stage) { return stage.forward + stage.input + stage.weight; };
  const StageParts& slowest = *std::ranges::max_element(stages, {}, pass);
  UnitCosts costs{.forward = static_cast<double>(slowest.forward) * 1e-12,
                  .input_grad = static_cast<double>(slowest.input) * 1e-12,
                  .weight_grad = static_cast<double>(slowest.weight) * 1e-12,
                  .transfer = static_cast<double>(way.problem.crossing) * 0.5e-12};
  for (const StageParts& stage : stages)
    costs.of_stage.push_back(static_cast<double>(pass(stage)) /
                             static_cast<double>(std::max<int64_t>(1, pass(slowest))));
  TimedTimetable out;
  out.timetable =
      crews == 1 ? alone(way.problem.micro_batches)
                 : make_timetable(way.outer.schedule, {.crews = static_cast<int>(crews),
                                                       .stages_per_crew = 1,
                                                       .micro_batches = static_cast<int>(way.problem.micro_batches),
                                                       .seq_chunks = 1});
  out.time = time_of(out.timetable, costs);
  return out;
}

std::pair<std::string, const char*> pass_of(const Unit& unit) {
  switch (unit.pass) {
    case Unit::Pass::kForward:
      return {"c1", "forward"};
    case Unit::Pass::kWeightGrad:
      return {"c5", "weight gradients"};
    case Unit::Pass::kInputGrad:
      return {"c2", "input gradients"};
    case Unit::Pass::kBackward:
      return {"c2", "backward"};
  }
  return {"c7", ""};
}

constexpr size_t kMostTitled = 3000;  // spans: more would make the page large
constexpr size_t kMostLegible = 60;   // of a row

LaneRow row_of(const TimedTimetable& timed, const std::vector<StageParts>& stages, size_t stage, bool has_titles) {
  LaneRow out{.name = stages_name("stage", stage, stage + 1, stages.size()), .spans = {}};
  const TimetableTime::Crew& crew = timed.time.crews[stage];
  for (size_t i = 0; i < crew.units.size(); ++i) {
    const Unit& unit = timed.timetable.crews[stage][i];
    const auto [color, name] = pass_of(unit);
    LaneSpan& span = out.spans.emplace_back(LaneSpan{crew.units[i].begin, crew.units[i].end, color});
    span.label = std::to_string(unit.micro_batch);
    if (has_titles)
      span.title = fmt::format("{} of micro-batch {}: {:.3f} ms from {:.3f} ms on", name, unit.micro_batch,
                               1e3 * (span.end_s - span.begin_s), 1e3 * span.begin_s);
  }
  if (stages[stage].once > 0)
    out.spans.push_back({crew.end, crew.end + static_cast<double>(stages[stage].once) * 1e-12, "c7",
                         "sums of gradients, update: " + ms_text(stages[stage].once)});
  return out;
}

// What of a chart is before a time.
LanesChart beginning_of(const LanesChart& chart, double end_s) {
  LanesChart out{.title = "how it begins", .rows = {}, .end_s = end_s, .row_height = chart.row_height};
  for (const LaneRow& row : chart.rows) {
    LaneRow& part = out.rows.emplace_back(LaneRow{.name = row.name, .spans = {}});
    for (const LaneSpan& span : row.spans) {
      if (span.begin_s >= end_s) break;
      part.spans.push_back(span);
      part.spans.back().end_s = std::min(span.end_s, end_s);
    }
  }
  return out;
}

void add_timelines(const ExactWay& way, const TimedTimetable& timed, const std::vector<StageParts>& stages,
                   PlanPage& page) {
  LanesChart all{
      .title = fmt::format("schedule {}, {}", way.outer.schedule, counted(way.problem.micro_batches, "micro-batch")),
      .rows = {}};
  size_t units = 0;
  const std::vector<size_t> drawn = drawn_stages(stages.size());
  for (size_t stage = 0; stage < stages.size(); ++stage)
    all.end_s = std::max(all.end_s, timed.time.crews[stage].end + static_cast<double>(stages[stage].once) * 1e-12);
  for (const size_t stage : drawn) units += timed.timetable.crews[stage].size();
  for (const size_t stage : drawn) all.rows.push_back(row_of(timed, stages, stage, units <= kMostTitled));
  page.timelines.push_back(std::move(all));
  const std::vector<TimetableTime::Span>& last = timed.time.crews.back().units;
  if (last.size() > kMostLegible)
    page.timelines.push_back(beginning_of(page.timelines.front(), last[kMostLegible / 3].end));
}

// What a stage keeps: activations of micro-batches whose forward pass has begun and whose backward pass has not ended,
// and what is left of them where weight gradients alone are to come.
AreaChart tables_memory(const TimedTimetable& timed, const StageParts& stage, size_t crew, double end_s) {
  AreaChart out{.title = "bytes over the step, by the tables",
                .parts = {{"parameters and state", "c1"}, {"gradients", "c2"}, {"activations", "c3"}, {"work", "c4"}},
                .points = {},
                .end_s = end_s};
  std::vector<std::pair<double, int64_t>> changes{{0, 0}};
  for (size_t i = 0; i < timed.timetable.crews[crew].size(); ++i) {
    const TimetableTime::Span& span = timed.time.crews[crew].units[i];
    switch (timed.timetable.crews[crew][i].pass) {
      case Unit::Pass::kForward:
        changes.emplace_back(span.begin, stage.kept);
        break;
      case Unit::Pass::kBackward:
        changes.emplace_back(span.end, -stage.kept);
        break;
      case Unit::Pass::kInputGrad:
        changes.emplace_back(span.end, stage.waiting - stage.kept);
        break;
      case Unit::Pass::kWeightGrad:
        changes.emplace_back(span.end, -stage.waiting);
        break;
    }
  }
  std::ranges::stable_sort(changes);  // of equal moments what ends comes first
  int64_t live = 0;
  for (const auto& [at_s, change] : changes) {
    live += change;
    out.points.push_back({at_s,
                          {static_cast<double>(stage.persistent), static_cast<double>(stage.gradients),
                           static_cast<double>(live), static_cast<double>(stage.work)}});
  }
  return out;
}

// Stages that follow each other and hold as much are one.
void add_tables_memory(const ExactWay& way, const TimedTimetable& timed, const std::vector<StageParts>& stages,
                       PlanPage& page) {
  for (size_t stage = 0, end = 0; stage < stages.size(); stage = end) {
    while (end < stages.size() && way.stage_bytes[end] == way.stage_bytes[stage]) ++end;
    const StageParts& of = stages[stage];
    PlanPage::Memory& out = page.memory.emplace_back(
        PlanPage::Memory{.of = stages_name("stage", stage, end, stages.size()),
                         .bytes = way.stage_bytes[stage],
                         .kinds = {{"parameters and state", of.persistent},
                                   {"gradients", of.gradients},
                                   {"activations", way.stage_bytes[stage] - of.persistent - of.gradients - of.work},
                                   {"work", of.work}},
                         .over_time = tables_memory(timed, of, stage, page.timelines.front().end_s)});
    out.over_time.limit = static_cast<double>(page.memory_limit);
  }
}

// Of the tables, which have nothing hidden: average of stages, and of what is done once the stage that takes longest.
std::vector<std::vector<std::string>> exact_transfers(const ExactWay& way) {
  int64_t forward = 0, backward = 0, sums = 0;
  for (const PartPrice& part : way.problem.parts) {
    forward += part.moving_forward;
    backward += part.moving_backward;
  }
  for (size_t stage = 0; stage < way.begins.size(); ++stage) {
    const size_t end =
        stage + 1 < way.begins.size() ? static_cast<size_t>(way.begins[stage + 1]) : way.problem.parts.size();
    int64_t sync = 0;
    for (auto i = static_cast<size_t>(way.begins[stage]); i < end; ++i) sync += way.problem.parts[i].sync;
    sums = std::max(sums, sync);
  }
  const int64_t stages = way.problem.shape.stages(), all = way.problem.micro_batches;
  std::vector<std::vector<std::string>> out;
  for (const auto& [name, calls, ps] : {std::tuple("within a stage, forward", all, forward * all / stages),
                                        std::tuple("within a stage, backward", all, backward * all / stages),
                                        std::tuple("sums of gradients and gathers of weights, once", int64_t{1}, sums),
                                        std::tuple("between stages", stages - 1, way.price.crossings)}) {
    if (ps == 0) continue;
    const std::string ms = fmt::format("{:.3f}", static_cast<double>(ps) * 1e-9);
    out.push_back({name, fmt::format("{}", calls), ms, "0.000", ms});
  }
  return out;
}

void add_exact_ways(const ExactPlan& plan, PlanPage& page) {
  const auto best = static_cast<double>(plan.best.front().price.total);
  for (const ExactWay& each : plan.best) {
    page.ways.push_back({way_text(each), fmt::format("{:.3f}", static_cast<double>(each.price.total) * 1e-9),
                         &each == &plan.best.front()
                             ? "the best"
                             : fmt::format("{:+.2f} %", 100 * (static_cast<double>(each.price.total) / best - 1)),
                         fmt::format("{:.1f}", static_cast<double>(std::ranges::max(each.stage_bytes)) / 1048576.0)});
  }
  const OuterLedger& l = plan.ledger;
  const std::pair<const char*, int64_t> counts[] = {
      {"ways", l.ways},
      {"solved", l.solved},
      {"slower by their prices or bounds of them", l.slower},
      {"too large by these", l.memory},
      {"too large by their parameters alone", l.memory_least},
      {"slower by their arithmetic alone", l.bound},
      {"do not go with the model, the batch or the ranks", l.do_not_divide},
      {"jobs of one block that were compiled", plan.jobs_compiled}};
  for (const auto& [name, count] : counts) page.ledger.emplace_back(name, fmt::format("{}", count));
  page.bound = fmt::format(
      "Proven over the tables: no way takes less than {}. No way at all takes less than {}, the arithmetic alone.",
      ms_text(plan.best.front().price.total), ms_text(plan.bound_ps));
}

// How one block, what stands before and what stands after are cut: those of a job of one block on the ranks of a stage.
void add_block_cuts(const ExactPlan& plan, const ExactWay& way, const PlanRequest& request, PlanPage& page) {
  const InnerWay& inner = way.outer.inner;
  PlanRequest reduced = request;
  reduced.ranks = inner.ranks();
  set_keys(reduced.job, {"model.layers=1", "data.validation=0", fmt::format("train.batch={}", inner.rows * inner.dp)});
  const Compiled compiled = compile_way(reduced, inner.way());
  page.axes = axis_levels(plan.machine, compiled.plan().mesh, static_cast<int64_t>(way.begins.size()));
  page.weights = weight_cuts(compiled.graph, compiled.strategy);
  page.ops = op_cuts(compiled.graph, compiled.strategy);
  const std::string one = plan.parts.blocks + ".0",
                    all = fmt::format("{}.0..{}", plan.parts.blocks, plan.parts.layers - 1);
  for (std::vector<LayerCut>* cuts : {&page.weights, &page.ops}) {
    for (LayerCut& cut : *cuts) {
      if (!cut.name.starts_with(one)) continue;
      cut.name = all + cut.name.substr(one.size());
      cut.count = plan.parts.layers;
    }
  }
}

void add_stage_names(const ExactPlan& plan, const ExactWay& way, PlanPage& page) {
  if (way.begins.size() == 1) return;
  for (size_t stage = 0; stage < way.begins.size(); ++stage) {
    const int64_t end = stage + 1 < way.begins.size() ? way.begins[stage + 1] : plan.parts.count();
    const int64_t first = std::max<int64_t>(way.begins[stage], 1), last = std::min(end - 1, plan.parts.layers);
    std::string name = way.begins[stage] == 0 ? "what stands before the blocks" : "";
    if (first <= last)
      name += fmt::format("{}{}.{}..{}", name.empty() ? "" : ", ", plan.parts.blocks, first - 1, last - 1);
    if (end == plan.parts.count()) name += fmt::format("{}what stands after them", name.empty() ? "" : ", ");
    page.stages.push_back({.name = name, .cut = std::to_string(stage), .type = "", .state = ""});
  }
}

}  // namespace

PlanPage page_of(const ExactPlan& plan, const PlanRequest& request, const PlannedTokens& tokens) {
  require(!plan.best.empty(), "plan: nothing fits, so that there is no plan to draw");
  const ExactWay& best = plan.best.front();
  const double step_s = static_cast<double>(best.price.total) * 1e-12;
  PlanPage page{.title = fmt::format("{} on {}", request.job.name, counted(request.ranks, "rank")),
                .summary = fmt::format("{}; by the rates of '{}'", way_text(best), plan.machine.name),
                .memory_limit = plan.memory_bytes,
                .machine = plan.machine,
                .ranks = request.ranks};
  page.headline = {{"a step", ms_text(best.price.total)},
                   {tokens.unit + " a second", compact_number(static_cast<double>(tokens.per_step) / step_s)},
                   {"of the peak (MFU)", fmt::format("{:.1f} %", 100 * plan.flops / (step_s * plan.peak_flops_per_s))},
                   {fmt::format("of {:.1f} MiB of a rank's memory", static_cast<double>(plan.memory_bytes) / 1048576.0),
                    fmt::format("{:.1f} MiB", static_cast<double>(std::ranges::max(best.stage_bytes)) / 1048576.0)}};
  constexpr const char* kItemColors[] = {"c1", "c2", "c5", "c6", "c4", "c4 s2", "c3", "c7"};
  size_t color = 0;
  for (const auto& [name, ps] : step_items(best))
    page.step.push_back({name, static_cast<double>(std::max<int64_t>(0, ps)), ms_text(ps),
                         kItemColors[color++ % std::size(kItemColors)]});
  page.step_aside = ms_text(best.price.total) + ", average of stages";
  page.transfers = exact_transfers(best);
  page.step_note = "From the tables of the model's parts, with all collectives as if nothing hid them.";
  const std::vector<StageParts> stages = stages_of_way(best);
  const TimedTimetable timed = timed_timetable(best, stages);
  page.timeline_legend = {{"c1", "forward"}, {"c2", "backward"}, {"c5", "weight gradients"}, {"c7", "sums, update"}};
  add_timelines(best, timed, stages, page);
  page.timeline_aside = fmt::format("by the tables; {}", stages.size() > page.timelines.front().rows.size()
                                                             ? "the first and the last of the stages"
                                                             : "collectives are part of the passes");
  add_tables_memory(best, timed, stages, page);
  add_block_cuts(plan, best, request, page);
  add_stage_names(plan, best, page);
  add_exact_ways(plan, page);
  return page;
}

}  // namespace trireme
