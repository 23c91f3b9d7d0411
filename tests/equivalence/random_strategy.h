// Random legal strategies for any graph, in three ways: every node, input and output cut at random;
// propagation from random asks; and what a person says (semi_auto).
#pragma once

#include "tests/equivalence/draw.h"
#include "trireme/op/numerics.h"
#include "trireme/parallel/asked/stages.h"
#include "trireme/parallel/strategy/strategy.h"

namespace trireme::equivalence {

// Where bits must not depend on the cuts, those that a person or propagation asks for may be ones that are refused.
Strategy random_strategy(const Graph& graph, Draw& draw, Numerics numerics = Numerics::kFast);

// As a person says it of a pipeline for a model of text (random_text.h). Throws kInvalidArgument for what
// is drawn and does not fit.
Strategy random_strategy_of_text(const Graph& graph, Draw& draw, const PipelineParallel& pipeline,
                                 int64_t micro_batches, const ScopeStages& stages);

}  // namespace trireme::equivalence
