// The job's secret in a file.
#include "trireme/launch/start/secret.h"
#include "tests/fuzz/support.h"
#include "trireme/base/memory_file_for_tests.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static MemoryFile file;
  file.write(fuzz::text_of(data, size));
  fuzz::accepts([&] {
    const comm::Secret secret = launch::read_secret(file.path(), "--secret-file");
    fuzz::demand(fuzz::text_of(data, size).starts_with(comm::to_hex(secret)), "a secret reads as another");
  });
  return 0;
}
