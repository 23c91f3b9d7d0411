// What was measured to be quickest on a machine.
#include "trireme/mesh/tuning.h"
#include "tests/fuzz/support.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::round_trip(fuzz::text_of(data, size), parse_tuning, [](const Tuning& tuning) { return to_string(tuning); });
  return 0;
}
