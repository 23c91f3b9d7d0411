#include "trireme/train/report/trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "trireme/base/append_text.h"
#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/json_text.h"
#include "trireme/base/log.h"
#include "trireme/train/checkpoints/checkpointing.h"

namespace trireme {
namespace {

constexpr double kNanoseconds = 1e9;
constexpr int kRows = 1000;  // of a rank, at most

// Viewers take a rank for a process and a row for a thread, whose number no other process may have.
int process_of(int rank) {
  return (rank + 1) * kRows;
}
int thread_of(int rank, size_t row) {
  return process_of(rank) + static_cast<int>(std::min<size_t>(row, kRows - 1));
}

// Of a rank, or of one of its rows.
std::string name_of(std::string_view kind, int rank, size_t track, std::string_view name) {
  return fmt::format("{{\"name\":\"{}\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}}", kind,
                     process_of(rank), thread_of(rank, track), JsonText(name).text());
}

int rank_of(comm::World* world) {
  return world == nullptr ? 0 : world->rank();
}

}  // namespace

void Trace::add_event(const ExecutionPlan& plan, int action, bool is_wait, double begin_s, double end_s, int64_t step) {
  const Action& of = plan.actions[static_cast<size_t>(action)];
  const Lane lane = is_wait ? Lane::kCompute : of.lane;
  const auto begin_ns = static_cast<int64_t>(begin_s * kNanoseconds);
  events_.push_back({.lane = lane,
                     .begin_ns = begin_ns,
                     .end_ns = std::max(begin_ns, static_cast<int64_t>(end_s * kNanoseconds)),
                     .name = is_wait ? fmt::format("waits for {}", of.op->name) : std::string(of.op->name),
                     .category = is_wait ? "wait" : std::string(to_string(lane)),
                     .scope = std::string(of.scope),
                     .action = action,
                     .step = step});
}

std::string Trace::events() const {
  std::vector<const Event*> sorted;
  for (const Event& event : events_) sorted.push_back(&event);
  std::ranges::stable_sort(sorted, {}, [](const Event* event) { return event->begin_ns; });
  std::array<std::vector<int64_t>, kLanes> rows;  // of each lane: when the last event of each ends
  std::string out;
  for (const Event* event : sorted) {
    const auto lane = static_cast<size_t>(event->lane);
    const auto free = std::ranges::find_if(rows[lane], [&](int64_t end_ns) { return end_ns <= event->begin_ns; });
    const auto row = static_cast<size_t>(free - rows[lane].begin());
    const size_t track = lane + kLanes * row;
    if (free == rows[lane].end()) {
      rows[lane].push_back(0);
      if (row > 0) {
        const std::string name = fmt::format("{} {}", to_string(event->lane), row + 1);
        append_text(out, ",\n{}", name_of("thread_name", rank_, track, name));
      }
    }
    rows[lane][row] = event->end_ns;
    append_text(out,
                ",\n{{\"name\":{},\"cat\":\"{}\",\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{}.{:03},\"dur\":{}.{:03},"
                "\"args\":{{\"scope\":{},\"action\":{},\"step\":{}}}}}",
                JsonText(event->name).text(), event->category, process_of(rank_), thread_of(rank_, track),
                event->begin_ns / 1000, event->begin_ns % 1000, (event->end_ns - event->begin_ns) / 1000,
                (event->end_ns - event->begin_ns) % 1000, JsonText(event->scope).text(), event->action, event->step);
  }
  for (const LiveBytes& live : live_) {
    append_text(out, ",\n{{\"name\":\"bytes in use\",\"ph\":\"C\",\"pid\":{},\"ts\":{:.3f},\"args\":{{\"bytes\":{}}}}}",
                process_of(rank_), live.at_s * 1e6, live.bytes);
  }
  return out;
}

void Trace::add(const ExecutionPlan& plan, int64_t step, std::span<const ActionTrace> actions,
                std::chrono::steady_clock::time_point origin) {
  const auto seconds = [&](auto at) { return std::chrono::duration<double>(at - origin).count(); };
  for (const ActionTrace& action : actions)
    add_event(plan, action.action, action.is_wait, seconds(action.begin), seconds(action.end), step);
}

void Trace::add(const ExecutionPlan& plan, std::span<const ActionSpan> spans) {
  double now_s = spans.empty() ? 0 : spans[0].begin_s;  // of compute
  const auto wait_for = [&](size_t action) {
    if (spans[action].end_s <= now_s) return;
    add_event(plan, static_cast<int>(action), true, now_s, spans[action].end_s, 1);
    now_s = spans[action].end_s;
  };
  for (size_t i = 0; i < spans.size(); ++i) {
    for (const int action : plan.actions[i].waits) wait_for(static_cast<size_t>(action));
    add_event(plan, static_cast<int>(i), false, spans[i].begin_s, spans[i].end_s, 1);
    if (!in_background(plan.actions[i].lane)) now_s = spans[i].end_s;
  }
  for (size_t i = 0; i < spans.size(); ++i) wait_for(i);  // the step ends when all that it has begun has
  live_ = live_bytes(plan, spans);
}

std::string trace_file(const std::vector<std::pair<int, std::string>>& events) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  bool first = true;
  const auto add_name = [&](std::string_view kind, int rank, size_t track, std::string_view name) {
    out += (first ? "" : ",\n") + name_of(kind, rank, track, name);
    first = false;
  };
  for (const auto& [rank, of_rank] : events) {
    add_name("process_name", rank, 0, fmt::format("rank {}", rank));
    out += fmt::format(",\n{{\"name\":\"process_sort_index\",\"ph\":\"M\",\"pid\":{},\"args\":{{\"sort_index\":{}}}}}",
                       process_of(rank), rank);
    for (int lane = 0; lane < kLanes; ++lane)
      add_name("thread_name", rank, static_cast<size_t>(lane), to_string(static_cast<Lane>(lane)));
    out += of_rank;
  }
  return out + "\n]}\n";
}

Tracer::Tracer(const TraceOptions& options, Executor& executor, comm::World* world, int64_t first_step)
    : options_(options),
      executor_(executor),
      world_(world),
      from_(first_step + options.first - 1),
      to_(from_ + options.steps),
      trace_(rank_of(world)) {
  if (!options.path.empty() && rank_of(world) == 0) require_place_for(options.path, "train.trace");
}

void Tracer::begin(int64_t step) {
  if (options_.path.empty() || step != from_) return;
  if (world_ != nullptr) world_->all().barrier().wait();
  origin_ = std::chrono::steady_clock::now();
  executor_.set_tracing(true);
  is_open_ = true;
}

void Tracer::end(int64_t step) {
  if (!is_open_) return;
  trace_.add(executor_.plan(), step, executor_.trace(), origin_);
  if (step + 1 == to_) finish();
}

void Tracer::finish() {
  if (options_.path.empty()) return;
  if (!is_open_) {
    if (!trace_.empty()) return;  // it is written
    if (rank_of(world_) == 0)
      TRIREME_LOG(kWarn, "train", "no trace is written: the run ended before its step {}", options_.first);
    return;
  }
  is_open_ = false;
  executor_.set_tracing(false);
  std::vector<std::pair<int, std::string>> all;
  if (world_ == nullptr) {
    all.emplace_back(0, trace_.events());
  } else {
    for (std::string& events : gather_texts(*world_, trace_.events()))
      all.emplace_back(static_cast<int>(all.size()), std::move(events));
  }
  if (rank_of(world_) != 0) return;
  try {
    atomic_write(options_.path, trace_file(all));
  } catch (const Error& e) {  // a full disk: no reason to lose the training
    TRIREME_LOG(kWarn, "train", "no trace is written: {}", e.text());
    return;
  }
  is_written_ = true;
  TRIREME_LOG(kInfo, "train", "wrote the trace of {} to '{}'; open it in ui.perfetto.dev or chrome://tracing",
              counted(to_ - from_, "step"), options_.path);
}

}  // namespace trireme
