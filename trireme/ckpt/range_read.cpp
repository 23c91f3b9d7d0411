#include "trireme/ckpt/range_read_impl.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/base/hash.h"

namespace trireme::ckpt {
namespace {

// Reads blocks of a stored tensor; keeps the one last read.
class Blocks {
 public:
  Blocks(const Stored& stored, int64_t bytes) : stored_(stored), bytes_(bytes) {}

  int64_t read_bytes() const { return read_bytes_; }

  // Copies bytes [from, from + size) of the tensor.
  void copy(int64_t from, int64_t size, std::byte* to) {
    while (size > 0) {
      const int64_t block = from / stored_.block_bytes;
      const int64_t skip = from % stored_.block_bytes;
      const int64_t length = std::min(stored_.block_bytes, bytes_ - block * stored_.block_bytes);
      const int64_t count = std::min(size, length - skip);
      if (count == length && block != kept_) {
        load(block, {to, static_cast<size_t>(length)});
      } else {
        if (block != kept_) {
          kept_ = -1;
          buffer_.resize(static_cast<size_t>(length));
          load(block, buffer_);
          kept_ = block;
        }
        std::memcpy(to, buffer_.data() + skip, static_cast<size_t>(count));
      }
      from += count;
      to += count;
      size -= count;
    }
  }

 private:
  void load(int64_t block, std::span<std::byte> to) {
    stored_.file.read(stored_.offset + block * stored_.block_bytes, to);
    read_bytes_ += static_cast<int64_t>(to.size());
    if (stored_.crc32c.empty()) return;
    const uint32_t expected = stored_.crc32c[static_cast<size_t>(block)];
    const uint32_t found = crc32c(to);
    if (found != expected) {
      fail(ErrorKind::kCorrupt, "{}: block {} has checksum {:08x} instead of {:08x}; the file is damaged", stored_.what,
           block, found, expected);
    }
  }

  const Stored& stored_;
  int64_t bytes_;
  int64_t kept_ = -1;
  int64_t read_bytes_ = 0;
  std::vector<std::byte> buffer_;
};

}  // namespace

int64_t read_region(const Stored& stored, const Box& region, const View& to, const Box& to_box) {
  const int64_t element = size_of(to.type.dtype);
  Blocks blocks(stored, stored.box.elements() * element);
  each_run(stored.box, to_box, region, [&](int64_t from, int64_t at, int64_t run) {  // in the order of the file
    blocks.copy(from * element, run * element, to.data + at * element);
  });
  return blocks.read_bytes();
}

int64_t verify_blocks(const Stored& stored, int64_t bytes) {
  Blocks blocks(stored, bytes);
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(bytes, stored.block_bytes)));
  for (int64_t at = 0; at < bytes; at += stored.block_bytes) {
    blocks.copy(at, std::min(stored.block_bytes, bytes - at), buffer.data());
  }
  return blocks.read_bytes();
}

}  // namespace trireme::ckpt
