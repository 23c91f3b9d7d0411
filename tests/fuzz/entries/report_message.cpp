// What a node tells the scheduler, after its proof.
#include "tests/fuzz/support.h"
#include "trireme/launch/cluster/message.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::round_trip(fuzz::text_of(data, size), launch::decode_report,
                   [](const launch::NodeReport& report) { return launch::encode(report); });
  return 0;
}
