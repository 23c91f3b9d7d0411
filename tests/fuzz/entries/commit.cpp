// A checkpoint's COMMIT, as it is and with the digest that fits, and the name of a checkpoint's folder.
#include "tests/fuzz/support.h"
#include "trireme/base/hash.h"
#include "trireme/ckpt/manifest.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const auto parse = [](std::string_view commit) { return ckpt::parse_commit(commit, "COMMIT"); };
  fuzz::round_trip(text, parse, ckpt::print_commit);
  fuzz::round_trip(fmt::format("{}end {}\n", text, sha256_hex(text)), parse, ckpt::print_commit);
  if (const auto name = ckpt::parse_step_name(text)) {
    fuzz::demand(ckpt::to_string(*name) == text, "a step's name prints as another", text, ckpt::to_string(*name));
  }
  return 0;
}
