// The JSON form of a strategy's text, for other programs: {"mesh", "graph", "model", "only", "inputs": [{"name",
// "type", "layout"}], "nodes": [{"op", "cuts"}], "outputs": [{"name", "type", "layout", "mean"}]}, with the words of
// the text as strings.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

std::string strategy_to_json(std::string_view text);
// Throws kInvalidArgument; `where` names the file.
std::string strategy_from_json(std::string_view json, const std::string& where);

}  // namespace trireme
