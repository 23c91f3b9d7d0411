// From a job to its graphs, plans and session. Training, `explain`, `bench`, validation and prediction all get them
// here, so what is shown or timed is what runs.
#pragma once

#include <optional>
#include <vector>

#include "trireme/train/step/compile/compile.h"
#include "trireme/train/step/graphs/step.h"
#include "trireme/train/step/session/session.h"
#include "trireme/train/step/trainer_options.h"

namespace trireme {

// All that graphs and plans depend on, but for the ranks and their threads.
struct Assembly {
  ModelFn model;
  LossFn loss;
  Optimizer optimizer;
  std::vector<BatchField> batch;                  // of a step
  std::vector<BatchField> evaluation_batch = {};  // empty: nothing is held out
  TrainerOptions options = {};
};

struct JobGraphs {
  Graph step;
  std::optional<Graph> evaluation;
  Parallel parallel;  // of both, with what the mode and the model's own code say
};
JobGraphs graphs_of(const Assembly& assembly, int64_t ranks);
Parallel parallel_of(const Assembly& assembly);  // that of graphs_of

// Forward and loss, as validation has it, of a step's batch where nothing is held out.
Graph evaluation_of(const Assembly& assembly, int64_t ranks);
// The model alone, of the fields that it reads.
Graph inference_of(const Assembly& assembly, int64_t ranks);
// The model of one next token, on one rank, with what it keeps of as many tokens as a sample has (step.h, decoding).
Graph decoding_of(const Assembly& assembly);
// The same of `tokens` next ones at once, without predictions (step.h, reading).
Graph reading_of(const Assembly& assembly, int64_t tokens);

// How the graphs are compiled; `parallel` is that of graphs_of. `device`: the one that the options name, where it is
// made already.
CompileOptions compile_options(const Assembly& assembly, const Parallel& parallel, int64_t ranks, int threads,
                               std::shared_ptr<Device> device = nullptr);

// Collective; a null world is one rank.
Session session_of(const Assembly& assembly, comm::World* world, ThreadPool* pool);

}  // namespace trireme
