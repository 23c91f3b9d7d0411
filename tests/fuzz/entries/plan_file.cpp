// The file of `trireme plan --out`.
#include "tests/fuzz/support.h"
#include "trireme/train/plan/plan_text.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::round_trip(
      fuzz::text_of(data, size), [](std::string_view of) { return parse_plan_file(of); },
      [](const PlanFile& file) { return to_string(file); });
  return 0;
}
