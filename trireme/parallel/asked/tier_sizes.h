// How much of each tier of memory a rank may take, and where its disk is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/words.h"
#include "trireme/op/move.h"

namespace trireme {

// A number of bytes written with a unit: "2GB", "512MiB", "1.5TB"; KB to TB are powers of 1000, KiB to TiB of 1024. ""
// or 0: as many as there are.
class MemorySize {
 public:
  MemorySize() = default;
  // Throws kInvalidArgument for what is none.
  template <Text T>
  MemorySize(const T& written) : MemorySize(read(written)) {}  // NOLINT: written as text
  explicit MemorySize(int64_t bytes) : bytes_(bytes) {}

  int64_t bytes() const { return bytes_; }
  bool is_given() const { return bytes_ > 0; }
  friend bool operator==(const MemorySize&, const MemorySize&) = default;

 private:
  static MemorySize read(std::string_view text);
  int64_t bytes_ = 0;
};
std::string to_string(const MemorySize& size);  // exact: in the largest unit that divides it

// "DIR", or "DIR:40GB": where the file of the tier 'disk' lies, and how large it may be. "": where temporary files lie.
class DiskSpace {
 public:
  DiskSpace() = default;
  // Throws kInvalidArgument where what follows the last colon begins with a digit and is no size.
  template <Text T>
  DiskSpace(const T& written) : DiskSpace(read(written)) {}  // NOLINT: written as text

  const std::string& directory() const { return directory_; }
  const MemorySize& size() const { return size_; }
  friend bool operator==(const DiskSpace&, const DiskSpace&) = default;

 private:
  static DiskSpace read(std::string_view text);
  std::string directory_;
  MemorySize size_;
};
std::string to_string(const DiskSpace& space);

struct TierSizes {
  MemorySize device, host;
  DiskSpace disk;
  double device_ratio = 1, host_ratio = 1;  // the shares of the first two that may be taken

  // What may be taken.
  MemorySize of(Tier tier) const;
};

}  // namespace trireme
