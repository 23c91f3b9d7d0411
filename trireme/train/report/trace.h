// A trace of some steps of a run, of all ranks and lanes, for chrome://tracing and ui.perfetto.dev: what each rank
// computed, sent and waited for, and when.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "trireme/comm/comm.h"
#include "trireme/exec/analysis/virtual_time.h"
#include "trireme/exec/run/executor.h"

namespace trireme {

struct TraceOptions {
  std::string path;   // of the file that rank 0 writes; "": nothing is traced
  int64_t first = 2;  // step of the run, counted from 1, with which the trace begins
  int64_t steps = 3;  // how many are traced
};

// A rank's part of a trace. Times are in seconds since a moment that all ranks have seen together.
class Trace {
 public:
  explicit Trace(int rank) : rank_(rank) {}

  void add(const ExecutionPlan& plan, int64_t step, std::span<const ActionTrace> actions,
           std::chrono::steady_clock::time_point origin);
  // The same of the modelled step of a crew's first rank, and the bytes of the device's arena in use in it.
  void add(const ExecutionPlan& plan, std::span<const ActionSpan> spans);

  int rank() const { return rank_; }
  bool empty() const { return events_.empty(); }
  // Events of this rank, each a line of JSON with a comma before it. A lane has as many rows as things are under way in
  // it at a time: events of one row must not overlap, which viewers take for damage.
  std::string events() const;

 private:
  struct Event {
    Lane lane = Lane::kCompute;
    int64_t begin_ns = 0, end_ns = 0;
    std::string name, category, scope;
    int action = 0;
    int64_t step = 0;
  };
  void add_event(const ExecutionPlan& plan, int action, bool is_wait, double begin_s, double end_s, int64_t step);

  int rank_;
  std::vector<Event> events_;
  std::vector<LiveBytes> live_;
};

// The file's text.
std::string trace_file(const std::vector<std::pair<int, std::string>>& events);  // of ranks

// Traces the steps that the options ask for of a run's executor.
class Tracer {
 public:
  // `first` is the run's first step. A null world is one rank. Throws on rank 0 where no file can be at the path.
  Tracer(const TraceOptions& options, Executor& executor, comm::World* world, int64_t first_step);

  // Before and after each step; collective where tracing begins and ends.
  void begin(int64_t step);
  void end(int64_t step);
  bool is_open() const { return is_open_; }
  // Writes what there is, for a run that ends earlier. Collective. What cannot be written is logged.
  void finish();
  bool is_written() const { return is_written_; }  // by this rank

 private:
  TraceOptions options_;
  Executor& executor_;
  comm::World* world_;
  int64_t from_, to_;  // steps
  bool is_open_ = false;
  bool is_written_ = false;
  std::chrono::steady_clock::time_point origin_;
  Trace trace_;
};

}  // namespace trireme
