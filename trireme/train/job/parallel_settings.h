// Strategies: what a job's configuration says about how its model is cut, as rules for the planner. The built-in models
// have ready-made ones: `tp` cuts every layer's weights over the axis "tp" as Megatron-LM does (Shoeybi et al., 2019:
// columns of the first product, rows of the second), `sp` the residual stream between them along positions over
// the same axis (Korthikanti et al., 2022), and `cp` cuts the positions of all activations over an axis of its own,
// with either an all-to-all to heads and back around attention (DeepSpeed-Ulysses, Jacobs et al., 2023), or attention
// in a ring (Liu et al., 2023), or heads over some of its ranks and rings of the others. `ep` ranks of the data
// parallel ones share the experts of a mixture.
#pragma once

#include <cstdint>

#include "trireme/parallel/parallel.h"
#include "trireme/train/job/config.h"

namespace trireme {

// Throws kInvalidArgument when the ranks do not divide, or the model has no ready-made strategy of the kind asked for.
Parallel parallel_of(const JobConfig& config, int64_t ranks);

// What parallel.strategy's file says, whatever its form; empty where none is named.
StrategyFile strategy_of(const JobConfig& config);

// Ranks of `cp` over which heads are cut in attention: all of them (Ulysses), or some, while the others form rings.
int64_t ranks_of_heads(const JobConfig& config);

// How attention is computed on positions that are cut over `cp`, in words; "" where they are not.
std::string describe_context(const JobConfig& config);

// What of a step's values is computed again.
Recompute recompute_of(const JobConfig& config);

// In how many parts the batch falls; 1 where a strategy file or another dataset strategy than data_parallel says it.
int64_t data_parallel_degree(const JobConfig& config, int64_t ranks);

}  // namespace trireme
