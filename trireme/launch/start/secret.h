// The job's secret in files that only their owner can read.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "trireme/comm/stores/hmac.h"

namespace trireme::launch {

// 64 hexadecimal digits, and a newline or not. Refuses a file that others may read. `from` is what named the file, for
// the error: a variable or an option.
comm::Secret read_secret(const std::string& path, std::string_view from);
// A fresh secret in a new file of mode 0600; refuses to replace one.
void make_secret_file(const std::string& path);

// A temporary file of mode 0600 with the secret, gone with the object.
class SecretFile {
 public:
  explicit SecretFile(const comm::Secret& secret);
  ~SecretFile();
  SecretFile(const SecretFile&) = delete;
  SecretFile& operator=(const SecretFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace trireme::launch
