// The files of TLS: certificate, key and authority, with a line of '#next' between them.
#include "tests/fuzz/support.h"
#include "trireme/base/memory_file_impl.h"
#include "trireme/launch/cluster/tls.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static MemoryFile files[3];
  const auto [certificate, rest] = fuzz::split(fuzz::text_of(data, size), "#next\n");
  const auto [key, authority] = fuzz::split(rest, "#next\n");
  files[0].write(certificate);
  files[1].write(key);
  files[2].write(authority);
  fuzz::accepts([&] {
    launch::read_tls({.certificate = files[0].path(), .key = files[1].path(), .authority = files[2].path()});
  });
  return 0;
}
