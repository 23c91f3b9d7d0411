// From graphs to plans: all steps of compiling, one call after the other. `Compiled` keeps every intermediate result
// for `explain`.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "trireme/exec/plan/execution_plan.h"
#include "trireme/ir/program.h"
#include "trireme/parallel/parallel.h"
#include "trireme/partition/partition.h"
#include "trireme/partition/repeat.h"
#include "trireme/pass/home_candidates.h"
#include "trireme/pass/passes.h"

namespace trireme {

class Device;  // backend/device.h
class ThreadPool;
struct Tuning;  // mesh/tuning.h

struct CompileOptions {
  int64_t ranks = 1;
  int threads = 1;
  std::shared_ptr<Device> device = {};  // whose kernels and memory; null: cpu
  Parallel parallel = {};
  Numerics numerics = Numerics::kFast;
  std::shared_ptr<const Tuning> tuning = {};  // of which kernels are the quickest; null: nobody has measured
  PassOptions passes = {};  // its `verify` is for graphs and plans, too; but for fusion and rates, which follow from
                            // parallel.communication and measure
  bool external_parameters = false;
  // Layouts of parameters that are there already, and the stages they are read on.
  const std::map<std::string, Layout>* stored = nullptr;
  ScopeStages stages = {};
  // By what sums over ranks are put together and updates placed, where parallel.communication names no machine; none:
  // what a host usually has.
  std::function<Machine(const Mesh&)> measure = {};
  // Where a pipeline does the same for one micro-batch after the other, a few of them are compiled, and the others are
  // as these (partition/repeat.h), from so many nodes of all micro-batches on: those of fewer are compiled in no
  // time.
  size_t repeat_from = 20000;
  bool says_why = true;  // the strategy says of each input and node why it is cut so
  // Of other steps that are compiled one after the other; null: none.
  std::shared_ptr<ReshardMemory> reshards = {};
  // On whose threads the crews of a pipeline are compiled, side by side; null: one after the other.
  ThreadPool* pool = nullptr;
};

Device& device_of(const CompileOptions& options);  // the one it names, or cpu

// What one crew runs.
struct CompiledCrew {
  Program program;
  ExecutionPlan plan;
  std::vector<HomeRule> homes;           // that were given, and chosen for it
  std::vector<ChosenRule> chosen_homes;  // train/step/compile/choose_homes.h
  std::vector<PassRemark> remarks = {};  // of its passes
};

// The rules, and those of parameters whose homes follow from who reads them: a program beside this one has them there.
std::vector<HomeRule> with_own_homes(const PassOptions& passes, const ExecutionPlan& plan);

struct Compiled {
  std::optional<Machine> measured;  // by whose rates sums went together, where it was not a named one
  Rates rates;                      // of it, of the named one, or of what a host usually has
  Graph graph;
  Strategy strategy;
  std::string search;                  // what was found, in words, where parallel.search says to search
  Program partitioned;                 // of all crews, before the passes
  std::optional<Timetable> timetable;  // of a pipeline
  int64_t repeated = 0;                // micro-batches of the timetable that were not compiled, but are as others
  std::vector<std::string> remarks;    // what of what was asked for passes did not do, in words
  std::vector<CompiledCrew> crews;     // one, without a pipeline

  const Program& program(int crew = 0) const { return crews[static_cast<size_t>(crew)].program; }
  const ExecutionPlan& plan(int crew = 0) const { return crews[static_cast<size_t>(crew)].plan; }
  std::vector<const ExecutionPlan*> plans() const;  // of all crews
};

Compiled compile(Graph graph, const CompileOptions& options);

// A graph that the compiler cuts, with its strategy, and with what was found in words where there is a search.
Compiled with_strategy(Graph graph, const CompileOptions& options);
// The rates that a job goes by: of a named machine, else measured, here or by an earlier run.
void take_rates(const CompileOptions& options, const Mesh& mesh, Compiled& out);

// By what a graph's values are brought from layout to layout.
PartitionOptions partition_options(const Parallel& parallel, const Graph& graph, const Mesh& mesh,
                                   const SumOrder& sums);

// What programs of fewer micro-batches are to repeat, by crew; none: they have all.
struct CrewRepeats {
  std::vector<Repeat> crews;
  int of_each = 1;  // micro-batches of a program in one of the timetable
};

// A graph that was cut and computed in micro-batches: what compile() begins with, and what depends neither on `passes`
// nor on the order of work in a pipeline.
struct BeforeCrews {
  Compiled whole;  // without crews
  Program program;
  bool are_joined = false;  // of a pipeline: depend_on_each_other (partition/fewer_micro_batches.h)
};
BeforeCrews before_crews(Graph graph, const CompileOptions& options);
// Of a graph that was cut. `first`: only so many micro-batches; 0: all of them.
BeforeCrews before_crews(Compiled whole, const CompileOptions& options, int64_t first = 0);

// That, divided among the crews.
struct CrewPrograms {
  Compiled whole;  // without crews
  std::vector<Program> programs;
  CrewRepeats repeats = {};
};
// Of a graph that was cut. `may_repeat`: the programs may be of fewer micro-batches, as CrewPrograms::repeats says.
CrewPrograms unrolled(Compiled whole, const CompileOptions& options, bool may_repeat);
// What it goes on with: passes, memory, kernels, and the check of all ranks' communication.
Compiled compile_crews(CrewPrograms from, const CompileOptions& options);
// The programs of these crews alone, in the options' order of work.
std::vector<Program> programs_of_crews(const BeforeCrews& from, const CompileOptions& options,
                                       std::span<const size_t> crews);
// These crews compiled, without the check, for prices of what they do. `whole`: of BeforeCrews.
std::vector<CompiledCrew> compile_some_crews(const Compiled& whole, std::vector<Program> programs,
                                             std::span<const size_t> crews, const CompileOptions& options);

// Of all ranks, which the crews share equally, by the ops' cost functions.
double flops_per_step(const Compiled& compiled, int64_t ranks);
// Of the crews', the plan with the largest arena on the device.
const ExecutionPlan& largest_plan(const Compiled& compiled);

// A training step, and what validates between steps in the step's memory with the step's parameters.
struct CompiledJob {
  Compiled step;
  std::optional<Compiled> evaluation;
};
CompiledJob compile(Graph step, std::optional<Graph> evaluation, const CompileOptions& options);

// A graph that reads the parameters of a compiled step as they lie there.
Compiled compile_beside(const Compiled& step, Graph graph, const CompileOptions& options);

}  // namespace trireme
