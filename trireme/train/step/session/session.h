// Session: the training step of a model (and its evaluation) compiled for the ranks of a job and bound to memory.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/thread_pool.h"
#include "trireme/comm/comm.h"
#include "trireme/exec/run/executor.h"
#include "trireme/mesh/tuning_place.h"
#include "trireme/train/step/compile/compile.h"

namespace trireme {

class Session {
 public:
  struct Options {
    comm::World* world = nullptr;  // null: one rank
    ThreadPool* pool = nullptr;
    uint64_t seed = 0;  // of the starting values
    // Starting values of parameters come from the first of the ranks that hold the same piece, whatever the others'
    // seeds are. What a rank alone holds stays as it made it.
    bool parameter_broadcast = false;
    std::string disk = {};  // directory for what has its home on the disk (ExecutorOptions::disk)
    // Where compile.tuning is given, what it lacks is measured, and kept there (train/step/session/tune.h).
    TuningPlace tuning = "off";
    // Of both graphs. Ranks, threads and pool follow from world and pool; so does `measure`, where it is not given.
    CompileOptions compile = {};
  };
  // The evaluation graph, if any, runs in the step's memory. Collective. Throws kInvalidArgument where options.compile
  // is for another number of ranks or threads than 1 and those of world and pool.
  Session(Graph step, std::optional<Graph> evaluation, const Options& options);

  // Starting values of all parameters and state. Collective with parameter_broadcast.
  void initialise();

  Executor& step() { return *step_; }
  const Executor& step() const { return *step_; }
  Executor& evaluation() { return *evaluation_; }
  bool has_evaluation() const { return evaluation_ != nullptr; }
  const Compiled& compiled() const { return compiled_; }
  const Device& device() const { return device_of(options_.compile); }
  const ExecutionPlan& plan() const { return compiled_.plan(crew_); }  // that this rank runs
  const std::optional<Compiled>& compiled_evaluation() const { return compiled_evaluation_; }

  // Another graph of the step's parameters and state, which it reads and writes where they lie, between steps, in
  // memory of its own beside that. The session outlives it.
  struct Beside {
    Compiled compiled;
    std::unique_ptr<Executor> executor;
  };
  // Collective.
  std::unique_ptr<Beside> beside(Graph graph) const;

  // Parameters and state that lie on this rank's crew, in the order of the graph's inputs.
  const std::vector<PlanInput>& persistent() const { return persistent_; }
  int64_t parameter_count() const;  // of the whole model

  // The persistent pieces this rank should write so that each distinct box is written once, bytes spread
  // evenly over the ranks that hold it.
  std::vector<PlanInput> pieces_to_write(int64_t rank) const;

 private:
  void compile_for(Graph step, std::optional<Graph> evaluation, CompileOptions& how);
  void broadcast_parameters();
  ExecutorOptions options_beside_step() const;

  Options options_;
  CompileOptions how_;  // the step was compiled
  int crew_ = 0;
  Compiled compiled_;
  std::optional<Compiled> compiled_evaluation_;
  std::vector<PlanInput> persistent_;
  std::unique_ptr<Executor> step_;
  std::unique_ptr<Executor> evaluation_;
};

}  // namespace trireme
