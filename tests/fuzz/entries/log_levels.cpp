// TRIREME_LOG and --log.
#include "tests/fuzz/support.h"
#include "trireme/base/log.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] { set_log_levels(fuzz::text_of(data, size)); });
  return 0;
}
