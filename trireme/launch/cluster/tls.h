// Certificates of the scheduler's connections: each side shows one that the job's authority has signed.
#pragma once

#include <string>

namespace trireme::launch {

// Paths of PEM files; all three or none.
struct TlsFiles {
  std::string certificate;  // of this side, with what stands between it and the authority
  std::string key;          // its private key, not encrypted, mode 0600
  std::string authority;    // what the other side's certificate must be signed by
  bool on() const { return !certificate.empty() || !key.empty() || !authority.empty(); }
};

struct TlsTexts {
  std::string certificate;
  std::string key;
  std::string authority;
};

// Reads them. Refuses a part without the others, a key that others may read, files that are not what they should be, and
// a certificate that is not valid now; warns in the log of one that ends within `warn_days`.
TlsTexts read_tls(const TlsFiles& files, int warn_days);

}  // namespace trireme::launch
