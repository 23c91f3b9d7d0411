// Where rank 0 serves the job's store, as the others read it.
#include "trireme/launch/start/store_address.h"
#include "tests/fuzz/support.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] {
    const auto address = launch::parse_store_address(fuzz::text_of(data, size));
    if (!address) return;
    const auto again = launch::parse_store_address(launch::to_string(*address));
    fuzz::demand(again && launch::to_string(*again) == launch::to_string(*address), "a place reads back as another");
  });
  return 0;
}
