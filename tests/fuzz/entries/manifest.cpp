// The index of a checkpoint.
#include "trireme/ckpt/manifest.h"
#include "tests/fuzz/support.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  for (const bool is_whole : {true, false}) {
    fuzz::round_trip(
        fuzz::text_of(data, size),
        [&](std::string_view text) { return ckpt::parse_index(text, "index.json", is_whole); }, ckpt::print_index);
  }
  return 0;
}
