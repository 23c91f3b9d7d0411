// Files: reading whole, in ranges and mapped, and writing such that a crash at any moment leaves
// either the old content or the new. Failures are kIo errors that name the path and the system's
// reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

// What the system's error code says of a file that could not be written, and the cure where one is known.
std::string why_not_written(int code);

// The operations that change a disk. Code that must survive a crash between any two of them takes a
// Disk, so that a test can put a crash there; everyone else uses disk().
class Disk {
 public:
  Disk() = default;
  Disk(const Disk&) = delete;
  Disk& operator=(const Disk&) = delete;
  virtual ~Disk() = default;

  virtual int create(const std::string& path);  // empties an existing file; returns a descriptor
  virtual void write(int file, std::span<const std::byte> bytes, const std::string& path);
  virtual void sync(int file, const std::string& path);
  virtual void close(int file, const std::string& path);
  virtual void rename(const std::string& from, const std::string& to);
  virtual void sync_directory(const std::string& path);
  virtual void make_directory(const std::string& path);  // and its parents; may exist
  virtual void symlink(const std::string& target, const std::string& path);
  virtual void remove(const std::string& path);  // a file, a link or an empty directory; may be missing
};

Disk& disk();  // the machine's

// A file that appears under its name only when it is complete: the bytes go to a file beside it that nobody else
// writes, `path`.PID-N.tmp, and commit() syncs, renames and syncs the directory. Without commit the .tmp is removed.
class OutputFile {
 public:
  explicit OutputFile(std::string path, Disk& disk = trireme::disk());
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  void commit();
  int64_t bytes() const { return bytes_; }

 private:
  Disk& disk_;
  std::string path_;
  std::string partial_;
  int file_ = -1;
  int64_t bytes_ = 0;
};

void atomic_write(const std::string& path, std::string_view bytes, Disk& disk = trireme::disk());

// A file open for reading at any offset, from any thread.
class InputFile {
 public:
  explicit InputFile(std::string path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  const std::string& path() const { return path_; }
  int64_t bytes() const { return bytes_; }  // when it was opened
  // Fills `out`; throws kCorrupt when the file ends before.
  void read(int64_t offset, std::span<std::byte> out) const;

 private:
  std::string path_;
  int64_t bytes_ = 0;  // before file_, whose initialiser sets it
  int file_ = -1;
};

// A file's bytes as memory. The file must not shrink while it is mapped.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

std::string read_file(const std::string& path);

bool is_file(const std::string& path);       // a regular file, links followed
bool is_directory(const std::string& path);  // links followed
// Throw kNotFound where the path is no file to be read, or no directory: "<where>: there is no file 'x'; <cure>", or
// what it is instead.
void require_file(const std::string& path, std::string_view where, std::string_view cure);
void require_directory(const std::string& path, std::string_view where, std::string_view cure);
// Throws kNotFound where no file could be written there: a directory, or in one that there is not.
void require_place_for(const std::string& path, std::string_view where);
int64_t file_bytes(const std::string& path);
double written_at(const std::string& path);                        // when a file last changed, in seconds since 1970
std::vector<std::string> list_directory(const std::string& path);  // names, sorted; without . and ..
int64_t free_bytes(const std::string& path);                       // what an ordinary user may still write there
std::string join_path(std::string_view directory, std::string_view name);
std::string parent_path(std::string_view path);  // "." for a bare name
std::string base_name(std::string_view path);

// Removes a directory and all below it; links are removed, not followed. It may be missing.
void remove_tree(const std::string& path, Disk& disk = trireme::disk());

// A fresh directory under the system's temporary one, removed with all its content at the end.
class TempDirectory {
 public:
  TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;
  ~TempDirectory();

  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return join_path(path_, name); }

 private:
  std::string path_;
};

}  // namespace trireme
