// The file that is a rank's tier 'disk': allocated whole when it is made, and without a name, so that the system frees
// it with the process, however that ends. Reads and writes go past the system's cache where the file system takes that.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

class SwapFile {
 public:
  // In `directory`, which is made where it is missing; "": the system's for temporary files. Throws kIo when that has
  // no room for so many bytes, or takes no files.
  SwapFile(std::string directory, int64_t bytes);
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;
  ~SwapFile();

  int file() const { return file_; }
  int64_t bytes() const { return bytes_; }
  const std::string& directory() const { return directory_; }
  bool is_direct() const { return is_direct_; }

 private:
  void allocate();
  void go_past_the_cache();

  std::string directory_;
  int64_t bytes_ = 0;
  int file_ = -1;
  bool is_direct_ = false;
};

}  // namespace trireme
