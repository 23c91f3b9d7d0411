#include "trireme/launch/cluster/tls.h"

#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/pkcs12.h>
#include <openssl/x509.h>
#include <sys/stat.h>

#include <cstring>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/file.h"
#include "trireme/base/flags.h"
#include "trireme/base/log.h"

namespace trireme::launch {
namespace {

using Bytes = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;
using List = std::unique_ptr<X509_CRL, decltype(&X509_CRL_free)>;

Bytes reader_of(std::string_view text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

// What `print` writes.
template <class Print>
std::string written(Print&& print) {
  const Bytes out(BIO_new(BIO_s_mem()), BIO_free);
  print(out.get());
  char* bytes = nullptr;
  const long length = BIO_get_mem_data(out.get(), &bytes);
  return {bytes, static_cast<size_t>(length)};
}

std::string date_of(const ASN1_TIME* time) {
  return written([&](BIO* out) { ASN1_TIME_print(out, time); });
}

std::string name_of(const X509_NAME* name) {
  return written([&](BIO* out) { X509_NAME_print_ex(out, name, 0, XN_FLAG_ONELINE & ~ASN1_STRFLGS_ESC_MSB); });
}

std::vector<Certificate> certificates_in(std::string_view pem) {
  std::vector<Certificate> out;
  const Bytes text = reader_of(pem);
  while (X509* next = PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr)) out.emplace_back(next, X509_free);
  return out;
}

std::vector<List> lists_in(std::string_view pem) {
  std::vector<List> out;
  const Bytes text = reader_of(pem);
  while (X509_CRL* next = PEM_read_bio_X509_CRL(text.get(), nullptr, nullptr, nullptr))
    out.emplace_back(next, X509_CRL_free);
  return out;
}

void check_dates(const X509& certificate, const std::string& path, int warn_days) {
  const ASN1_TIME* start = X509_get0_notBefore(&certificate);
  const ASN1_TIME* end = X509_get0_notAfter(&certificate);
  require(X509_cmp_current_time(start) < 0, "tls: the certificate '{}' is not valid before {}", path, date_of(start));
  require(X509_cmp_current_time(end) > 0, "tls: the certificate '{}' expired on {}; make a new one", path,
          date_of(end));
  int days = 0;
  int seconds = 0;
  if (ASN1_TIME_diff(&days, &seconds, nullptr, end) == 1 && days < warn_days) {
    TRIREME_LOG(kWarn, "launch", "the certificate '{}' expires in {} day{}, on {}", path, days, days == 1 ? "" : "s",
                date_of(end));
  }
}

void require_private(const std::string& path, std::string_view what) {
  struct stat info {};
  const bool found = stat(path.c_str(), &info) == 0;
  require(found && (info.st_mode & 077) == 0, "tls: the {} '{}' has mode {:04o}, so others can read it; make it 0600",
          what, path, info.st_mode & 07777);
}

struct Password {
  std::optional<std::string> text;
  std::string from;
};

Password password_of(const TlsFiles& files) {
  if (!files.password.empty()) {
    const std::string text = read_file(files.password);
    require_private(files.password, "password file");
    return {text.substr(0, text.find_first_of("\r\n")), fmt::format("the password in '{}'", files.password)};
  }
  return {flag_text("TRIREME_TLS_PASSWORD"), "the password in TRIREME_TLS_PASSWORD"};
}

[[noreturn]] void fail_to_open(std::string_view what, const std::string& path, const Password& password) {
  if (!password.text) {
    fail(ErrorKind::kInvalidArgument,
         "tls: the {} '{}' needs a password; give --tls-password-file, or set TRIREME_TLS_PASSWORD", what, path);
  }
  require(ERR_GET_REASON(ERR_peek_last_error()) != ERR_R_UNSUPPORTED,
          "tls: the {} '{}' is encrypted in a way that OpenSSL no longer opens by default; encrypt it again with a "
          "newer version",
          what, path);
  fail(ErrorKind::kInvalidArgument, "tls: {} does not open the {} '{}'", password.from, what, path);
}

std::string pem_of(EVP_PKEY* key) {
  return written([&](BIO* out) { PEM_write_bio_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr); });
}

Key open_key(const std::string& path, const Password& password) {
  const std::string pem = read_file(path);
  require_private(path, "key");
  struct Asked {
    const Password* password;
    bool at_all = false;
  } asked{&password};
  const auto answer = [](char* room, int size, int, void* user) {
    auto& question = *static_cast<Asked*>(user);
    question.at_all = true;
    const std::optional<std::string>& text = question.password->text;
    if (!text || static_cast<int>(text->size()) > size) return -1;
    std::memcpy(room, text->data(), text->size());
    return static_cast<int>(text->size());
  };
  const Bytes text = reader_of(pem);
  Key key(PEM_read_bio_PrivateKey(text.get(), nullptr, answer, &asked), EVP_PKEY_free);
  if (key == nullptr && asked.at_all) fail_to_open("key", path, password);
  require(key != nullptr, "tls: '{}' is not a private key in PEM form", path);
  return key;
}

// The key of a certificate that is a bundle; the certificate is put into PEM.
Key open_bundle(const std::string& path, const Password& password, TlsTexts& texts) {
  const Bytes text = reader_of(texts.certificate);
  const std::unique_ptr<PKCS12, decltype(&PKCS12_free)> bundle(d2i_PKCS12_bio(text.get(), nullptr), PKCS12_free);
  require(bundle != nullptr, "tls: '{}' has no certificate in PEM form, nor is it a PKCS#12 bundle", path);
  require_private(path, "bundle");
  EVP_PKEY* key = nullptr;
  X509* certificate = nullptr;
  STACK_OF(X509)* others = nullptr;
  if (PKCS12_parse(bundle.get(), password.text ? password.text->c_str() : nullptr, &key, &certificate, &others) != 1) {
    fail_to_open("bundle", path, password);
  }
  Key own_key(key, EVP_PKEY_free);
  const Certificate own(certificate, X509_free);
  const auto free_all = [](STACK_OF(X509) * all) { sk_X509_pop_free(all, X509_free); };
  const std::unique_ptr<STACK_OF(X509), decltype(free_all)> chain(others, free_all);
  require(own != nullptr && own_key != nullptr, "tls: the bundle '{}' has no certificate with its key", path);
  texts.certificate = written([&](BIO* out) {
    PEM_write_bio_X509(out, own.get());
    for (int i = 0; i < sk_X509_num(chain.get()); ++i) PEM_write_bio_X509(out, sk_X509_value(chain.get(), i));
  });
  return own_key;
}

void check_lists(const std::vector<List>& lists, const std::vector<Certificate>& authorities, const std::string& path) {
  require(!lists.empty(), "tls: '{}' has no list of revoked certificates in PEM form", path);
  for (const List& list : lists) {
    const X509_NAME* issuer = X509_CRL_get_issuer(list.get());
    bool signed_by_one = false;
    for (const Certificate& authority : authorities) {
      if (X509_NAME_cmp(issuer, X509_get_subject_name(authority.get())) != 0) continue;
      signed_by_one = signed_by_one || X509_CRL_verify(list.get(), X509_get0_pubkey(authority.get())) == 1;
    }
    require(signed_by_one,
            "tls: the list of revoked certificates '{}' is of '{}', which is not an authority of --tls-ca", path,
            name_of(issuer));
    const ASN1_TIME* next = X509_CRL_get0_nextUpdate(list.get());
    require(next == nullptr || X509_cmp_current_time(next) > 0,
            "tls: the list of revoked certificates '{}' is out of date since {}; fetch the next one", path,
            next ? date_of(next) : "");
  }
}

// "" if it is not.
std::string why_revoked(X509* certificate, const std::vector<List>& lists) {
  const std::string who = fmt::format("the certificate of '{}'", name_of(X509_get_subject_name(certificate)));
  bool listed = false;
  for (const List& list : lists) {
    if (X509_NAME_cmp(X509_CRL_get_issuer(list.get()), X509_get_issuer_name(certificate)) != 0) continue;
    listed = true;
    X509_REVOKED* entry = nullptr;
    if (X509_CRL_get0_by_cert(list.get(), &entry, certificate) == 1) {
      return fmt::format("{} was revoked on {}", who, date_of(X509_REVOKED_get0_revocationDate(entry)));
    }
  }
  return listed ? ""
                : fmt::format("{} is signed by '{}', for which there is no list of revoked certificates", who,
                              name_of(X509_get_issuer_name(certificate)));
}

}  // namespace

std::string why_revoked(const TlsTexts& tls, std::string_view certificate) {
  if (tls.revoked.empty()) return "";
  const std::vector<Certificate> own = certificates_in(certificate);
  return own.empty() ? "it shows no certificate" : why_revoked(own.front().get(), lists_in(tls.revoked));
}

TlsTexts read_tls(const TlsFiles& files) {
  require(!files.certificate.empty() && !files.authority.empty(),
          "tls: {} is missing; give --tls-cert, --tls-key and --tls-ca, all three or none",
          files.certificate.empty() ? "--tls-cert" : "--tls-ca");
  TlsTexts texts{.certificate = read_file(files.certificate), .authority = read_file(files.authority)};
  const Password password = password_of(files);
  const bool is_bundle = texts.certificate.find("-----BEGIN") == std::string::npos && files.key.empty();
  require(is_bundle || !files.key.empty(),
          "tls: --tls-key is missing; give --tls-cert, --tls-key and --tls-ca, all three or none");
  Key key(nullptr, EVP_PKEY_free);
  if (is_bundle) key = open_bundle(files.certificate, password, texts);
  const std::vector<Certificate> own = certificates_in(texts.certificate);
  require(!own.empty(), "tls: '{}' has no certificate in PEM form", files.certificate);
  check_dates(*own.front(), files.certificate, files.warn_days);
  const std::vector<Certificate> authorities = certificates_in(texts.authority);
  require(!authorities.empty(), "tls: '{}' has no certificate in PEM form", files.authority);
  check_dates(*authorities.front(), files.authority, files.warn_days);
  if (!is_bundle) key = open_key(files.key, password);
  require(X509_check_private_key(own.front().get(), key.get()) == 1,
          "tls: the key '{}' is not that of the certificate '{}'", files.key, files.certificate);
  if (!files.revoked.empty()) {
    texts.revoked = read_file(files.revoked);
    const std::vector<List> lists = lists_in(texts.revoked);
    check_lists(lists, authorities, files.revoked);
    if (const std::string why = why_revoked(own.front().get(), lists); !why.empty())
      fail(ErrorKind::kInvalidArgument, "tls: {}", why);
  }
  texts.key = pem_of(key.get());
  return texts;
}

}  // namespace trireme::launch
