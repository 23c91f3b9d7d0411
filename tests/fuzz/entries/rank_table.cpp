// A rank table.
#include "tests/fuzz/support.h"
#include "trireme/launch/rank_table.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] { launch::parse_rank_table(fuzz::text_of(data, size), "table.json"); });
  return 0;
}
