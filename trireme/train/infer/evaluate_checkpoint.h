// Loss and accuracy of a checkpoint's model over a set of samples, without training.
#pragma once

#include "trireme/ckpt/checkpoint.h"
#include "trireme/train/job/config.h"
#include "trireme/train/job/job.h"
#include "trireme/train/loop/evaluator.h"

namespace trireme {

// The parameters are read onto the ranks of the job as the configuration cuts them; batches are of
// config.train.fit.batch samples. Only what evaluation needs is in memory. Collective.
EvaluationResult evaluate_checkpoint(const ckpt::Reader& reader, const JobConfig& config,
                                     const data::SourcePtr& samples, const Job& job);

}  // namespace trireme
