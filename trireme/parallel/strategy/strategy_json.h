// The JSON form of a strategy's text, for other programs: {"mesh", "sums", "graph", "model", "only", "inputs":
// [{"name", "type", "layout", "state_of", "sums"}], "stages": {"scope": 1}, "nodes": [{"op", "cuts"}], "outputs":
// [{"name", "type", "layout", "mean"}]}, with the words of the text as strings. "stages" is of a pipeline alone,
// "state_of" of an optimizer's state, "sums" of micro-batches.
#pragma once

#include <string>
#include <string_view>

#include "trireme/parallel/strategy/strategy_file.h"

namespace trireme {

std::string strategy_to_json(const StrategyFile& file);
// The text of the strategy. Throws kInvalidArgument; `where` names the file.
std::string strategy_from_json(std::string_view json, const std::string& where);

}  // namespace trireme
