#include "trireme/ckpt/range_read_impl.h"

#include <algorithm>
#include <array>
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
      fail(ErrorKind::kCorrupt,
           "{}: block {} has checksum {:08x} instead of {:08x}; the file is damaged", stored_.what,
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
  if (region.elements() == 0) return 0;
  const int rank = region.size.rank();
  const int64_t element = size_of(to.type.dtype);
  const auto from_strides = stored.box.size.strides();
  const auto to_strides = to_box.size.strides();
  int64_t from_at = 0;
  int64_t to_at = 0;
  for (int dim = 0; dim < rank; ++dim) {
    const auto d = static_cast<size_t>(dim);
    from_at += (region.start[dim] - stored.box.start[dim]) * from_strides[d];
    to_at += (region.start[dim] - to_box.start[dim]) * to_strides[d];
  }
  // The innermost dimensions that are contiguous on both sides are one run; runs come in order of
  // the file.
  int64_t run = 1;
  int outer = rank;
  while (outer > 0) {
    run *= region.size[outer - 1];
    --outer;
    if (region.size[outer] != stored.box.size[outer] || region.size[outer] != to_box.size[outer])
      break;
  }
  Blocks blocks(stored, stored.box.elements() * element);
  std::array<int64_t, Shape::kMaxRank> index{};
  while (true) {
    blocks.copy(from_at * element, run * element, to.data + to_at * element);
    int dim = outer - 1;
    for (; dim >= 0; --dim) {
      const auto d = static_cast<size_t>(dim);
      from_at += from_strides[d];
      to_at += to_strides[d];
      if (++index[d] < region.size[dim]) break;
      from_at -= from_strides[d] * region.size[dim];
      to_at -= to_strides[d] * region.size[dim];
      index[d] = 0;
    }
    if (dim < 0) return blocks.read_bytes();
  }
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
