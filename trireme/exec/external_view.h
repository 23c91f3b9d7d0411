// The memory of an input that lies outside of its plan's arena, as it is given, checked against what the plan wants.
#pragma once

#include <functional>
#include <string_view>

#include "trireme/exec/plan.h"
#include "trireme/tensor/view.h"

namespace trireme {

// `given`: as ExecutorOptions::external. `device`: by its name, for errors.
View external_view(const ExecutionPlan& plan, const PlanInput& input,
                   const std::function<View(std::string_view)>& given, std::string_view device);

}  // namespace trireme
