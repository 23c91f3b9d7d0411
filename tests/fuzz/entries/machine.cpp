// A machine file.
#include "trireme/mesh/machine.h"
#include "tests/fuzz/support.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::round_trip(
      fuzz::text_of(data, size), [](std::string_view text) { return parse_machine(text, "machine.toml"); },
      [](const Machine& machine) { return to_string(machine); });
  return 0;
}
