// Pooling of one image [h,w,c], vectors along the channels.
#pragma once

#include "trireme/backend/cpu/isa/products.h"

namespace trireme::cpu {

// Windows that slide along one dimension of an image: tap t of window w lies on position w stride -
// before + t.
struct PoolAxis {
  int64_t size = 0;
  int64_t windows = 0;
  int64_t kernel = 1, stride = 1, before = 0;
};

struct Pool {
  PoolAxis rows, columns;
  int64_t channels = 0;
  bool count_padding = true;  // in means
};

template <class T>
struct PoolLoops {
  // One image. The gradient of max_pool takes room for a number per element of dy, or null where no
  // windows overlap.
  void (*max_pool)(const Pool& k, const T* x, T* y);
  void (*max_pool_grad)(const Pool& k, const T* x, const T* dy, int32_t* taps, T* dx);
  void (*avg_pool)(const Pool& k, const T* x, T* y);
  void (*avg_pool_grad)(const Pool& k, const T* dy, T* dx);
};

}  // namespace trireme::cpu
