#include "trireme/launch/start/secret.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/base/flags.h"

namespace trireme::launch {
namespace {

void write_and_close(int fd, const comm::Secret& secret, const std::string& path) {
  const std::string hex = comm::to_hex(secret);
  const bool ok = fd >= 0 && write(fd, hex.data(), hex.size()) == static_cast<ssize_t>(hex.size());
  const int error = errno;
  if (fd >= 0) close(fd);
  if (!ok) {
    fail(ErrorKind::kIo, "job secret: cannot write the file '{}' ({})", path, std::strerror(error));
  }
}

}  // namespace

comm::Secret read_secret(const std::string& path, std::string_view from) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    fail(ErrorKind::kIo, "job secret: cannot open {}='{}' ({})", from, path, std::strerror(errno));
  }
  struct stat info {};
  fstat(fd, &info);
  char text[65];
  const ssize_t got = read(fd, text, sizeof text);
  close(fd);
  require((info.st_mode & 077) == 0, "job secret: '{}' has mode {:04o}, so others can read it; make it 0600", path,
          info.st_mode & 07777);
  std::string_view hex(text, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  if (hex.ends_with('\n')) hex.remove_suffix(1);
  return comm::secret_from_hex(hex);
}

void make_secret_file(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  require(fd >= 0 || errno != EEXIST, "job secret: '{}' exists already; remove it first, or name another file", path);
  write_and_close(fd, comm::random_secret(), path);
}

SecretFile::SecretFile(const comm::Secret& secret)
    : path_(fmt::format("{}/trireme-secret-XXXXXX", flag_text("TMPDIR").value_or("/tmp"))) {
  write_and_close(mkstemp(path_.data()), secret, path_);  // mode 0600
}

SecretFile::~SecretFile() {
  unlink(path_.c_str());
}

}  // namespace trireme::launch
