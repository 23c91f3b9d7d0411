#include "trireme/launch/cluster/tls.h"

#include <openssl/bio.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <memory>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/log.h"

namespace trireme::launch {
namespace {

using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Text = std::unique_ptr<BIO, decltype(&BIO_free)>;

Certificate first_certificate(const std::string& pem, const std::string& path) {
  const Text text(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())), BIO_free);
  Certificate certificate(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr), X509_free);
  require(certificate != nullptr, "tls: '{}' has no certificate in PEM form", path);
  return certificate;
}

std::string date_of(const ASN1_TIME* time) {
  const Text text(BIO_new(BIO_s_mem()), BIO_free);
  ASN1_TIME_print(text.get(), time);
  char* bytes = nullptr;
  const long length = BIO_get_mem_data(text.get(), &bytes);
  return {bytes, static_cast<size_t>(length)};
}

void check_dates(const X509& certificate, const std::string& path, int warn_days) {
  const ASN1_TIME* start = X509_get0_notBefore(&certificate);
  const ASN1_TIME* end = X509_get0_notAfter(&certificate);
  require(X509_cmp_current_time(start) < 0, "tls: the certificate '{}' is not valid before {}", path, date_of(start));
  require(X509_cmp_current_time(end) > 0, "tls: the certificate '{}' ended on {}; make a new one", path, date_of(end));
  int days = 0;
  int seconds = 0;
  if (ASN1_TIME_diff(&days, &seconds, nullptr, end) == 1 && days < warn_days) {
    TRIREME_LOG(kWarn, "launch", "the certificate '{}' ends in {} day{}, on {}", path, days, days == 1 ? "" : "s",
                date_of(end));
  }
}

std::string read_key(const std::string& path) {
  std::string pem = read_file(path);
  struct stat info {};
  const bool found = stat(path.c_str(), &info) == 0;
  require(found && (info.st_mode & 077) == 0,
          "tls: the key '{}' has mode {:04o}, so others can read it; make it 0600", path, info.st_mode & 07777);
  require(pem.find("PRIVATE KEY-----") != std::string::npos && pem.find("ENCRYPTED") == std::string::npos,
          "tls: '{}' is not an unencrypted private key in PEM form", path);
  return pem;
}

}  // namespace

TlsTexts read_tls(const TlsFiles& files, int warn_days) {
  require(!files.certificate.empty() && !files.key.empty() && !files.authority.empty(),
          "tls: {} is missing; give --tls-cert, --tls-key and --tls-ca, all three or none",
          files.certificate.empty() ? "--tls-cert" : files.key.empty() ? "--tls-key" : "--tls-ca");
  TlsTexts texts{.certificate = read_file(files.certificate), .key = read_key(files.key),
                 .authority = read_file(files.authority)};
  check_dates(*first_certificate(texts.certificate, files.certificate), files.certificate, warn_days);
  check_dates(*first_certificate(texts.authority, files.authority), files.authority, warn_days);
  return texts;
}

}  // namespace trireme::launch
