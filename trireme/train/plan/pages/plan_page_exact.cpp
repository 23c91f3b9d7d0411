// The page of an exact plan: the step as the tables of its parts and the schedule's timetable have it.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <tuple>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/parallel/timetable/schedules.h"
#include "trireme/parallel/timetable/timetable_time.h"
#include "trireme/train/plan/pages/plan_page.h"
#include "trireme/train/report/progress.h"

namespace trireme {
namespace {

std::string ms_text(int64_t ps) {
  return fmt::format("{:.3f} ms", static_cast<double>(ps) * 1e-9);
}

// What one stage takes, part by part.
struct StageParts {
  int64_t forward = 0, input = 0, weight = 0, once = 0;  // ps
  int64_t persistent = 0, gradients = 0, work = 0;       // bytes; the first with what is held for the step
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
      sum.persistent += part.persistent + part.held;
      sum.gradients += part.gradients;
      sum.kept += part.kept;
      sum.waiting += part.waiting;
      sum.work = std::max(sum.work, part.work);
    }
  }
  return out;
}

// What all stages of each crew take together.
std::vector<StageParts> crews_of_way(const ExactWay& way, const std::vector<StageParts>& stages) {
  std::vector<StageParts> out(way.crew_bytes.size());
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    StageParts& sum = out[stage % out.size()];
    sum.once += stages[stage].once;
    sum.persistent += stages[stage].persistent;
    sum.gradients += stages[stage].gradients;
    sum.work = std::max(sum.work, stages[stage].work);
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
  const int64_t crews = way.problem.shape.crews();
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
  out.timetable = crews == 1 ? alone(way.problem.micro_batches)
                             : make_timetable(schedule_of(way.outer.schedule),
                                              {.crews = static_cast<int>(crews),
                                               .stages_per_crew = static_cast<int>(way.outer.virtual_stages),
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

// What a row is called: crews are called stages where each has one.
const char* row_name(const ExactWay& way) {
  return way.outer.virtual_stages == 1 ? "stage" : "crew";
}

LaneRow row_of(const ExactWay& way, const TimedTimetable& timed, const std::vector<StageParts>& crews, size_t at,
               bool has_titles) {
  LaneRow out{.name = stages_name(row_name(way), at, at + 1, crews.size()), .spans = {}};
  const TimetableTime::Crew& crew = timed.time.crews[at];
  for (size_t i = 0; i < crew.units.size(); ++i) {
    const Unit& unit = timed.timetable.crews[at][i];
    const auto [color, name] = pass_of(unit);
    LaneSpan& span = out.spans.emplace_back(LaneSpan{crew.units[i].begin, crew.units[i].end, color});
    span.label = std::to_string(unit.micro_batch);
    if (has_titles)
      span.title = fmt::format("{} of micro-batch {}{}: {:.3f} ms from {:.3f} ms on", name, unit.micro_batch,
                               way.outer.virtual_stages == 1 ? "" : fmt::format(", stage {}", unit.stage),
                               1e3 * (span.end_s - span.begin_s), 1e3 * span.begin_s);
  }
  if (crews[at].once > 0)
    out.spans.push_back({crew.end, crew.end + static_cast<double>(crews[at].once) * 1e-12, "c7",
                         "sums of gradients, update: " + ms_text(crews[at].once)});
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

void add_timelines(const ExactWay& way, const TimedTimetable& timed, const std::vector<StageParts>& crews,
                   PlanPage& page) {
  LanesChart all{.title = fmt::format("schedule {}, {}", to_string(way.outer.schedule),
                                      counted(way.problem.micro_batches, "micro-batch")),
                 .rows = {}};
  size_t units = 0;
  const std::vector<size_t> drawn = drawn_stages(crews.size());
  for (size_t crew = 0; crew < crews.size(); ++crew)
    all.end_s = std::max(all.end_s, timed.time.crews[crew].end + static_cast<double>(crews[crew].once) * 1e-12);
  for (const size_t crew : drawn) units += timed.timetable.crews[crew].size();
  for (const size_t crew : drawn) all.rows.push_back(row_of(way, timed, crews, crew, units <= kMostTitled));
  page.timelines.push_back(std::move(all));
  const std::vector<TimetableTime::Span>& last = timed.time.crews.back().units;
  if (last.size() > kMostLegible)
    page.timelines.push_back(beginning_of(page.timelines.front(), last[kMostLegible / 3].end));
}

// What a crew keeps: activations of micro-batches whose forward pass has begun and whose backward pass has not ended,
// and what is left of them where weight gradients alone are to come.
AreaChart tables_memory(const TimedTimetable& timed, const std::vector<StageParts>& stages, const StageParts& all,
                        size_t crew, double end_s) {
  AreaChart out{.title = "bytes over the step, by the tables",
                .parts = {{"parameters and state", "c1"}, {"gradients", "c2"}, {"activations", "c3"}, {"work", "c4"}},
                .points = {},
                .end_s = end_s};
  std::vector<std::pair<double, int64_t>> changes{{0, 0}};
  for (size_t i = 0; i < timed.timetable.crews[crew].size(); ++i) {
    const TimetableTime::Span& span = timed.time.crews[crew].units[i];
    const StageParts& stage = stages[static_cast<size_t>(timed.timetable.crews[crew][i].stage)];
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
                          {static_cast<double>(all.persistent), static_cast<double>(all.gradients),
                           static_cast<double>(live), static_cast<double>(all.work)}});
  }
  return out;
}

// Crews that follow each other and hold as much are one.
void add_tables_memory(const ExactWay& way, const TimedTimetable& timed, const std::vector<StageParts>& stages,
                       const std::vector<StageParts>& crews, PlanPage& page) {
  for (size_t crew = 0, end = 0; crew < crews.size(); crew = end) {
    while (end < crews.size() && way.crew_bytes[end] == way.crew_bytes[crew]) ++end;
    const StageParts& of = crews[crew];
    PlanPage::Memory& out = page.memory.emplace_back(
        PlanPage::Memory{.of = stages_name(row_name(way), crew, end, crews.size()),
                         .bytes = way.crew_bytes[crew],
                         .kinds = {{"parameters and state", of.persistent},
                                   {"gradients", of.gradients},
                                   {"activations", way.crew_bytes[crew] - of.persistent - of.gradients - of.work},
                                   {"work", of.work}},
                         .over_time = tables_memory(timed, stages, of, crew, page.timelines.front().end_s)});
    out.over_time.limit = static_cast<double>(page.memory_limit);
  }
}

// Of the tables, which have nothing hidden but moves of what is kept elsewhere: average of crews, and of what is done
// once the crew that takes longest.
std::vector<std::vector<std::string>> exact_transfers(const ExactWay& way) {
  const int64_t crews = way.problem.shape.crews(), all = way.problem.micro_batches;
  int64_t forward = 0, backward = 0;
  int64_t leaving = 0, returning = 0, leaving_exposed = 0, returning_exposed = 0;
  std::vector<int64_t> sums(static_cast<size_t>(crews), 0), coming = sums, going = sums, updating = sums;
  for (const PartPrice& part : way.problem.parts) {
    forward += part.moving_forward;
    backward += part.moving_backward;
    leaving += part.leaving;
    returning += part.returning;
    leaving_exposed += part.forward_pass() - part.forward - part.moving_forward;
    returning_exposed += part.input_pass() - part.again - part.input_grad - part.moving_backward;
  }
  for (size_t stage = 0; stage < way.begins.size(); ++stage) {
    const size_t end =
        stage + 1 < way.begins.size() ? static_cast<size_t>(way.begins[stage + 1]) : way.problem.parts.size();
    for (auto i = static_cast<size_t>(way.begins[stage]); i < end; ++i) {
      const PartPrice& part = way.problem.parts[i];
      sums[stage % sums.size()] += part.sync;
      coming[stage % sums.size()] += part.coming;
      going[stage % sums.size()] += part.going;
      updating[stage % sums.size()] += part.updating;
    }
  }
  const PipelineShape& shape = way.problem.shape;
  int64_t waited_for = shape.transfers + shape.more_transfers * all / crews;
  if (shape.chunks > 1) waited_for = 2 * way.price.crossings / std::max<int64_t>(1, way.problem.crossing);
  std::vector<std::vector<std::string>> out;
  const auto ms = [](int64_t ps) { return fmt::format("{:.3f}", static_cast<double>(ps) * 1e-9); };
  const auto add = [&](const char* name, int64_t calls, int64_t ps, int64_t exposed) {
    if (ps > 0) out.push_back({name, fmt::format("{}", calls), ms(ps), ms(ps - exposed), ms(exposed)});
  };
  const auto add_exposed = [&](const char* name, int64_t calls, int64_t ps) { add(name, calls, ps, ps); };
  const auto of_all = [&](int64_t ps) { return ps * all / crews; };
  add_exposed("within a stage, forward", all, of_all(forward));
  add_exposed("within a stage, backward", all, of_all(backward));
  add("what is kept, from the device", all, of_all(leaving), of_all(leaving_exposed));
  add("what is kept, back to it", all, of_all(returning), of_all(returning_exposed));
  add_exposed("sums of gradients and gathers of weights, once", 1, std::ranges::max(sums));
  add_exposed("to the device, once, at the same time as what goes back", 1, std::ranges::max(coming));
  add_exposed("from the device, once", 1, std::ranges::max(going));
  add_exposed("updates on the host, once, at the same time", 1, std::ranges::max(updating));
  add_exposed("between stages, where they are waited for", waited_for, way.price.crossings);
  return out;
}

void add_exact_ledger(const ExactPlan& plan, PlanPage& page) {
  const OuterLedger& l = plan.ledger;
  const std::pair<const char*, int64_t> counts[] = {
      {"ways", l.ways},
      {"solved", l.solved},
      {"slower by their prices or bounds of them", l.slower},
      {"too large by these", l.memory},
      {"too large by their parameters alone", l.memory_least},
      {"slower by their arithmetic alone", l.bound},
      {"have state, updates or what is kept farther, or that in slices, without need", l.needless},
      {"do not go with the model, the batch or the ranks", l.do_not_divide},
      {"undecided, as the search was stopped", l.open},
      {"jobs of one block that were compiled", plan.jobs_compiled},
      {"tables of parts that were known before", plan.tables_reused}};
  for (const auto& [name, count] : counts) page.ledger.emplace_back(name, fmt::format("{}", count));
  if (plan.is_proven && l.solved == 0) {
    page.bound = "Nothing is proven of it: by the tables no way fits.";
  } else if (!plan.best.empty() && !plan.fits_by_tables(plan.best.front())) {
    page.bound = "Nothing is proven of it: by the tables it does not fit.";
  } else {
    page.bound = fmt::format("{} over the tables: no way takes less than {}.",
                             plan.is_proven ? "Proven" : "So much is proven", ms_text(plan.least_ps));
  }
  page.bound += fmt::format(" No way at all takes less than {}, the arithmetic alone.", ms_text(plan.bound_ps));
}

void add_exact_ways(const ExactPlan& plan, PlanPage& page) {
  const auto best = static_cast<double>(plan.best.front().price.total);
  for (const ExactWay& each : plan.best) {
    page.ways.push_back({way_text(each), fmt::format("{:.3f}", static_cast<double>(each.price.total) * 1e-9),
                         &each == &plan.best.front()
                             ? "the best"
                             : fmt::format("{:+.2f} %", 100 * (static_cast<double>(each.price.total) / best - 1)),
                         fmt::format("{:.1f}", static_cast<double>(std::ranges::max(each.crew_bytes)) / 1048576.0)});
  }
  add_exact_ledger(plan, page);
}

// The plan as if one of its ways were the best, with what follows it.
ExactPlan from_way_on(const ExactPlan& plan, size_t way) {
  ExactPlan out = plan;
  if (way < plan.best.size()) {
    out.best.erase(out.best.begin(), out.best.begin() + static_cast<std::ptrdiff_t>(way));
  } else {
    out.best = {plan.way(way)};
  }
  return out;
}

// How a block of each kind, what stands before and what stands after are cut: those of a job of these on the ranks of a
// stage.
void add_block_cuts(const ExactPlan& plan, const ExactWay& way, const PlanRequest& request, PlanPage& page) {
  const InnerWay& inner = way.outer.inner;
  PlanRequest reduced = request;
  reduced.ranks = inner.ranks();
  std::vector<std::string> keys = one_block_keys(request.job);
  keys.push_back(fmt::format("train.batch={}", inner.samples()));
  set_keys(reduced.job, keys);
  const Compiled compiled = compile_way(reduced, inner.way());
  page.axes = axis_levels(plan.machine, compiled.plan().mesh, way.outer.pp);
  page.weights = weight_cuts(compiled.graph, compiled.strategy);
  page.ops = op_cuts(compiled.graph, compiled.strategy);
  std::vector<std::vector<int>> blocks_of_kind(static_cast<size_t>(plan.parts.kind_count()));
  for (size_t block = 0; block < plan.parts.kinds.size(); ++block)
    blocks_of_kind[static_cast<size_t>(plan.parts.kinds[block])].push_back(static_cast<int>(block));
  for (std::vector<LayerCut>* cuts : {&page.weights, &page.ops})
    name_all_blocks(plan.parts.blocks, blocks_of_kind, *cuts);
}

void add_stage_names(const ExactPlan& plan, const ExactWay& way, PlanPage& page) {
  if (way.begins.size() == 1) return;
  for (size_t stage = 0; stage < way.begins.size(); ++stage) {
    const int64_t end = stage + 1 < way.begins.size() ? way.begins[stage + 1] : plan.parts.count();
    const int64_t first = std::max<int64_t>(way.begins[stage], 1), last = std::min(end - 1, plan.parts.layers());
    std::string name = way.begins[stage] == 0 ? "what stands before the blocks" : "";
    if (first <= last)
      name += fmt::format("{}{}.{}..{}", name.empty() ? "" : ", ", plan.parts.blocks, first - 1, last - 1);
    if (end == plan.parts.count()) name += fmt::format("{}what stands after them", name.empty() ? "" : ", ");
    page.stages.push_back({.name = name, .cut = std::to_string(stage), .type = "", .state = ""});
  }
}

}  // namespace

PlanPage page_of(const ExactPlan& plan, const CompiledPlan& compiled, const PlanRequest& request,
                 const PlannedTokens& tokens) {
  if (compiled.which) return page_of(from_way_on(plan, *compiled.which), request, tokens);
  PlanPage page = page_of(as_job_plan(plan, compiled), request, tokens);
  page.ledger.clear();
  add_exact_ledger(plan, page);
  page.ledger.emplace_back("beside them, that no table knows", fmt::format("{}", compiled.beside.ledger.ways));
  page.ledger.emplace_back("fit of these", fmt::format("{}", compiled.beside.ledger.fit));
  return page;
}

PlanPage page_of(const ExactPlan& plan, const PlanRequest& request, const PlannedTokens& tokens) {
  require(!plan.best.empty(), "plan: nothing fits, so there is no plan to draw");
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
                    fmt::format("{:.1f} MiB", static_cast<double>(std::ranges::max(best.crew_bytes)) / 1048576.0)}};
  constexpr const char* kItemColors[] = {"c1", "c2", "c5", "c6", "c4", "c4 s2", "c3", "c7", "c7 s2"};
  add_beside(plan.setting.beside, std::ranges::max(best.host_bytes), std::ranges::max(best.disk_bytes), page);
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
  const std::vector<StageParts> crews = crews_of_way(best, stages);
  add_timelines(best, timed, crews, page);
  page.timeline_aside =
      fmt::format("by the tables; {}", crews.size() > page.timelines.front().rows.size()
                                           ? fmt::format("the first and the last of the {}s", row_name(best))
                                           : "collectives are part of the passes");
  add_tables_memory(best, timed, stages, crews, page);
  add_block_cuts(plan, best, request, page);
  add_stage_names(plan, best, page);
  add_exact_ways(plan, page);
  return page;
}

}  // namespace trireme
