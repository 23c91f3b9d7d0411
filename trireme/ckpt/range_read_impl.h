// Reading a region of a tensor that lies dense in a file, block by block, each block checked before
// its bytes count.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "trireme/base/file.h"
#include "trireme/layout/box.h"

namespace trireme::ckpt {

struct Stored {
  const InputFile& file;
  int64_t offset = 0;  // of the tensor's first byte
  Box box;             // what of the whole it is
  int64_t block_bytes = 0;
  std::span<const uint32_t> crc32c;  // of each block, the last one shorter; none = nothing to check
  std::string what;                  // for errors: "tensor 'w' in chunk 'w@[0:4]' of 'data-0.safetensors'"
};

// Copies `region` (inside both boxes) to `to`, which holds `to_box`. Needs memory for one block,
// and none where the region has whole blocks in one run. Returns the bytes read.
int64_t read_region(const Stored& stored, const Box& region, const View& to, const Box& to_box);

// Throws kCorrupt unless every block has its checksum.
int64_t verify_blocks(const Stored& stored, int64_t bytes);

}  // namespace trireme::ckpt
