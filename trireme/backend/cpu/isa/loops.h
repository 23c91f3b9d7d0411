// The inner loops of the CPU kernels, one table of functions per instruction set. They work on
// plain pointers and one thread; results may lie exactly on operands of the same size. They compute
// in f32 and round once, to what they store. Sums are taken in a fixed order.
#pragma once

#include <cstdint>
#include <type_traits>

#include "trireme/backend/cpu/isa/products.h"

namespace trireme::cpu {

// y = f(x) with up to two numbers of the function.
enum class Unary {
  kNeg,
  kAbs,
  kExp,
  kSqrt,
  kRsqrt,
  kReciprocal,
  kSquare,
  kTanh,
  kSigmoid,
  kErf,
  kRelu,
  kSilu,
  kGeluErf,
  kGeluTanh,
  kScale,
  kAddScalar,
  kClamp,
  kLog,
  kSin,
  kCos,
  kSign,
  kPowScalar,
  kCount
};

// y = f(a, b); the gradients are f(x, dy).
enum class Binary {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMaximum,
  kMinimum,
  kPow,
  kReluGrad,
  kSiluGrad,
  kGeluErfGrad,
  kGeluTanhGrad,
  kCount
};

struct AdamNumbers {
  float decay = 1;  // param is multiplied by it first
  float l2 = 0;     // times param, added to the gradient
  float scale = 1;  // multiplies the gradient
  float beta1 = 0, one_minus_beta1 = 1;
  float beta2 = 0, one_minus_beta2 = 1;
  float step = 0;  // lr / (1 - beta1^t)
  float root = 1;  // 1 / sqrt(1 - beta2^t)
  float eps = 0;
};

struct SgdNumbers {
  float scale = 1;         // multiplies the gradient
  float weight_decay = 0;  // times param, added to the gradient
  float momentum = 0;
  float keep = 1;  // how much of the gradient goes into the velocity
  float lr = 0;
  float by_gradient = 0;  // the parts of the step along the gradient and along the velocity
  float by_velocity = 1;
  bool first = false;  // the old velocity is not read
};

struct LambNumbers {
  float scale = 1;  // multiplies the gradient
  float beta1 = 0, one_minus_beta1 = 1;
  float beta2 = 0, one_minus_beta2 = 1;
  float first = 1;  // 1 / (1 - beta1^t)
  float root = 1;   // 1 / sqrt(1 - beta2^t)
  float eps = 0;
  float weight_decay = 0;
};

struct SoftmaxAffine {
  float factor = 1;
  float add = 0;
  int64_t at = -1;  // none
  float more = 0;
};

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

// A number for each channel: (x - mean) scale + beta.
struct ChannelLine {
  const float* mean = nullptr;
  const float* scale = nullptr;
  const float* beta = nullptr;
};

// Loops over tensors whose elements are stored as T: float or Bf16. Statistics, losses and sums in
// progress are f32 in both.
template <class T>
struct TensorLoops {
  void (*unary[static_cast<int>(Unary::kCount)])(int64_t n, const T* x, T* y, float p, float q);
  // [function][0: both vectors, 1: a is one number, 2: b is one number]
  void (*binary[static_cast<int>(Binary::kCount)][3])(int64_t n, const T* a, const T* b, T* y);

  void (*to_f32)(int64_t n, const T* x, float* y);
  void (*from_f32)(int64_t n, const float* x, T* y);

  // Sums of x, of x^2 and of a b over n elements; at most 2^20 of them, so that an f32 sum of lanes
  // stays exact enough.
  float (*sum)(int64_t n, const T* x);
  float (*square_sum)(int64_t n, const T* x);
  float (*dot)(int64_t n, const T* a, const T* b);
  // Of n > 0 elements. What is not a number is lost, or, by the second, the result.
  float (*max)(int64_t n, const T* x);
  float (*extreme[2])(int64_t n, const T* x);  // [0: largest, 1: smallest]
  // The first place of the largest of n > 0 elements; 0 where x[0] is not a number.
  int64_t (*argmax)(int64_t n, const T* x);
  // y += x, y = the larger or the smaller of y and x.
  void (*accumulate)(int64_t n, const T* x, float* y);
  void (*accumulate_extreme[2])(int64_t n, const T* x, float* y);

  void (*softmax)(int64_t n, const T* x, T* y);
  void (*softmax_grad)(int64_t n, const T* y, const T* dy, T* dx);
  void (*log_softmax)(int64_t n, const T* x, T* y);
  void (*log_softmax_grad)(int64_t n, const T* y, const T* dy, T* dx);
  // Sum of e^(x - max).
  float (*sum_exp)(int64_t n, const T* x, float max);
  // y = factor softmax(x) + add, and y[at] += more: the gradient of a cross entropy.
  void (*softmax_affine)(int64_t n, const T* x, const SoftmaxAffine& k, T* y);

  void (*layer_norm)(Lines lines, const T* x, const float* gamma, const float* beta, float eps, T* y, float* mean,
                     float* rstd);
  // dgamma and dbeta are added to.
  void (*layer_norm_grad)(Lines lines, const T* x, const float* gamma, const float* mean, const float* rstd,
                          const T* dy, T* dx, float* dgamma, float* dbeta);

  void (*rms_norm)(Lines lines, const T* x, const float* gamma, float eps, T* y, float* rstd);
  void (*rms_norm_grad)(Lines lines, const T* x, const float* gamma, const float* rstd, const T* dy, T* dx,
                        float* dgamma);

  // Rows of channels. sums[2,c] += x and x^2.
  void (*channel_sums)(Lines lines, const T* x, double* sums);
  // y = (x - mean) scale + beta, + residual where it is not null, cut off at 0 with relu.
  void (*batch_norm)(Lines lines, const ChannelLine& line, bool relu, const T* x, const T* residual, T* y);
  // sums[2,c] += dz (x - mean) and dz, where dz is dy, or 0 where relu cut off: where (x - mean) scale + beta is not
  // above 0, or where y, if it is not null, is not; then dz is written too.
  void (*batch_norm_sums)(Lines lines, const ChannelLine& line, bool relu, const T* x, const T* dy, const T* y, T* dz,
                          double* sums);
  // dx = dz scale + (x - mean) by_x + constant
  void (*batch_norm_grad)(Lines lines, const ChannelLine& line, const float* by_x, const float* constant, bool relu,
                          const T* x, const T* dy, T* dx);

  // One image. The gradient of max_pool takes room for a number per element of dy, or null where no
  // windows overlap.
  void (*max_pool)(const Pool& k, const T* x, T* y);
  void (*max_pool_grad)(const Pool& k, const T* x, const T* dy, int32_t* taps, T* dx);
  void (*avg_pool)(const Pool& k, const T* x, T* y);
  void (*avg_pool_grad)(const Pool& k, const T* dy, T* dx);

  void (*adam)(int64_t n, const AdamNumbers& k, const T* p, const T* g, const T* m, const T* v, T* p_out, T* m_out,
               T* v_out);
  void (*sgd)(int64_t n, const SgdNumbers& k, const T* p, const T* g, const T* u, T* p_out, T* u_out);

  // u, m_out and v_out of lamb_direction.
  void (*lamb)(int64_t n, const LambNumbers& k, const T* p, const T* g, const T* m, const T* v, T* u, T* m_out,
               T* v_out);
  // y = a + s b
  void (*add_scaled)(int64_t n, const T* a, const T* b, float s, T* y);
  void (*huber)(int64_t n, const T* x, const T* target, float delta, T* y);

  // y = scale x where the element's word is not below `limit` <= 2^32, else 0.
  void (*dropout)(int64_t n, const uint32_t* words, uint64_t limit, float scale, const T* x, T* y);

  // Turns n pairs (x[i], x[n+i]), each by its angle.
  void (*rotate)(int64_t n, const float* cos, const float* sin, const T* x, T* y);
};

struct Loops {
  TensorLoops<float> f32;
  TensorLoops<Bf16> bf16;

  // Attention, on a tile of scores[rows, width] with rows `stride` apart; row i sees `visible + i`
  // columns of it at most (and all of them where that is more). Each row: s = scale * s; the new
  // maximum; s = e^(s - max), 0 where unseen; old sums and `correction` follow.
  void (*online_softmax)(Lines tile, int64_t stride, int64_t visible, float scale, float* scores, float* max,
                         float* sum, float* correction);
  // p = e^(scale s - lse), 0 where unseen.
  void (*recompute_softmax)(Lines tile, int64_t stride, int64_t visible, float scale, const float* lse, float* scores);
  // x[row, :] *= factor[row]
  void (*scale_rows)(Lines lines, int64_t stride, const float* factor, float* x);
  // ds = p (dp - delta[row]) scale, over dp
  void (*softmax_tile_grad)(Lines tile, int64_t stride, float scale, const float* delta, const float* p, float* dp);

  PairLoops pairs;

  // At most tile_rows rows and tile_columns columns.
  void (*leaf_tile)(const LeafTile& tile);
  int64_t tile_rows, tile_columns;
  // to[term][width]: some terms of n lines, filled up with zeros; `width` is tile_rows or tile_columns. In `from`, the
  // lines of a term lie side by side and terms `stride` apart, or the other way around.
  void (*pack_beside)(int64_t width, int64_t n, int64_t terms, const float* from, int64_t stride, float* to);
  void (*pack_apart)(int64_t width, int64_t n, int64_t terms, const float* from, int64_t stride, float* to);

  // sums[digit] += the digits of all x^2, on the grids of op/exact_sum.h.
  void (*exact_squares)(int64_t n, const float* x, const double* grids, double limit, int digits, double* sums);

  MultiplyAdds f32_peak, bf16_peak;  // the latter in f32 where no instruction multiplies bf16
};

// Of the instruction set in use (isa()).
const Loops& loops();
// For tests: from now on loops() are these, which do without the instructions of avx512_bf16, and set_isa takes the
// machine for one that has them; null ends it.
void emulate_loops(const Loops* loops);

template <class T>
const TensorLoops<T>& loops_on() {
  if constexpr (std::is_same_v<T, float>) {
    return loops().f32;
  } else {
    return loops().bf16;
  }
}

}  // namespace trireme::cpu
