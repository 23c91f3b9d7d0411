// What every rank of a job must be given alike. Ranks compare the hash of their plans (exec/run/agree.h); but how long
// a run is, when it validates and saves, its rates, seed and samples are in no plan: a rank that was given others would
// train on with the rest, on weights that are no longer theirs, or wait for what they never start.
#pragma once

#include <string>
#include <vector>

#include "trireme/data/source.h"
#include "trireme/nn/optimizer.h"
#include "trireme/train/step/fit_options.h"
#include "trireme/train/step/trainer_options.h"

namespace trireme {

// "name = value", a line each.
std::string settings_text(const Optimizer& optimizer, const TrainerOptions& options, const FitOptions& fit,
                          const data::Source& train);

// The first line in which a rank's settings differ from the first rank's, in words; "" where all are alike.
std::string unlike_settings(const std::vector<std::string>& of_ranks);

}  // namespace trireme
