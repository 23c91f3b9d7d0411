// From a job's configuration to the parts that a training is made of.
#pragma once

#include <cstdint>

#include "trireme/train/job/config.h"

namespace trireme {

Optimizer make_optimizer(const JobConfig& config);
TrainerOptions trainer_options(const JobConfig& config, int64_t ranks);
// What graphs and plans of the job are made from, without its data. The model outlives it.
Assembly assembly_of(const JobConfig& config, nn::Module& model, int64_t ranks);
// The same without what nothing but a checkpoint keeps, the job's text, for who makes many of them.
Assembly assembly_without_text(const JobConfig& config, nn::Module& model, int64_t ranks);

}  // namespace trireme
