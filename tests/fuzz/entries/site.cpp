// Where rank 0 serves the job's store, as the others read it.
#include "trireme/launch/start/site.h"
#include "tests/fuzz/support.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::accepts([&] {
    const auto site = launch::parse_site(fuzz::text_of(data, size));
    if (!site) return;
    const auto again = launch::parse_site(launch::to_string(*site));
    fuzz::demand(again && launch::to_string(*again) == launch::to_string(*site), "a place reads back as another");
  });
  return 0;
}
