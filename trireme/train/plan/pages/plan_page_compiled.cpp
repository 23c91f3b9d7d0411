// The page of a plan whose ways were compiled: the step as virtual time has it.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "trireme/base/error.h"
#include "trireme/exec/analysis/virtual_time.h"
#include "trireme/op/message.h"
#include "trireme/train/plan/pages/plan_page.h"
#include "trireme/train/report/memory_chart.h"
#include "trireme/train/report/progress.h"

namespace trireme {
namespace {

constexpr const char* kForwardColor = "c1";
constexpr const char* kBackwardColor = "c2";
constexpr const char* kAgainColor = "c5";
constexpr const char* kUpdateColor = "c7";
constexpr const char* kMovingColor = "c3";
constexpr const char* kExposedColor = "c6";

// A compiled step with what its actions take.
struct TimedStep {
  const Compiled& compiled;
  std::vector<std::vector<double>> seconds;  // by crew and action
  VirtualTime time;

  explicit TimedStep(const Compiled& step) : compiled(step) {
    for (const ExecutionPlan* const plan : step.plans()) seconds.push_back(action_seconds(*plan, step.rates));
    time = virtual_time(step.plans(), {.seconds = seconds, .overlap_slowdown = step.rates.overlap_slowdown()});
  }
};

std::string ms3(double seconds) {
  return fmt::format("{:.3f}", seconds * 1e3);
}

bool is_receipt(const Action& action) {
  return is_message(*action.op) && !message_of(*action.op, action.attrs).sends;
}

std::string transfer_name(const Action& action, const Node& node, const Mesh& mesh) {
  if (is_message(*action.op))
    return fmt::format("{}, {}", node.phase == Phase::kBackward ? "gradients to the stage before" : "between stages",
                       to_string(node.phase));
  if (action.lane != Lane::kComm) return fmt::format("{}, {}", action.op->name, to_string(action.lane));
  const RankGroups groups = groups_of(*action.op, action.attrs);
  const std::string over = groups.ranks.empty() ? groups.text(mesh) : fmt::format("groups of {} ranks", groups.size);
  return fmt::format("{} over {}, {}", action.op->name, over, to_string(node.phase));
}

std::vector<std::vector<std::string>> transfers_of(const TimedStep& step) {
  struct Sum {
    int64_t calls = 0;
    double busy_s = 0, exposed_s = 0;
  };
  std::map<std::string, Sum> sums;
  const auto crews = static_cast<double>(step.compiled.crews.size());
  for (size_t crew = 0; crew < step.compiled.crews.size(); ++crew) {
    const CompiledCrew& of = step.compiled.crews[crew];
    for (size_t i = 0; i < of.plan.actions.size(); ++i) {
      const Action& action = of.plan.actions[i];
      if (!in_background(action.lane)) continue;
      Sum& sum = sums[transfer_name(action, of.program.graph.nodes()[i], of.plan.mesh)];
      sum.exposed_s += step.time.spans[crew][i].exposed_s / crews;
      if (is_receipt(action)) continue;  // its sender has it
      ++sum.calls;
      sum.busy_s += step.seconds[crew][i] / crews;
    }
  }
  std::vector<std::pair<std::string, Sum>> order(sums.begin(), sums.end());
  std::ranges::stable_sort(order, std::greater<>(), [](const auto& each) { return each.second.exposed_s; });
  std::vector<std::vector<std::string>> out;
  for (const auto& [name, sum] : order) {
    if (sum.busy_s == 0 && sum.exposed_s == 0) continue;
    out.push_back({name, fmt::format("{}", sum.calls), ms3(sum.busy_s), ms3(std::max(0.0, sum.busy_s - sum.exposed_s)),
                   ms3(sum.exposed_s)});
  }
  return out;
}

std::string compute_color(const Node& node) {
  if (node.again) return kAgainColor;
  return node.phase == Phase::kForward ? kForwardColor : node.phase == Phase::kBackward ? kBackwardColor : kUpdateColor;
}

std::string color_name(std::string_view color) {
  for (const auto& [each, name] :
       {std::pair(kForwardColor, "forward"), std::pair(kBackwardColor, "backward"),
        std::pair(kAgainColor, "computed again"), std::pair(kUpdateColor, "update"),
        std::pair(kMovingColor, "moving, hidden"), std::pair(kExposedColor, "moving, exposed")})
    if (color == each) return name;
  return "";
}

std::vector<LaneSpan> titled(std::vector<LaneSpan> spans, double end_s) {
  std::vector<LaneSpan> out = joined_spans(std::move(spans), end_s);
  for (LaneSpan& span : out)
    span.title = fmt::format("{}{}: {:.3f} ms from {:.3f} ms on", color_name(span.css_class),
                             span.label.empty() ? "" : " of micro-batch " + span.label,
                             1e3 * (span.end_s - span.begin_s), 1e3 * span.begin_s);
  return out;
}

// What is moved for `takes_s` until `moved_s`: under compute, and then while that waits for it.
void add_moved(double takes_s, double moved_s, double exposed_s, std::vector<LaneSpan>& lane) {
  const double begin_s = moved_s - takes_s;
  const double hidden_s = std::max(begin_s, moved_s - exposed_s);
  if (hidden_s > begin_s) lane.push_back({begin_s, hidden_s, kMovingColor});
  if (moved_s > hidden_s) lane.push_back({hidden_s, moved_s, kExposedColor});
}

// Of the first rank of a crew: what it computes, and beside that what each lane that it uses moves.
std::vector<LaneRow> rows_of(const TimedStep& step, size_t crew, const std::string& name) {
  const CompiledCrew& of = step.compiled.crews[crew];
  const double end_s = step.time.makespan_s;
  const bool has_parts = of.program.micro_batches > 1;
  std::array<std::vector<LaneSpan>, kLanes> lanes;
  std::array<double, kLanes> free_s = {};
  for (size_t i = 0; i < of.plan.actions.size(); ++i) {
    const Action& action = of.plan.actions[i];
    const ActionSpan& span = step.time.spans[crew][i];
    const auto lane = static_cast<size_t>(action.lane);
    const Node& node = of.program.graph.nodes()[i];
    if (action.lane == Lane::kCompute) {
      if (span.end_s > span.begin_s)
        lanes[lane].push_back({.begin_s = span.begin_s,
                               .end_s = span.end_s,
                               .css_class = compute_color(node),
                               .label = has_parts && node.micro_batch >= 0 ? std::to_string(node.micro_batch) : ""});
      continue;
    }
    if (is_receipt(action)) continue;  // it is its sender's lane that is busy
    const double takes_s = step.seconds[crew][i];
    const double begin_s = std::max(span.begin_s, free_s[lane]);
    const bool ends_unseen = is_message(*action.op) || span.end_s == 0;
    free_s[lane] = ends_unseen ? begin_s + takes_s : std::max(span.end_s, begin_s);
    add_moved(takes_s, free_s[lane], span.exposed_s, lanes[lane]);
  }
  std::vector<LaneRow> out{{.name = name, .spans = titled(std::move(lanes[0]), end_s)}};
  for (size_t lane = 1; lane < kLanes; ++lane) {
    if (lanes[lane].empty()) continue;
    out.push_back({.name = fmt::format("  {}", to_string(static_cast<Lane>(lane))),
                   .spans = titled(std::move(lanes[lane]), end_s),
                   .begins_group = false});
  }
  return out;
}

// Crews that follow each other and hold as much are one.
void add_memory(const TimedStep& step, const WayCost& cost, PlanPage& page) {
  const size_t crews = cost.memory.size();
  for (size_t crew = 0, end = 0; crew < crews; crew = end) {
    const WayCost::Memory& memory = cost.memory[crew];
    while (end < crews && cost.memory[end].arena == memory.arena && cost.memory[end].kinds == memory.kinds) ++end;
    PlanPage::Memory& out = page.memory.emplace_back(PlanPage::Memory{
        .of = stages_name("crew", crew, end, crews),
        .bytes = memory.arena,
        .over_time =
            memory_chart(step.compiled.plan(static_cast<int>(crew)), step.time.spans[crew], step.time.makespan_s)});
    for (int kind = 0; kind < kHoldings; ++kind) {
      const int64_t bytes = memory.kinds[static_cast<size_t>(kind)];
      if (bytes > 0) out.kinds.emplace_back(to_string(static_cast<Holding>(kind)), bytes);
    }
    if (memory.gaps() > 0) out.kinds.emplace_back("gaps", memory.gaps());
    out.over_time.limit = static_cast<double>(page.memory_limit);
  }
}

void add_step(const WayCost& cost, PlanPage& page) {
  const std::tuple<const char*, double, const char*> parts[] = {
      {"forward", cost.forward_s, kForwardColor}, {"backward", cost.backward_s, kBackwardColor},
      {"recomputed", cost.again_s, kAgainColor},  {"update", cost.update_s, kUpdateColor},
      {"exposed", cost.exposed_s, kExposedColor}, {"waiting (bubble)", cost.waiting_s, "c4"}};
  double sum_s = 0;
  for (const auto& [name, seconds, color] : parts) {
    page.step.push_back({name, seconds, fmt::format("{:.3f} ms", seconds * 1e3), color});
    sum_s += seconds;
  }
  // Ranks that end before the last one.
  if (cost.step_s - sum_s > 0.0005e-3)
    page.step.push_back({"ended", cost.step_s - sum_s, fmt::format("{:.3f} ms", (cost.step_s - sum_s) * 1e3), "c0"});
  page.step_aside = fmt::format("{:.3f} ms, average of ranks", cost.step_s * 1e3);
  page.step_note =
      fmt::format("Of {:.3f} ms in which ranks exchange values{}{}{} {:.3f} are hidden behind computing.",
                  (cost.moving_s + cost.host_s) * 1e3, cost.tiers_s > 0 ? ", or move them between tiers" : "",
                  cost.host_s > 0 ? ", or the host computes" : "", cost.tiers_s + cost.host_s > 0 ? "," : "",
                  (cost.moving_s + cost.host_s - cost.exposed_s) * 1e3);
}

void add_ways(const JobPlan& plan, PlanPage& page) {
  const double best_s = plan.best.front().cost.step_s;
  for (const PlannedWay& each : plan.best) {
    page.ways.push_back(
        {each.way.text(), fmt::format("{:.3f}", each.cost.step_s * 1e3),
         &each == &plan.best.front() ? "the best" : fmt::format("{:+.2f} %", 100 * (each.cost.step_s / best_s - 1)),
         fmt::format("{:.1f}", static_cast<double>(each.cost.most_bytes()) / 1048576.0)});
  }
  const PlanLedger& ledger = plan.ledger;
  const std::pair<const char*, int64_t> counts[] = {
      {"ways", ledger.ways},
      {"fit", ledger.fit},
      {"compiled and too large", ledger.memory},
      {"too large by their parameters alone", ledger.memory_least},
      {"recompute, keep slices, or have the optimizer's state or updates elsewhere, without need", ledger.needless},
      {"do not go with the model, the batch or the ranks", ledger.do_not_divide}};
  for (const auto& [name, count] : counts) page.ledger.emplace_back(name, fmt::format("{}", count));
  page.bound = fmt::format("No way takes less than {:.3f} ms, the arithmetic alone.", plan.bound_s * 1e3);
}

}  // namespace

PlanPage page_of(const JobPlan& plan, const PlanRequest& request, const PlannedTokens& tokens) {
  require(!plan.best.empty(), "plan: nothing fits, so there is no plan to draw");
  const PlannedWay& best = plan.best.front();
  const WayCost& cost = best.cost;
  const Compiled compiled = compile_way(request, best.way);
  const TimedStep step(compiled);
  PlanPage page{.title = fmt::format("{} on {} rank{}", request.job.name, request.ranks, request.ranks == 1 ? "" : "s"),
                .summary = fmt::format("{}; by the rates of '{}'", best.way.text(), plan.machine.name),
                .memory_limit = plan.memory_bytes,
                .machine = plan.machine,
                .ranks = request.ranks};
  page.headline = {
      {"a step", fmt::format("{:.3f} ms", cost.step_s * 1e3)},
      {tokens.unit + " a second", compact_number(static_cast<double>(tokens.per_step) / cost.step_s)},
      {"of the peak (MFU)", fmt::format("{:.1f} %", 100 * cost.flops / (cost.step_s * plan.peak_flops_per_s))},
      {fmt::format("of {:.1f} MiB of a rank's memory", static_cast<double>(plan.memory_bytes) / 1048576.0),
       fmt::format("{:.1f} MiB", static_cast<double>(cost.most_bytes()) / 1048576.0)}};
  add_beside(plan.beside, cost.most_bytes_of(&WayCost::Memory::host), cost.most_bytes_of(&WayCost::Memory::disk), page);
  add_step(cost, page);
  page.transfers = transfers_of(step);
  for (const char* color : {kForwardColor, kBackwardColor, kAgainColor, kUpdateColor, kMovingColor, kExposedColor})
    page.timeline_legend.emplace_back(color, color_name(color));
  LanesChart& timeline = page.timelines.emplace_back(LanesChart{
      .title = fmt::format("{:.3f} ms, bubble {:.1f} %", step.time.makespan_s * 1e3, 100 * step.time.idle_share()),
      .rows = {},
      .end_s = step.time.makespan_s,
      .row_height = 20});
  const size_t crews = compiled.crews.size();
  for (const size_t crew : drawn_stages(crews)) {
    for (LaneRow& row : rows_of(step, crew, stages_name("crew", crew, crew + 1, crews)))
      timeline.rows.push_back(std::move(row));
  }
  page.timeline_aside = "in virtual time, of the first rank of each crew";
  add_memory(step, cost, page);
  page.axes = axis_levels(plan.machine, compiled.plan().mesh, static_cast<int64_t>(compiled.crews.size()));
  page.weights = weight_cuts(compiled.graph, compiled.strategy);
  page.ops = op_cuts(compiled.graph, compiled.strategy);
  page.stages = stage_cuts(compiled.strategy);
  add_ways(plan, page);
  return page;
}

}  // namespace trireme
