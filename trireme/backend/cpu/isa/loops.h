// The inner loops of the CPU kernels, one table of functions per instruction set. They work on
// plain pointers and one thread; results may lie exactly on operands of the same size. Sums are
// taken in a fixed order.
#pragma once

#include <cstdint>

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

struct Lines {
  int64_t rows = 0;
  int64_t size = 0;
};

struct Loops {
  void (*unary[static_cast<int>(Unary::kCount)])(int64_t n, const float* x, float* y, float p,
                                                 float q);
  // [function][0: both vectors, 1: a is one number, 2: b is one number]
  void (*binary[static_cast<int>(Binary::kCount)][3])(int64_t n, const float* a, const float* b,
                                                      float* y);

  void (*to_bf16)(int64_t n, const float* x, uint16_t* y);
  void (*from_bf16)(int64_t n, const uint16_t* x, float* y);

  // Sums of x and of x^2 over n elements; at most 2^20 of them, so that an f32 sum of lanes stays
  // exact enough.
  float (*sum)(int64_t n, const float* x);
  float (*square_sum)(int64_t n, const float* x);
  float (*max)(int64_t n, const float* x);
  // y += x
  void (*accumulate)(int64_t n, const float* x, float* y);

  void (*softmax)(int64_t n, const float* x, float* y);
  void (*softmax_grad)(int64_t n, const float* y, const float* dy, float* dx);
  // Sum of e^(x - max).
  float (*sum_exp)(int64_t n, const float* x, float max);
  // y = factor softmax(x) + add: the gradient of a cross entropy but for its label.
  void (*softmax_affine)(int64_t n, const float* x, float factor, float add, float* y);

  void (*layer_norm)(Lines lines, const float* x, const float* gamma, const float* beta, float eps,
                     float* y, float* mean, float* rstd);
  // dgamma and dbeta are added to.
  void (*layer_norm_grad)(Lines lines, const float* x, const float* gamma, const float* mean,
                          const float* rstd, const float* dy, float* dx, float* dgamma,
                          float* dbeta);

  void (*adam)(int64_t n, const AdamNumbers& k, const float* p, const float* g, const float* m,
               const float* v, float* p_out, float* m_out, float* v_out);
  void (*sgd)(int64_t n, const SgdNumbers& k, const float* p, const float* g, const float* u,
              float* p_out, float* u_out);

  // Attention, on a tile of scores[rows, width] with rows `stride` apart; row i sees `visible + i`
  // columns of it at most (and all of them where that is more). Each row: s = scale * s; the new
  // maximum; s = e^(s - max), 0 where unseen; old sums and `correction` follow.
  void (*online_softmax)(Lines tile, int64_t stride, int64_t visible, float scale, float* scores,
                         float* max, float* sum, float* correction);
  // p = e^(scale s - lse), 0 where unseen.
  void (*recompute_softmax)(Lines tile, int64_t stride, int64_t visible, float scale,
                            const float* lse, float* scores);
  // x[row, :] *= factor[row]
  void (*scale_rows)(Lines lines, int64_t stride, const float* factor, float* x);
  // ds = p (dp - delta[row]) scale, over dp
  void (*softmax_tile_grad)(Lines tile, int64_t stride, float scale, const float* delta,
                            const float* p, float* dp);
  float (*dot)(int64_t n, const float* a, const float* b);

  // y = scale x where the element's word is not below `limit` <= 2^32, else 0.
  void (*dropout)(int64_t n, const uint32_t* words, uint64_t limit, float scale, const float* x,
                  float* y);

  // For measuring: `turns` turns of that many independent f32 multiply-adds, and y = a + s b.
  float (*multiply_adds)(int64_t turns);
  int64_t multiply_adds_per_turn;
  void (*triad)(int64_t n, const float* a, const float* b, float s, float* y);
};

// Of the instruction set in use (isa()).
const Loops& loops();

}  // namespace trireme::cpu
