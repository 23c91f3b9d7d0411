// What an exact plan is made for: everything that is known before any part of the model is priced.
#pragma once

#include "trireme/nn/model_spec.h"
#include "trireme/train/plan/parts/outer_ways.h"
#include "trireme/train/plan/plan_job.h"

namespace trireme {

struct ExactSetting {
  JobConfig job;      // without cuts
  std::string graph;  // hash of the training step
  Machine machine;
  int64_t memory_bytes = 0;  // of a rank's device
  BesideBytes beside;        // and beside it
  ModelParts parts;
  nn::Cuttable model;
  int64_t positions = 1;  // of a sample
  StepFigures figures;
  double flops = 0, peak_flops_per_s = 0;  // of the step; of all ranks

  int64_t most_ranks = 0;                         // that the machine has; 0: no end is known
  std::function<bool(const Way&)> is_asked = {};  // of all ways only these; empty: all

  std::vector<UpdatePlace> places() const;  // beside the device, of state and updates
  std::vector<Tier> keeps() const;          // the same of what is kept for the backward pass
  OuterWays ways(int64_t ranks) const;
  OuterWays ways(int64_t ranks, int64_t batch) const;
};

// Throws as plan_exact.
ExactSetting exact_setting(const PlanRequest& request);

}  // namespace trireme
