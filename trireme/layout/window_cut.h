// WindowCut: a dimension cut into windows that may overlap, where a plain cut makes equal blocks. From it follows what
// a rank must read of other ranks' blocks ("halo") and what it must give back. Convolution and pooling work on windows,
// and so may a model that is cut by hand.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/tensor/host_tensor.h"

namespace trireme {

// Part k of `parts` holds positions [offset + k * step, + length) of a dimension with `extent`
// positions; those outside it are no one's.
struct WindowCut {
  int64_t parts = 1;
  int64_t extent = 0;
  int64_t offset = 0;
  int64_t step = 0;
  int64_t length = 0;

  int64_t block() const { return extent / parts; }
  int64_t start(int64_t k) const { return offset + k * step; }
  // Whether every window is the block itself.
  bool is_plain() const { return offset == 0 && step == block() && length == block(); }
  friend bool operator==(const WindowCut&, const WindowCut&) = default;
};

struct Range {
  int64_t start = 0;
  int64_t size = 0;  // 0: nothing
};
// The positions of block j that window k has.
Range common(const WindowCut& cut, int64_t k, int64_t j);

// "" or why the cut cannot be: blocks that are not equal, windows without positions, or one that
// sees further than the blocks beside its own.
std::string why_not(const WindowCut& cut);

// Every element; other values than 0 for f32, f64 and bf16 only.
void fill(const View& out, double value);

// The plain meaning on a whole tensor, for tests of what carries it out on ranks: all windows side
// by side along `dim`, and back, windows that overlap being added.
HostTensor take_windows(const HostTensor& whole, int dim, const WindowCut& cut, double value);
HostTensor add_windows(const HostTensor& windows, int dim, const WindowCut& cut);

}  // namespace trireme
