#include "trireme/train/report/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <sstream>

#include "trireme/base/append_text.h"
#include "trireme/base/error.h"
#include "trireme/exec/analysis/virtual_time.h"
#include "trireme/train/checkpoints/checkpointing.h"
#include "trireme/train/html/lanes_chart.h"

namespace trireme {
namespace {

// What an action is of.
struct PassPart {
  Phase phase;
  int stage, micro_batch;
};

PassPart piece_of(const Compiled& compiled, const Node& node) {
  if (node.micro_batch < 0) return {node.phase, node.stage, -1};
  const Program& program = compiled.crews[0].program;
  const int64_t parts = program.micro_batches / compiled.timetable->micro_batches;  // copies, or chunks
  return {node.phase, node.stage, node.micro_batch / static_cast<int>(parts)};
}

// Actions in the order in which they were computed.
void add_action(std::vector<PassSpan>& spans, const PassPart& piece, double begin_s, double end_s) {
  if (!spans.empty()) {
    PassSpan& last = spans.back();
    if (last.phase == piece.phase && last.stage == piece.stage && last.micro_batch == piece.micro_batch) {
      last.end_s = end_s;
      last.computed_s += end_s - begin_s;
      return;
    }
  }
  spans.push_back({piece.phase, piece.stage, piece.micro_batch, begin_s, end_s, end_s - begin_s});
}

std::string color_of(const PassSpan& span) {
  if (span.micro_batch < 0) return "c7";
  return span.phase == Phase::kForward ? "c1" : "c2";
}

std::string title_of(const PassSpan& span) {
  std::string what(trireme::to_string(span.phase));
  what += span.micro_batch < 0 ? ", of no micro-batch" : fmt::format(" of micro-batch {}", span.micro_batch);
  if (span.micro_batch >= 0 && span.stage >= 0)
    what += fmt::format(", stage {}", span.stage);  // else each makes its own
  return fmt::format("{}: {:.2f} ms from {:.2f} ms on, {:.2f} ms of it computing", what,
                     1e3 * (span.end_s - span.begin_s), 1e3 * span.begin_s, 1e3 * span.computed_s);
}

// A row for each crew.
LanesChart chart_of(const Timeline& timeline, std::string_view title) {
  LanesChart out{
      .title = fmt::format("{}: {:.1f} ms, bubble {:.1f} %", title, 1e3 * timeline.step_s(), 100 * timeline.bubble()),
      .rows = {},
      .end_s = timeline.step_s()};
  for (size_t crew = 0; crew < timeline.crews.size(); ++crew) {
    LaneRow& row = out.rows.emplace_back(LaneRow{.name = fmt::format("crew {}", crew), .spans = {}});
    for (const PassSpan& span : timeline.crews[crew]) {
      row.spans.push_back({.begin_s = span.begin_s,
                           .end_s = span.end_s,
                           .css_class = color_of(span),
                           .title = title_of(span),
                           .label = span.micro_batch >= 0 ? std::to_string(span.micro_batch) : ""});
    }
  }
  return out;
}

}  // namespace

double Timeline::step_s() const {
  double out = 0;
  for (const std::vector<PassSpan>& spans : crews) {
    for (const PassSpan& span : spans) out = std::max(out, span.end_s);
  }
  return out;
}

double Timeline::bubble() const {
  double computed_s = 0;
  for (const std::vector<PassSpan>& spans : crews) {
    for (const PassSpan& span : spans) computed_s += span.computed_s;
  }
  const double all_s = step_s() * static_cast<double>(crews.size());
  return all_s > 0 ? 1 - computed_s / all_s : 0;
}

Timeline modelled_timeline(const Compiled& compiled) {
  std::vector<std::vector<double>> seconds;
  for (const ExecutionPlan* plan : compiled.plans()) seconds.push_back(action_seconds(*plan, compiled.rates));
  const VirtualTime time = virtual_time(
      compiled.plans(), {.seconds = std::move(seconds), .overlap_slowdown = compiled.rates.overlap_slowdown()});
  Timeline out;
  for (size_t crew = 0; crew < compiled.crews.size(); ++crew) {
    const std::vector<Action>& actions = compiled.crews[crew].plan.actions;
    std::vector<PassSpan>& spans = out.crews.emplace_back();
    for (size_t i = 0; i < actions.size(); ++i) {
      const ActionSpan& span = time.spans[crew][i];
      if (actions[i].lane != Lane::kCompute || span.end_s <= span.begin_s) continue;
      add_action(spans, piece_of(compiled, compiled.crews[crew].program.graph.nodes()[i]), span.begin_s, span.end_s);
    }
  }
  return out;
}

TimelineRecorder::TimelineRecorder(const Compiled& compiled, Executor& executor, comm::World* world, int64_t step)
    : compiled_(compiled), executor_(executor), world_(compiled.timetable ? world : nullptr), step_(step) {}

void TimelineRecorder::begin(int64_t step, bool is_tracing) {
  if (!is_on(step)) return;
  if (!is_tracing) executor_.set_tracing(true);
  world_->all().barrier().wait();
  origin_ = std::chrono::steady_clock::now();
}

void TimelineRecorder::end(int64_t step, bool is_tracing) {
  if (!is_on(step)) return;
  const auto seconds = [&](auto at) { return std::chrono::duration<double>(at - origin_).count(); };
  const auto crew = static_cast<size_t>(executor_.plan().crew);
  const std::vector<Node>& nodes = compiled_.crews[crew].program.graph.nodes();
  std::vector<PassSpan> mine;
  for (const ActionTrace& action : executor_.trace()) {
    const auto at = static_cast<size_t>(action.action);
    if (action.is_wait || executor_.plan().actions[at].lane != Lane::kCompute) continue;
    add_action(mine, piece_of(compiled_, nodes[at]), seconds(action.begin), seconds(action.end));
  }
  if (!is_tracing) executor_.set_tracing(false);
  const std::vector<std::string> all = gather_texts(*world_, to_string(mine));
  if (world_->rank() != 0) return;
  timeline_.emplace();
  const size_t ranks = all.size() / compiled_.crews.size();
  for (size_t rank = 0; rank < all.size(); rank += ranks) timeline_->crews.push_back(parse_spans(all[rank]));
}

std::string to_string(std::span<const PassSpan> spans) {
  std::string out;
  for (const PassSpan& span : spans) {
    append_text(out, "{} {} {} {} {} {}\n", trireme::to_string(span.phase), span.stage, span.micro_batch, span.begin_s,
                span.end_s, span.computed_s);
  }
  return out;
}

std::vector<PassSpan> parse_spans(std::string_view text) {
  static constexpr std::array kPhases{Phase::kForward, Phase::kBackward, Phase::kUpdate};
  std::vector<PassSpan> out;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string phase;
    PassSpan span;
    words >> phase >> span.stage >> span.micro_batch >> span.begin_s >> span.end_s >> span.computed_s;
    const auto found = std::ranges::find(kPhases, phase, [](Phase each) { return trireme::to_string(each); });
    require(words && found != kPhases.end(), "'{}' is not a span of a timeline", line);
    span.phase = *found;
    out.push_back(span);
  }
  return out;
}

std::string timeline_chart(const Timeline& planned, const Timeline& ran) {
  return html_legend({{"c1", "forward"}, {"c2", "backward"}, {"c7", "updates and sums"}}) +
         lanes_drawing({chart_of(ran, "as it ran"), chart_of(planned, "as modelled")}, "what each crew computed when");
}

}  // namespace trireme
