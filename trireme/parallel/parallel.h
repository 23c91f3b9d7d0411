// Parallel: what the user asks about how a model is cut over ranks, and semi_auto, which turns that into a strategy.
// All kinds of parallelism are choices of layouts here:
//   data parallel        the batch cut over "dp"
//   tensor parallel      weights, or the operands of products, cut over another axis
//   sequence parallel    the same axis cutting positions where the weights do not ("-> [dp, tp, -]")
//   optimizer parallel   state, gradients and weights cut over the axes that their gradients are summed over
//   accumulation         the batch cut over "micro_batch", an axis of the mesh that takes no ranks (mesh/mesh.h)
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/keys.h"
#include "trireme/layout/reshard.h"
#include "trireme/mesh/machine.h"
#include "trireme/mesh/mesh_spec.h"
#include "trireme/op/numerics.h"
#include "trireme/parallel/asked/asked.h"
#include "trireme/parallel/asked/fusion.h"
#include "trireme/parallel/asked/home_rules.h"
#include "trireme/parallel/asked/op_homes.h"
#include "trireme/parallel/asked/search_options.h"
#include "trireme/parallel/asked/stages.h"
#include "trireme/parallel/asked/tier_sizes.h"
#include "trireme/parallel/asked/tier_ways.h"
#include "trireme/parallel/propagate/propagate.h"
#include "trireme/parallel/strategy/strategy.h"
#include "trireme/parallel/strategy/strategy_file.h"

namespace trireme {

// ZeRO (Rajbhandari et al., 2020). A parameter is sliced when all hold: `level` is not 0, no pattern of `except`
// matches, it has `threshold_kb` KiB or more, its gradient is summed over some axes, and a dimension falls in as many
// parts as these have ranks, or the less significant of them. Otherwise it stays as it is (parallel/without_effect.h
// says how much does). Slices are along the dimension in which they are smallest, the first of several: where a
// dimension divides they are equal, else the last one is shorter (layout/layout.h).
struct OptimizerParallel {
  int64_t level = 0;  // 1: state is sliced; 2: gradients too; 3: weights too, gathered where they are read
  int64_t threshold_kb = 64;
  int64_t shard_size =
      -1;  // ranks that share one copy; -1: all; ignored where it does not divide the ranks that sum a gradient
  std::vector<std::string> except = {};
};
// The section [parallel].
std::vector<Key> keys_of(OptimizerParallel& options);
// Throws kInvalidArgument for groups that so many ranks, of one crew, cannot form.
void check_shard_size(const OptimizerParallel& options, int64_t ranks);
bool is_excepted(const std::string& name, const OptimizerParallel& options);
bool is_below_threshold(const TensorType& type, const OptimizerParallel& options);

// How what is cut is moved between ranks.
struct Communication {
  bool all_to_all = true;  // false: an exchange is an all-gather and a slice
  // Sums over ranks of the gradients of parameters that layers compute with in bf16: in f32, or in bf16, which is half
  // the bytes and rounds each addition. Gradients of a model that computes in f32 are summed in f32 either way.
  bool gradients_in_f32 = true;
  bool all_in_f32 = false;  // every sum over ranks of narrower floating values is taken in f32
  // Gradients that ranks have slices of are summed over ranks for each micro-batch, and each rank adds up its slice
  // alone; false: each adds up whole gradients, which are summed over ranks once a step.
  bool shard_accumulation = false;
  // Its links are what reshards are chosen by; none: alike links of 5 GB/s. These and its rates also say which sums of
  // gradients go together.
  std::optional<Machine> machine;
  // A machine that a run measured (train/step/session/measure_rates.h): which sums go together is by its rates where no
  // machine is named, instead of being measured as the job starts.
  std::optional<Machine> measured;
  Fusion fusion;
  // Equal collectives are said once in a rank's plan, and bound once (exec/plan/reuse.h): the most that are, 0: none,
  // -1: as many as is usual; those that stand in it more often than `reuse_above`.
  int64_t reuse = 0, reuse_above = 1;
};
// The section [parallel].
std::vector<Key> keys_of(Communication& options);

struct Parallel {
  MeshSpec mesh;  // "dp=2,tp=2"; none: "dp=<ranks>"
  // Parts of its batch that a rank works through one after the other before it updates parameters (gradient
  // accumulation). The step computes what it would in one part. "micro_batch=4" at the mesh's end says the same.
  int64_t accumulation = 1;
  // Each of them is divided again into so many copies, which are computed side by side: one computes while ranks
  // exchange what another reads next. Their activations are alive together.
  int64_t interleave = 1;
  DatasetStrategy dataset;
  // Name of a field of the batch -> its layout, "[dp, sp]", for its leading dimensions, instead of what `dataset` says.
  std::vector<LayoutRule> fields;
  // Name of a parameter -> the layout it is stored in, "[-, tp]". Without a rule it is stored as the op that is asked
  // for has it, else as the first op that reads it; an op that wants it otherwise gets it resharded where it is read.
  std::vector<LayoutRule> parameters;
  // "<scope>", "<scope>/<op>" or "<scope>/<op>#<k>" (parallel/asked/op_names.h) -> cuts (layout/cuts.h) or an attribute
  // (parallel/asked/asked.h). Without an op: the first one in the scope that has operands of those numbers of
  // dimensions. These win over what the model's code asks with Module::shard.
  std::vector<OpRule> ops;
  OptimizerParallel optimizer;
  // Of the ranks, `mesh` is of one crew's.
  PipelineParallel pipeline;
  Communication communication;
  std::vector<HomeRule> homes;
  OnHost on_host;
  TierSizes tiers;  // that a rank may take
  TierWays tier_ways;
  // The graph is cut by hand: it is what each rank runs, with collectives of the model's own code (ir/graph.h,
  // Input::piece). Of the rest, `mesh` counts, and `dataset` for the batch that a rank is given.
  bool by_hand = false;
  // Name of a parameter -> how the ranks' pieces of it lie: "[tp, -]", or kOwnPiece. For graphs cut by hand.
  std::vector<PieceRule> layerwise;
  // How what is not asked above is found: by search, over the mesh, where it names one.
  SearchOptions search;
  bool follow_requests = true;  // false: what the model's code asks with Module::shard is not looked at
  // A strategy for the training step that was written down; when given, nothing above is asked. One of parameters only
  // gives the mesh and rules for them; all else is asked as above.
  StrategyFile strategy;
};

struct SemiAutoOptions {
  const std::map<std::string, Layout>* stored =
      nullptr;                          // of parameters that are already there, by name; null: none are
  Numerics numerics = Numerics::kFast;  // kInvariant: sums are taken before anything reads them
  ScopeStages stages = {};              // of a pipeline; empty: there is none
  bool says_why = true;                 // of each input and node why it is cut so
  // Decides what is not asked; none: propagate.
  std::function<Strategy(const Graph&, const Mesh&, const Asks&)> decide = {};
};

// Throws kInvalidArgument for whatever does not fit: a mesh of another size, a rule that matches nothing, cuts that do
// not divide, one parameter asked for in two layouts (naming both who asked).
Strategy semi_auto(const Graph& graph, int64_t ranks, const Parallel& parallel, const SemiAutoOptions& options = {});

// The batch cut over all ranks, everything else replicated. Throws kInvalidArgument when the batch does not
// divide, naming the batches that would.
Strategy data_parallel(const Graph& graph, int64_t ranks);

// The ranks of each crew of a pipeline; all, without one. Throws kInvalidArgument where they do not divide.
int64_t ranks_of_crew(const PipelineParallel& pipeline, int64_t ranks);

// The mesh of the ranks (of a crew), without the axes that take none; the micro-batches of a step; what each is divided
// into, copies that are interleaved or chunks of positions. Where no strategy is given. Throw kInvalidArgument as
// semi_auto does.
Mesh mesh_of_ranks(const Parallel& parallel, int64_t ranks);
int64_t micro_batches_of(const Parallel& parallel);
int64_t seq_chunks_of(const Parallel& parallel);
int64_t parts_of_micro_batch(const Parallel& parallel);

// The costs that reshards over the mesh are chosen by. Throws kInvalidArgument when the machine has fewer devices.
ReshardCosts reshard_costs(const Communication& communication, const Mesh& mesh);

// The values of the graph whose sums over ranks are taken in another type than their own, and in which.
std::map<ValueId, DType> sum_types(const Graph& graph, const Communication& communication);

// The order of sums that is asked for over this mesh; without micro-batches there is none. With level 1, each rank adds
// up whole gradients of the parameters that it may slice, whatever Communication::shard_accumulation says; so it does
// of what a search sliced, which prices one sum a step, up to level 1.
SumOrder sum_order(const Graph& graph, const Parallel& parallel, const Mesh& mesh);

// Changes what is asked so that optimizer state, gradients and weights are sliced over the axes the gradients are
// summed over. `plain` is the strategy without.
void ask_optimizer_parallel(const Graph& graph, const Strategy& plain, const OptimizerParallel& options, Asks& asks);

}  // namespace trireme
