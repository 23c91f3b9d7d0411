// What a search found, in about ten lines for people: the mesh, the time of a step and how much of it moves values,
// memory, how far the result can be from the best, and how ops with weights are cut.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/planner/search.h"

namespace trireme {

// `price` is that of `strategy`, which is what was found or was made of it; with micro-batches, of what was found.
// `crews`: of a pipeline, by each of which all stages are priced.
std::string search_text(const Graph& graph, const Strategy& strategy, const StepPrice& price, const SearchResult& found,
                        int64_t crews, const SearchOptions& search);

}  // namespace trireme
