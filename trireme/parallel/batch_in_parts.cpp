#include "trireme/parallel/batch_in_parts.h"

#include <algorithm>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/parallel/propagate/found_layouts.h"

namespace trireme {
namespace {

// Whether the pipeline has an order of so many micro-batches.
bool takes(const PipelineParallel& pipeline, int64_t micro_batches) {
  if (pipeline.crews == 1) return true;
  try {
    timetable_of(pipeline, micro_batches);
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace

void BatchInParts::ask(Asks& asks) const {
  if (micro_batches(all_) == 1) return;
  const Axes chunks = seq_chunk_axes(all_);
  for (size_t i = 0; i < graph_.inputs().size(); ++i) {
    const Input& input = graph_.inputs()[i];
    if (input.role != Role::kData || !asks.inputs[i]) continue;
    check_samples(input, *asks.inputs[i]);
    Layout read = *asks.inputs[i];
    for (const int axis : micro_batch_axes(all_)) {
      if (!is_seq_chunk_axis(all_, axis)) read.dims[0].push_back(axis);
    }
    if (!chunks.empty()) cut_in_chunks(input, chunks, read);
    const Axes as_given = read.dims[0];
    order_micro_batches(all_, asks, read.dims[0]);
    if (read.dims[0] == as_given) {
      asks.inputs[i] = std::move(read);
    } else {
      asks.seen_as[input.value] = std::move(read);
    }
  }
}

// "use 4 micro-batches, or ": the most that are no more than `count` and that schedule and samples allow, if any.
std::string BatchInParts::fewer_micro_batches(int64_t samples, int64_t count) const {
  const int64_t step = parallel_.interleave;
  for (int64_t fewer = count / step; fewer >= parallel_.pipeline.crews; --fewer) {
    if (samples % (fewer * step) == 0 && takes(parallel_.pipeline, fewer))
      return fmt::format("use {}, or ", counted(fewer, "micro-batch"));
  }
  return step > 1 ? "leave the interleaving out, or use " : "use ";
}

// Each rank's part of the batch is divided into this many parts.
void BatchInParts::check_samples(const Input& input, const Layout& layout) const {
  const TensorType& type = graph_.type(input.value);
  require(type.shape.rank() >= 1, "data input '{}' is a scalar; its first dimension must be the batch", input.name);
  const int64_t count = micro_batches(all_) / seq_chunks(all_);
  const int64_t samples = type.shape[0] / all_.size_of(layout.dims[0]);
  require(samples % count == 0,
          "a rank's {} of the batch ('{}' {}) cannot be divided into {} micro-batches{}; {}a batch of {}",
          counted(samples, "sample"), input.name, to_string(type), count,
          parallel_.interleave > 1 ? fmt::format(" (parallel.gradient_accumulation_steps = {} x interleave = {})",
                                                 count / parallel_.interleave, parallel_.interleave)
                                   : "",
          fewer_micro_batches(samples, count), (samples + count - 1) / count * count * all_.size_of(layout.dims[0]));
}

void BatchInParts::cut_in_chunks(const Input& input, const Axes& chunks, Layout& layout) const {
  const TensorType& type = graph_.type(input.value);
  require(type.shape.rank() >= 2,
          "data input '{}' {} has no positions that could be cut into {} chunks; use the schedule {}", input.name,
          to_string(type), seq_chunks(all_), of_whole_positions(parallel_.pipeline.schedule));
  const int64_t positions = type.shape[1] / all_.size_of(layout.dims[1]);
  int64_t fits = seq_chunks(all_);
  while (fits > 1 && positions % fits != 0) --fits;
  require(fits == seq_chunks(all_), "a rank's {} positions ('{}' {}) cannot be divided into {} chunks; {}", positions,
          input.name, to_string(type), seq_chunks(all_),
          fits > 1 ? fmt::format("use {}", fits)
                   : fmt::format("use the schedule {}", of_whole_positions(parallel_.pipeline.schedule)));
  layout.dims[1].append(chunks.begin(), chunks.end());
}

}  // namespace trireme
