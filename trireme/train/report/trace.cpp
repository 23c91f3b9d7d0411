#include "trireme/train/report/trace.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "trireme/base/file.h"
#include "trireme/base/log.h"
#include "trireme/train/checkpoints/checkpointing.h"

namespace trireme {
namespace {

constexpr double kMicroseconds = 1e6;

std::string quoted_json(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

int rank_of(comm::World* world) {
  return world == nullptr ? 0 : world->rank();
}

}  // namespace

void Trace::add_event(const ExecutionPlan& plan, int action, bool is_wait, double begin_s, double end_s, int64_t step) {
  const Action& of = plan.actions[static_cast<size_t>(action)];
  const Lane lane = is_wait ? Lane::kCompute : of.lane;
  const std::string name = is_wait ? fmt::format("waits for {}", of.op->name) : std::string(of.op->name);
  fmt::format_to(std::back_inserter(events_),
                 ",\n{{\"name\":{},\"cat\":\"{}\",\"ph\":\"X\",\"pid\":{},\"tid\":{},\"ts\":{:.3f},\"dur\":{:.3f},"
                 "\"args\":{{\"scope\":{},\"action\":{},\"step\":{}}}}}",
                 quoted_json(name), is_wait ? "wait" : to_string(lane), rank_, static_cast<int>(lane),
                 begin_s * kMicroseconds, std::max(0.0, end_s - begin_s) * kMicroseconds, quoted_json(of.scope), action,
                 step);
}

void Trace::add(const ExecutionPlan& plan, int64_t step, std::span<const ActionTrace> actions,
                std::chrono::steady_clock::time_point origin) {
  const auto seconds = [&](auto at) { return std::chrono::duration<double>(at - origin).count(); };
  for (const ActionTrace& action : actions)
    add_event(plan, action.action, action.is_wait, seconds(action.begin), seconds(action.end), step);
}

void Trace::add(const ExecutionPlan& plan, std::span<const ActionSpan> spans) {
  for (size_t i = 0; i < spans.size(); ++i)
    add_event(plan, static_cast<int>(i), false, spans[i].begin_s, spans[i].end_s, 1);
}

std::string trace_file(const std::vector<std::pair<int, std::string>>& events) {
  std::string out = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  bool first = true;
  const auto add_name = [&](const char* kind, int rank, int lane, const std::string& name) {
    out += fmt::format("{}{{\"name\":\"{}\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{\"name\":{}}}}}",
                       first ? "" : ",\n", kind, rank, lane, quoted_json(name));
    first = false;
  };
  for (const auto& [rank, of_rank] : events) {
    add_name("process_name", rank, 0, fmt::format("rank {}", rank));
    for (int lane = 0; lane < kLanes; ++lane)
      add_name("thread_name", rank, lane, std::string(to_string(static_cast<Lane>(lane))));
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
      trace_(rank_of(world)) {}

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
    if (!trace_.events().empty()) return;  // it is written
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
  atomic_write(options_.path, trace_file(all));
  TRIREME_LOG(kInfo, "train", "wrote the trace of {} steps to '{}'; open it in ui.perfetto.dev or chrome://tracing",
              to_ - from_, options_.path);
}

}  // namespace trireme
