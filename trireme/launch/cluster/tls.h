// Certificates of the scheduler's connections: each side shows one that the job's authority has signed.
#pragma once

#include <string>
#include <string_view>

namespace trireme::launch {

// Paths. None, or all of certificate, key and authority; a bundle is a certificate with its key.
struct TlsFiles {
  std::string certificate;  // of this side, with what stands between it and the authority: PEM, or a bundle (PKCS#12)
  std::string key;          // its private key, PEM; empty with a bundle
  std::string authority;    // PEM: what the other side's certificate must be signed by
  std::string revoked;      // PEM: lists of certificates that authorities have revoked; may be empty
  std::string password;  // a file whose first line opens the key; empty: TRIREME_TLS_PASSWORD does, where the key asks
  int warn_days = 30;
  bool on() const {
    return !certificate.empty() || !key.empty() || !authority.empty() || !revoked.empty() || !password.empty();
  }
};

struct TlsTexts {  // PEM
  std::string certificate;
  std::string key;  // open
  std::string authority;
  std::string revoked;
};

// Reads them. Refuses a part without the others, a key or a password that others may read, a key that does not open or
// belongs to another certificate, files that are not what they should be, a certificate that is not valid now or taken
// back, and a list that is out of date or not of the authority; warns in the log of a certificate that ends within
// `warn_days`.
TlsTexts read_tls(const TlsFiles& files);

// Why the other side's certificate (PEM) is not to be trusted though its authority has signed it; "" when it is: its
// issuer has a list among those of `tls`, if that has any, and does not name it there.
std::string why_revoked(const TlsTexts& tls, std::string_view certificate);

}  // namespace trireme::launch
