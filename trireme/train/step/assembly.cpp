#include "trireme/train/step/assembly.h"

#include <algorithm>

#include "trireme/backend/device.h"
#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/train/step/session/tune.h"

namespace trireme {
namespace {

// Data parallel ranks that have parameters of their own run what each would run by hand.
bool is_by_hand(const Assembly& assembly) {
  if (assembly.options.mode == Mode::kHybrid) return true;
  if (assembly.options.mode != Mode::kDataParallel) return false;
  const Graph graph =
      evaluation(assembly.model, assembly.loss, assembly.batch, {}, {.layerwise = assembly.options.parallel.layerwise});
  return std::ranges::any_of(graph.inputs(), [](const Input& input) { return !input.piece.empty(); });
}

Graph evaluation_graph(const Assembly& assembly, const Parallel& parallel, std::vector<BatchField> fields,
                       int64_t ranks) {
  const HandCut cut = cut_by_hand(parallel, ranks, fields);
  return evaluation(assembly.model, assembly.loss, fields, assembly.options.step, cut);
}

// What has its home on the disk lies in the run's folder, where nothing else is said.
std::string disk_of(const TrainerOptions& options) {
  const std::string& asked = options.parallel.tiers.disk.directory();
  return asked.empty() ? options.out : asked;
}

// One sample of so many tokens.
std::vector<BatchField> of_next_tokens(const Assembly& assembly, int64_t tokens) {
  std::vector<BatchField> fields = assembly.batch;
  for (BatchField& field : fields) {
    for (int dim = 0; dim < field.type.shape.rank(); ++dim) field.type.shape[dim] = dim == 1 ? tokens : 1;
  }
  return fields;
}

// That compute at a time on a host of the job's ranks.
int busy_threads(const Parallel& parallel, int64_t ranks, int threads) {
  const std::optional<Machine>& machine = parallel.communication.machine;
  const int64_t on_host = machine ? std::min(ranks, machine->devices_per_host) : ranks;
  return static_cast<int>(on_host) * threads;
}

}  // namespace

Parallel parallel_of(const Assembly& assembly) {
  Parallel out = assembly.options.parallel;
  if (assembly.options.mode == Mode::kDataParallel)
    out.follow_requests = false;  // ranks hold the whole model, whatever its code asks
  out.by_hand = is_by_hand(assembly);
  const bool searches = assembly.options.mode == Mode::kAuto;
  require(searches || out.search.kind == SearchKind::kNone,
          "the search {} is for mode auto_parallel (Mode::kAuto), and the mode is {}", to_string(out.search.kind),
          to_string(assembly.options.mode));
  if (searches && out.search.kind == SearchKind::kNone) out.search.kind = SearchKind::kRecursiveProgramming;
  return out;
}

JobGraphs graphs_of(const Assembly& assembly, int64_t ranks) {
  const Parallel parallel = parallel_of(assembly);
  std::vector<BatchField> fields = assembly.batch;
  const HandCut cut = cut_by_hand(parallel, ranks, fields);
  JobGraphs out{training_step(assembly.model, assembly.loss, fields, assembly.optimizer, assembly.options.step, cut),
                std::nullopt, parallel};
  if (!assembly.evaluation_batch.empty())
    out.evaluation = evaluation_graph(assembly, parallel, assembly.evaluation_batch, ranks);
  return out;
}

Graph evaluation_of(const Assembly& assembly, int64_t ranks) {
  const std::vector<BatchField>& held_out = assembly.evaluation_batch;
  return evaluation_graph(assembly, parallel_of(assembly), held_out.empty() ? assembly.batch : held_out, ranks);
}

Graph inference_of(const Assembly& assembly, int64_t ranks) {
  std::vector<BatchField> fields = assembly.batch;
  cut_by_hand(parallel_of(assembly), ranks, fields);
  return inference(assembly.model, fields, assembly.options.step);
}

Graph decoding_of(const Assembly& assembly) {
  return decoding(assembly.model, of_next_tokens(assembly, 1), assembly.batch.front().type.shape[1],
                  assembly.options.step);
}

Graph reading_of(const Assembly& assembly, int64_t tokens) {
  return reading(assembly.model, of_next_tokens(assembly, tokens), assembly.batch.front().type.shape[1],
                 assembly.options.step);
}

CompileOptions compile_options(const Assembly& assembly, const Parallel& parallel, int64_t ranks, int threads,
                               std::shared_ptr<Device> device) {
  if (!device) device = make_device(assembly.options.device);
  const Numerics numerics = assembly.options.step.numerics;
  const int busy = busy_threads(parallel, ranks, threads);
  return {.ranks = ranks,
          .threads = threads,
          .device = device,
          .parallel = parallel,
          .numerics = numerics,
          .tuning = numerics == Numerics::kFast ? known_tuning(assembly.options.tuning, *device, busy) : nullptr,
          .passes = assembly.options.passes};
}

Session session_of(const Assembly& assembly, comm::World* world, ThreadPool* pool) {
  const std::string& disk = assembly.options.parallel.tiers.disk.directory();
  if (!disk.empty()) require_directory(disk, "parallel.disk", "name a directory that there is, or make one");
  JobGraphs graphs = graphs_of(assembly, world ? world->size() : 1);
  CompileOptions how = compile_options(assembly, graphs.parallel, world ? world->size() : 1, pool ? pool->size() : 1);
  return Session(std::move(graphs.step), std::move(graphs.evaluation),
                 {.world = world,
                  .pool = pool,
                  .seed = assembly.options.step.seed,
                  .parameter_broadcast = assembly.options.parameter_broadcast,
                  .disk = disk_of(assembly.options),
                  .tuning = assembly.options.tuning,
                  .compile = std::move(how)});
}

}  // namespace trireme
