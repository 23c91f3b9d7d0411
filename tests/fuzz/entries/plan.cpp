// The text of an execution plan, and the checks of one that was read.
#include "tests/fuzz/support.h"
#include "trireme/exec/plan/execution_plan.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::round_trip(fuzz::text_of(data, size), parse_plan, [](const ExecutionPlan& plan) {
    verify(plan);
    return to_string(plan);
  });
  return 0;
}
