// Checks that all ranks were asked for the same run. Their plans are compared by themselves (exec/run/agree); this is
// what no plan has: rates, seeds, samples, and when a run ends, validates and saves.
#pragma once

#include "trireme/comm/comm.h"
#include "trireme/data/source.h"
#include "trireme/train/step/fit_options.h"
#include "trireme/train/step/graphs/step.h"
#include "trireme/train/step/trainer_options.h"

namespace trireme {

// Collective; with one rank `world` is null. Throws kInvalidArgument on all ranks, naming what the first rank that
// differs from rank 0 was asked for instead.
void agree_on_run(const Optimizer& optimizer, const TrainerOptions& options, const data::Source& train,
                  const FitOptions& fit, comm::World* world);

}  // namespace trireme
