// What a worker writes to its launcher's pipe when it fails.
#include "trireme/launch/rank/failure.h"
#include "tests/fuzz/support.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto failure = launch::decode(fuzz::text_of(data, size));
  if (!failure) return 0;
  const std::string printed = launch::encode(*failure);
  const auto again = launch::decode(printed);
  fuzz::demand(again && again->kind == failure->kind && again->text == failure->text, "a failure reads back as another",
               printed);
  return 0;
}
