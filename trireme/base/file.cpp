#include "trireme/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "trireme/base/disk_wait.h"
#include "trireme/base/error.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::string reason(int code) {
  return std::generic_category().message(code);
}

[[noreturn]] void fail_io(std::string_view doing, const std::string& path, int code) {
  fail(ErrorKind::kIo, "cannot {} '{}': {}", doing, path, why_not_written(code));
}

[[noreturn]] void fail_read(std::string_view doing, const std::string& path, int code) {
  fail(ErrorKind::kIo, "cannot {} '{}': {}", doing, path, reason(code));
}

// Calls that may take long stand under a DiskWait: some file systems (FUSE) let their callers sleep as if for nothing.
int open_for_reading(const std::string& path, int64_t& bytes) {
  const DiskWait waits;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) fail_read("open", path, errno);
  struct stat info {};
  if (::fstat(file, &info) != 0) {
    const int code = errno;
    ::close(file);
    fail_read("inspect", path, code);
  }
  if (S_ISDIR(info.st_mode)) {
    ::close(file);
    fail_read("read", path, EISDIR);
  }
  bytes = info.st_size;
  return file;
}

}  // namespace

std::string why_not_written(int code) {
  std::string_view cure;
  if (code == ENOSPC || code == EDQUOT) cure = "; free space there or choose another directory";
  if (code == EROFS || code == EACCES || code == EPERM) cure = "; choose a directory that you may write to";
  return reason(code) + std::string(cure);
}

int Disk::create(const std::string& path) {
  const DiskWait waits;
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (file < 0) fail_io("create", path, errno);
  return file;
}

void Disk::write(int file, std::span<const std::byte> bytes, const std::string& path) {
  constexpr size_t kMostAtOnce = size_t{1} << 30;  // Linux writes no more than 2 GiB in one call
  const DiskWait waits;
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), std::min(bytes.size(), kMostAtOnce));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_io("write", path, errno);
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
}

void Disk::sync(int file, const std::string& path) {
  const DiskWait waits;
  if (::fsync(file) != 0) fail_io("write to the disk", path, errno);
}

void Disk::close(int file, const std::string& path) {
  const DiskWait waits;
  if (::close(file) != 0) fail_io("close", path, errno);
}

void Disk::rename(const std::string& from, const std::string& to) {
  const DiskWait waits;
  if (::rename(from.c_str(), to.c_str()) != 0) {
    fail_io(fmt::format("rename '{}' to", from), to, errno);
  }
}

void Disk::sync_directory(const std::string& path) {
  const DiskWait waits;
  const int file = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) fail_io("open the directory", path, errno);
  const int code = ::fsync(file) == 0 ? 0 : errno;
  ::close(file);
  // EINVAL: a file system that has no such notion.
  if (code != 0 && code != EINVAL) fail_io("write to the disk", path, code);
}

void Disk::make_directory(const std::string& path) {
  const DiskWait waits;
  std::error_code code;
  fs::create_directories(path, code);
  if (code) fail_io("make the directory", path, code.value());
  if (!is_directory(path)) fail_io("make the directory", path, ENOTDIR);
}

void Disk::symlink(const std::string& target, const std::string& path) {
  const DiskWait waits;
  if (::symlink(target.c_str(), path.c_str()) != 0) fail_io("make the link", path, errno);
}

void Disk::remove(const std::string& path) {
  const DiskWait waits;
  if (::remove(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) {
    fail_io("remove", path, errno);
  }
}

Disk& disk() {
  static Disk machine;
  return machine;
}

namespace {

// No other process has this name, nor another file that this one writes.
std::string partial_name(const std::string& path) {
  static std::atomic<int64_t> files{0};
  return fmt::format("{}.{}-{}.tmp", path, ::getpid(), files++);
}

}  // namespace

OutputFile::OutputFile(std::string path, Disk& disk)
    : disk_(disk), path_(std::move(path)), partial_(partial_name(path_)), file_(disk_.create(partial_)) {}

OutputFile::~OutputFile() {
  if (partial_.empty()) return;
  try {  // the error that brought us here matters more than one met while tidying up
    if (file_ >= 0) disk_.close(file_, partial_);
    disk_.remove(partial_);
  } catch (const std::exception&) {
    return;
  }
}

void OutputFile::write(std::span<const std::byte> bytes) {
  disk_.write(file_, bytes, path_);
  bytes_ += static_cast<int64_t>(bytes.size());
}

void OutputFile::commit() {
  disk_.sync(file_, path_);
  disk_.close(std::exchange(file_, -1), path_);
  disk_.rename(partial_, path_);
  partial_.clear();
  disk_.sync_directory(parent_path(path_));
}

void atomic_write(const std::string& path, std::string_view bytes, Disk& disk) {
  OutputFile file(path, disk);
  file.write(bytes);
  file.commit();
}

InputFile::InputFile(std::string path) : path_(std::move(path)), file_(open_for_reading(path_, bytes_)) {}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(other.bytes_), file_(std::exchange(other.file_, -1)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

InputFile::~InputFile() {
  const DiskWait waits;
  if (file_ >= 0) ::close(file_);
}

void InputFile::read(int64_t offset, std::span<std::byte> out) const {
  const DiskWait waits;
  const int64_t end = offset + static_cast<int64_t>(out.size());
  while (!out.empty()) {
    const ssize_t count = ::pread(file_, out.data(), out.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_read("read", path_, errno);
    if (count == 0) {
      fail(ErrorKind::kCorrupt, "'{}' ends after {} bytes; {} were expected", path_, offset, end);
    }
    out = out.subspan(static_cast<size_t>(count));
    offset += count;
  }
}

MappedFile::MappedFile(const std::string& path) {
  int64_t bytes = 0;
  const int file = open_for_reading(path, bytes);
  if (bytes > 0) {
    void* at = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ, MAP_PRIVATE, file, 0);
    if (at == MAP_FAILED) {
      const int code = errno;
      ::close(file);
      fail_read("map", path, code);
    }
    bytes_ = {static_cast<const std::byte*>(at), static_cast<size_t>(bytes)};
  }
  ::close(file);
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

std::string read_file(const std::string& path) {
  const InputFile file(path);
  std::string out(static_cast<size_t>(file.bytes()), '\0');
  file.read(0, std::as_writable_bytes(std::span(out)));
  return out;
}

bool is_file(const std::string& path) {
  std::error_code code;
  return fs::is_regular_file(path, code);
}

bool is_directory(const std::string& path) {
  std::error_code code;
  return fs::is_directory(path, code);
}

namespace {

// " (did you mean 'examples/digits.toml'?)": of the files in the same folder, the one with nearly this name.
std::string suggested_file(const fs::path& path) {
  std::vector<std::string> names;
  std::error_code code;
  fs::directory_iterator entry(path.has_parent_path() ? path.parent_path() : fs::path("."), code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    if (std::error_code unknown; entry->is_regular_file(unknown)) names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  const std::string near = closest(path.filename().string(), names);
  return near.empty() ? "" : fmt::format(" (did you mean '{}'?)", (path.parent_path() / near).string());
}

}  // namespace

void require_file(const std::string& path, std::string_view where, std::string_view cure) {
  std::error_code code;
  const fs::file_type type = fs::status(path, code).type();
  if (type == fs::file_type::regular) return;
  std::string why = fmt::format("there is no file '{}'", path);
  if (type == fs::file_type::not_found) {
    why += suggested_file(path);
  } else if (type == fs::file_type::directory) {
    why = fmt::format("'{}' is a directory", path);
  } else if (type == fs::file_type::none) {
    why = fmt::format("cannot look at '{}': {}", path, reason(code.value()));
  } else {  // ranks read it again, each for itself
    why = fmt::format("'{}' is a pipe or a device, which cannot be read several times", path);
  }
  fail(ErrorKind::kNotFound, "{}: {}; {}", where, why, cure);
}

void require_directory(const std::string& path, std::string_view where, std::string_view cure) {
  if (is_directory(path)) return;
  const std::string why =
      is_file(path) ? fmt::format("'{}' is a file", path) : fmt::format("there is no directory '{}'", path);
  fail(ErrorKind::kNotFound, "{}: {}; {}", where, why, cure);
}

void require_place_for(const std::string& path, std::string_view where) {
  if (is_directory(path)) fail(ErrorKind::kNotFound, "{}: '{}' is a directory; name a file in it", where, path);
  require_directory(parent_path(path), where, "make it, or name a file in one that there is");
}

double written_at(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) fail_read("inspect", path, errno);
  return static_cast<double>(info.st_mtim.tv_sec) + 1e-9 * static_cast<double>(info.st_mtim.tv_nsec);
}

int64_t file_bytes(const std::string& path) {
  std::error_code code;
  const auto bytes = fs::file_size(path, code);
  if (code) fail_read("inspect", path, code.value());
  return static_cast<int64_t>(bytes);
}

std::vector<std::string> list_directory(const std::string& path) {
  const DiskWait waits;
  std::error_code code;
  std::vector<std::string> out;
  fs::directory_iterator entry(path, code);
  for (; !code && entry != fs::directory_iterator(); entry.increment(code)) {
    out.push_back(entry->path().filename().string());
  }
  if (code) fail_read("list the directory", path, code.value());
  std::sort(out.begin(), out.end());
  return out;
}

int64_t free_bytes(const std::string& path) {
  struct statvfs info {};
  if (::statvfs(path.c_str(), &info) != 0) fail_read("inspect", path, errno);
  return static_cast<int64_t>(info.f_bavail * info.f_frsize);
}

std::string join_path(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  return fmt::format("{}{}{}", directory, directory.back() == '/' ? "" : "/", name);
}

std::string parent_path(std::string_view path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string base_name(std::string_view path) {
  return fs::path(path).filename().string();
}

void remove_tree(const std::string& path, Disk& disk) {
  std::error_code code;
  if (fs::is_directory(fs::symlink_status(path, code))) {
    for (const std::string& name : list_directory(path)) remove_tree(join_path(path, name), disk);
  }
  disk.remove(path);
}

TempDirectory::TempDirectory() {
  std::error_code code;
  path_ = join_path(fs::temp_directory_path(code).string(), "trireme-XXXXXX");
  if (code || ::mkdtemp(path_.data()) == nullptr) {
    fail_io("make a temporary directory", path_, code ? code.value() : errno);
  }
}

TempDirectory::~TempDirectory() {
  std::error_code code;
  fs::remove_all(path_, code);
}

}  // namespace trireme
