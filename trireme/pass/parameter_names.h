// Which parameter a value belongs to, for the fusion ids of parameters.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/ir/program.h"

namespace trireme {

// Of each value, the name of the parameter that it belongs to: one of the parameter itself, its gradient and its
// optimizer's state, or made of such values of one parameter and of scalars alone. "": none, or several.
std::vector<std::string_view> parameter_names(const Graph& graph);

}  // namespace trireme
