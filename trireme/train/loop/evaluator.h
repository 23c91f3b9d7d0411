// Evaluator: loss and accuracy over a held-out set. Every sample counts once and equally, whatever the batch and
// however it is cut: the loss is the mean over the samples, or over those of their targets that count (CountedLoss), as
// one batch of all of them would give it. If a model's code makes a scalar loss in another way, it is weighted by
// samples too, and the trainer warns about it (step/graphs/loss_terms.h).
#pragma once

#include <cstdint>
#include <vector>

#include "trireme/data/batches.h"
#include "trireme/exec/run/executor.h"
#include "trireme/train/step/graphs/step.h"

namespace trireme {

struct EvaluationResult {
  double loss = 0;
  double accuracy =
      0;  // in [0, 1], over all targets, or those that count; 0 where the graph does not count right answers
  int64_t samples = 0;
};

class Evaluator {
 public:
  // The executor of a graph made by `evaluation` (train/step/graphs/step.h) for a batch of so many samples of the
  // source. Throws kInvalidArgument for one of another batch.
  Evaluator(Executor& executor, data::SourcePtr source, int64_t batch, bool accuracy);

  // Over the first so many batches; 0: all samples. Collective. Throws kInvalidArgument where no target counts.
  EvaluationResult run(int64_t most_batches = 0) const;

 private:
  Executor& executor_;
  data::SourcePtr source_;
  int64_t batch_;
  bool accuracy_;
  bool counts_ = false;  // the graph says how many targets count
  std::vector<data::FieldSlice> slices_;
  std::vector<BatchField> fields_;
};

}  // namespace trireme
