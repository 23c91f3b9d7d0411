// What the scheduler tells a node, after its proof.
#include "tests/fuzz/support.h"
#include "trireme/launch/cluster/message.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::round_trip(fuzz::text_of(data, size), launch::decode_view,
                   [](const launch::ClusterView& view) { return launch::encode(view); });
  return 0;
}
