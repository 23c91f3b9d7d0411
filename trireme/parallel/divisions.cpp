// Into how many parts a Parallel divides ranks and batch (parallel.h).
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/parallel/parallel.h"

namespace trireme {
namespace {

// Those of a strategy's file where nothing else says how many there are.
std::optional<int64_t> written_micro_batches(const Parallel& parallel) {
  if (parallel.strategy.empty() || parallel.strategy.has_parameters_only() || parallel.accumulation != 1)
    return std::nullopt;
  const Mesh& mesh = parallel.strategy.mesh();
  const int64_t parts = std::max<int64_t>(1, parallel.interleave) * seq_chunks(mesh);
  return micro_batches(mesh) % parts == 0 ? std::optional(micro_batches(mesh) / parts) : std::nullopt;
}

}  // namespace

int64_t ranks_of_crew(const PipelineParallel& pipeline, int64_t ranks) {
  require(pipeline.crews >= 1, "a pipeline of {} parts; it has 1 or more", pipeline.crews);
  require(ranks % pipeline.crews == 0,
          "the pipeline has {} equal parts of the ranks (parallel.pp), and the job has {}; start {}", pipeline.crews,
          counted(ranks, "rank"), (ranks + pipeline.crews - 1) / pipeline.crews * pipeline.crews);
  return ranks / pipeline.crews;
}

Mesh mesh_of_ranks(const Parallel& parallel, int64_t ranks) {
  require(ranks >= 1, "parallel over {} ranks; it must be 1 or more", ranks);
  if (parallel.mesh.empty()) return Mesh({{"dp", ranks}});
  const Mesh& mesh = parallel.mesh.ranks();
  const int64_t crews = parallel.pipeline.crews;
  require(mesh.devices() == ranks, "mesh '{}' has {} devices but {} has {} ranks; start {} ranks, or change the mesh",
          to_string(parallel.mesh), mesh.devices(),
          crews == 1 ? "the job" : fmt::format("each of the {} parts of the pipeline (parallel.pp)", crews), ranks,
          mesh.devices() * crews);
  return mesh;
}

int64_t micro_batches_of(const Parallel& parallel) {
  require(parallel.accumulation >= 1, "{} micro-batches a step; it must be 1 or more", parallel.accumulation);
  if (const std::optional<int64_t> written = written_micro_batches(parallel)) return *written;
  if (parallel.mesh.empty()) return parallel.accumulation;
  const int64_t in_mesh = parallel.mesh.micro_batches();
  require(seq_chunks(parallel.mesh.whole()) == 1,
          "mesh '{}' has the axis '{}', which parallel.seq_chunks makes; leave it out", to_string(parallel.mesh),
          kSeqChunkAxis);
  require(in_mesh == 1 || parallel.accumulation == 1 || in_mesh == parallel.accumulation,
          "mesh '{}' has {} micro-batches, and {} are set; keep one", to_string(parallel.mesh), in_mesh,
          parallel.accumulation);
  return std::max(in_mesh, parallel.accumulation);
}

int64_t seq_chunks_of(const Parallel& parallel) {
  const PipelineParallel& pipeline = parallel.pipeline;
  if (pipeline.crews > 1 && pipeline.schedule.given() != nullptr) return pipeline.schedule.given()->seq_chunks;
  if (pipeline.crews > 1)
    return timetable_of(pipeline, std::max(pipeline.crews, micro_batches_of(parallel))).seq_chunks;
  require(pipeline.seq_chunks <= 1,
          "{} chunks of positions (seq_chunks) are for pipelines with the schedule seq-1f1b; set parallel.pp, or leave "
          "them out",
          pipeline.seq_chunks);
  return 1;
}

int64_t parts_of_micro_batch(const Parallel& parallel) {
  require(parallel.interleave >= 1, "{} interleaved copies of a micro-batch; it must be 1 or more",
          parallel.interleave);
  const int64_t chunks = seq_chunks_of(parallel);
  require(parallel.interleave == 1 || chunks == 1,
          "a micro-batch is divided into {} interleaved copies or {} chunks of positions, not both; keep one",
          parallel.interleave, chunks);
  return parallel.interleave * chunks;
}

}  // namespace trireme
