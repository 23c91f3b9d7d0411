// HOST:PORT as users write it.
#include "tests/fuzz/support.h"
#include "trireme/launch/cluster/address.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::round_trip(
      fuzz::text_of(data, size), [](std::string_view text) { return launch::parse_host_port(text, 8118, "--master"); },
      [](const launch::HostPort& at) { return launch::host_port_text(at.host, at.port); });
  return 0;
}
