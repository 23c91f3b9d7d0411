// A convolution as matrix products: what the window at each position sees is one row of [a,b,i], the place of a tap and
// the channel. Kernels that compute it this way use this, and so do those that choose another way.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/op/op_attrs.h"
#include "trireme/op/op_def.h"

namespace trireme::cpu {

enum class Pass { kForward, kInput, kWeight };

// x is [n,h,w,c], y what comes out of it, w is [o,a,b,i]; channels c and outputs o lie in `groups` of their own.
struct Windows {
  Shape x, y, w;
  int64_t stride_h, stride_w, dilation_h, dilation_w, top, left;

  int64_t groups() const { return x[3] / w[3]; }
  int64_t outputs() const { return w[0] / groups(); }  // of a group
  int64_t positions() const { return y[0] * y[1] * y[2]; }
  int64_t row() const { return w[1] * w[2] * w[3]; }
  // Rows are x as it lies, but for groups.
  bool is_direct() const {
    return w[1] * w[2] == 1 && stride_h == 1 && stride_w == 1 && top == 0 && left == 0 && x[1] == y[1] && x[2] == y[2];
  }
};

// Of the two operands and the result of a pass.
Windows windows_of(Pass pass, const Shape& a, const Shape& b, const Shape& result, const Conv2dAttrs& attrs);

// "" where oneDNN computes a pass of these sizes: a piece of a tensor can have more rows than its windows read, and its
// result fewer positions than oneDNN would make of them; else the reason.
std::string why_no_onednn_sizes(Pass pass, const TypeArgs& args);

// How oneDNN computes a pass of such sizes whose tensors have elements, by its name for it: "jit:..." by loops made for
// convolutions, others by slower ones. It is made for this, and found again by oneDNN when the kernel makes it.
std::string onednn_way_of(Pass pass, const TypeArgs& args);

// cols[count, row()]: the windows at `count` positions, counted over all images, zeros where they reach over an edge;
// as they are stored, or in f32.
template <class T, class Col>
void gather_windows(const Windows& c, int64_t group, int64_t first, int64_t count, const T* x, Col* cols);
// The other way: adds cols to what the windows saw, in one image, whose positions are counted.
void add_windows(const Windows& c, int64_t group, int64_t first, int64_t count, const float* cols, float* image);

}  // namespace trireme::cpu
