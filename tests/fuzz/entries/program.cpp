// The text of a program, with how its values lie, and the checks of one that was read.
#include "tests/fuzz/support.h"
#include "trireme/partition/partition.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  fuzz::round_trip(fuzz::text_of(data, size), parse_program, [](const Program& program) {
    verify(program);
    return to_string(program);
  });
  return 0;
}
