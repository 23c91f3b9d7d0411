// The files of TLS: certificate, key, authority and the list of what it has revoked, with a line of '#next' between
// them. The list may be missing. Not a bundle: OpenSSL alone reads it, and computes for as long as it says to.
#include "trireme/launch/cluster/tls.h"
#include "tests/fuzz/support.h"
#include "trireme/base/memory_file_for_tests.h"

using namespace trireme;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static MemoryFile files[4];
  const auto [certificate, rest] = fuzz::split(fuzz::text_of(data, size), "#next\n");
  const auto [key, more] = fuzz::split(rest, "#next\n");
  const auto [authority, revoked] = fuzz::split(more, "#next\n");
  files[0].write(certificate);
  files[1].write(key);
  files[2].write(authority);
  files[3].write(revoked);
  fuzz::accepts([&] {
    launch::read_tls({.certificate = files[0].path(),
                      .key = files[1].path(),
                      .authority = files[2].path(),
                      .revoked = revoked.empty() ? std::string() : files[3].path()});
  });
  return 0;
}
