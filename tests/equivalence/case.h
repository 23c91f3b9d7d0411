// A case: a graph on whole tensors and a strategy that cuts it, or a graph that is cut by hand, and how it is run. It
// is text that reads back equal, so a case that fails can be kept and run again.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/program.h"
#include "trireme/mesh/machine.h"
#include "trireme/op/numerics.h"
#include "trireme/parallel/parallel.h"
#include "trireme/parallel/strategy/strategy.h"
#include "trireme/partition/partition.h"
#include "trireme/pass/step_times.h"

namespace trireme::equivalence {

struct Case {
  Graph graph;
  Strategy strategy;
  uint32_t seed = 0;                      // of the values of the inputs
  int steps = 1;                          // parameters and state are carried from one to the next
  int64_t bucket_bytes = 0;               // 0: chosen by the model
  std::vector<int64_t> bucket_ends = {};  // instead: after how many gradients
  std::string fusion = "sizes";           // by these for all kinds; or mixed, off, ids (run.cpp)
  int64_t reuse = 0;                      // collectives that name a call of the plan, at most
  bool passes = true;                     // whether the partitioned program goes through the passes
  bool all_to_all = true;                 // whether reshards may exchange pieces
  std::string transport = "threads";      // or shm, or ucx, which is shm where it is not built in
  int threads = 1;                        // of a rank
  // Or rows, blocks, most (blocks, and some ops by rules), local (no collectives), slices (nothing again), gathered (no
  // gathers of weights), all (blocks without collectives, and slices).
  std::string recompute = "none";
  std::string homes = "device";    // of `homed`: or host; or mixed, every other parameter's on the host; or kept, and
                                   // what is kept for the backward pass too
  std::string homed = "state";     // the optimizer's; or parameters, gradients, all of them
  std::string home_tier = "host";  // what `homes` calls the host: or disk; or both, one after the other
  int64_t update_part = 0;         // bytes of a tensor that an update takes at a time; 0: all
  int64_t prefetch = 0;            // how many readers ahead all comes, at most; 0: what usual is
  // What runs on the host: "none"; "updates" of parameters; ops of some "parts" of the graph, some "kinds" of ops, or
  // "all" of both
  std::string on_host = "none";
  int64_t loss_pieces = 1;
  bool is_saved = false;  // the strategy is read from its text
  std::string sums =
      "own";  // narrow sums over ranks of gradients: in f32 ("own"), as they are ("narrow"), or all in f32 ("f32")
  // By what rates reshards are chosen and sums and updates placed: the "usual" ones; of a "named" machine; the latter
  // alone, of a "measured" one (machine_of).
  std::string rates = "usual";
  std::string isa = "machine";    // the instruction set that kernels may use, if this machine has it
  std::string device = "cpu";     // or guarded, whose memory the host cannot touch
  bool lingers = false;           // kernels and parts of operations begin late, by times drawn (linger.h)
  int64_t interleave = 1;         // copies, of micro-batches that divide by it
  int64_t crews = 1;              // of a pipeline, whose stages the strategy has
  std::string schedule = "1f1b";  // or drawn, a timetable of its own
  bool slices = false;            // what crosses to other crews goes in slices
  bool by_hand = false;           // the graph is what each rank runs; the strategy cuts nothing
  bool evaluates = false;         // between the steps, in their memory and with their parameters (evaluation_of)
  // kInvariant: every output has the bits of one device's, which are those of any legal case of its graph.
  Numerics numerics = Numerics::kFast;
};

// The case of a seed: a random graph, mesh and strategy. One in eight is kInvariant, one in sixteen cut by hand, one in
// 32 a pipeline of chunks of positions, one in 64 a pipeline of so many micro-batches that what the compiler makes of a
// few is repeated; one in eight runs on guarded, and one in twelve lingers.
Case random_case(uint32_t seed);

// Whether the case's numerics accept its cuts: kInvariant refuses some, for the step or its evaluation.
bool is_accepted(const Case& test);

// Cuts nothing: the graph is what each rank runs.
Strategy as_by_hand(const Graph& graph, const Mesh& mesh);

// The outputs of the forward part of the step, as a graph of its own, and how that is cut where parameters lie as the
// step has them. Without outputs there is nothing to evaluate.
Graph evaluation_of(const Case& test);
Strategy evaluation_strategy(const Case& test, const Graph& evaluation);

// A machine of any speed, with a level of links for each axis of the mesh, as a run measures it.
Machine machine_of(const Case& test);
Rates rates_of(const Case& test);  // by which passes go

// How a graph of the case is partitioned over this mesh.
PartitionOptions partition_options(const Case& test, const Graph& graph, const Mesh& mesh);

// A graph of the case as the ranks compute it, before micro-batches and passes.
Program partitioned(const Case& test, const Graph& graph, const Strategy& strategy);
Program partitioned(const Case& test);

// A timetable of its own for so many micro-batches (random_timetable.h).
ScheduleSpec drawn_schedule(uint32_t seed, int64_t crews, int64_t micro_batches, int64_t seq_chunks);

// Of so many micro-batches, those that are interleaved.
int64_t interleave_of(const Case& test, int64_t micro_batches);

// What is asked of a graph of the case of so many micro-batches.
Parallel parallel_of(const Case& test, int64_t micro_batches);
// The order of work of the crews, for a graph of so many micro-batches: the step's, or the evaluation's.
Timetable timetable_for(const Case& test, const Graph& graph, int64_t micro_batches);

std::string to_string(const Case& test);
Case parse_case(std::string_view text);

}  // namespace trireme::equivalence
