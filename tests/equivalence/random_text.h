// Random models of text: what can be cut in chunks of positions. Parts that treat each position by itself, or attend to
// earlier ones, with skips from early parts to late ones and weights that several share.
#pragma once

#include "tests/equivalence/draw.h"
#include "trireme/ir/graph.h"

namespace trireme::equivalence {

// Its inputs are named as those of a random graph (random_graph.h). Positions divide by `chunks`, samples by `samples`.
Graph random_text_graph(Draw& draw, int64_t samples, int64_t chunks);

}  // namespace trireme::equivalence
