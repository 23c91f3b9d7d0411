// A rank table.
#include "trireme/launch/start/rank_table.h"
#include "tests/fuzz/support.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] { launch::parse_rank_table(fuzz::text_of(data, size), "table.json"); });
  return 0;
}
