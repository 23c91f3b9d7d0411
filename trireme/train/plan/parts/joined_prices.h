// Prices of ways whose micro-batches depend on each other (StepFigures::is_joined). Such a way has one micro-batch, the
// whole batch, and no pipeline. What it takes depends on how many tokens its ranks have together, so each is compiled
// by itself: as a job with few blocks, and as the same job with one more of each kind. What that adds is what each
// further block takes.
#pragma once

#include <cstdint>
#include <memory>

#include "trireme/train/plan/parts/inner_way.h"
#include "trireme/train/plan/parts/model_parts.h"

namespace trireme {

class JoinedPrices {
 public:
  // `job` is without cuts.
  JoinedPrices(const JobConfig& job, const ModelParts& parts, int threads);
  ~JoinedPrices();

  // What stands before the blocks, with whatever is not of further blocks; a block of each kind; nothing. The sums over
  // all parts are the price of the program that a rank runs, and its arena. Throws what compiling it throws.
  PartPrices of(const InnerWay& way);

  int64_t jobs_compiled() const { return jobs_compiled_; }

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
  int64_t jobs_compiled_ = 0;
};

}  // namespace trireme
