// Loops of optimizers: a parameter and its state, from its gradient.
#pragma once

#include "trireme/backend/cpu/isa/products.h"

namespace trireme::cpu {

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

template <class T>
struct UpdateLoops {
  void (*adam)(int64_t n, const AdamNumbers& k, const T* p, const T* g, const T* m, const T* v, T* p_out, T* m_out,
               T* v_out);
  void (*sgd)(int64_t n, const SgdNumbers& k, const T* p, const T* g, const T* u, T* p_out, T* u_out);

  // u, m_out and v_out of lamb_direction.
  void (*lamb)(int64_t n, const LambNumbers& k, const T* p, const T* g, const T* m, const T* v, T* u, T* m_out,
               T* v_out);
};

}  // namespace trireme::cpu

// What they do, for the sources that are compiled once per instruction set.
#ifdef TRIREME_ISA_NAMESPACE
#include "trireme/backend/cpu/isa/simd_impl.h"

namespace trireme::TRIREME_ISA_NAMESPACE {

using cpu::AdamNumbers;
using cpu::LambNumbers;
using cpu::SgdNumbers;

template <class T>
void adam(int64_t n, const AdamNumbers& k, const T* p, const T* g, const T* m, const T* v, T* p_out, T* m_out,
          T* v_out) {
  for_each_vector(n, [&](auto at) {
    const F32 param = at.get(p);
    const F32 grad = fma(set(k.l2), param, k.scale * at.get(g));
    const F32 m1 = fma(set(k.beta1), at.get(m), k.one_minus_beta1 * grad);
    const F32 v1 = fma(set(k.beta2), at.get(v), k.one_minus_beta2 * grad * grad);
    const F32 direction = m1 / fma(sqrt(v1), set(k.root), set(k.eps));
    at.put(p_out, fma(set(-k.step), direction, k.decay * param));
    at.put(m_out, m1);
    at.put(v_out, v1);
  });
}

template <class T>
void sgd(int64_t n, const SgdNumbers& k, const T* p, const T* g, const T* u, T* p_out, T* u_out) {
  for_each_vector(n, [&](auto at) {
    const F32 param = at.get(p);
    const F32 grad = fma(set(k.weight_decay), param, k.scale * at.get(g));
    const F32 velocity = k.first ? grad : fma(set(k.momentum), at.get(u), k.keep * grad);
    const F32 direction = fma(set(k.by_velocity), velocity, k.by_gradient * grad);
    at.put(p_out, fma(set(-k.lr), direction, param));
    if (u_out != nullptr) at.put(u_out, velocity);
  });
}

template <class T>
void lamb(int64_t n, const LambNumbers& k, const T* p, const T* g, const T* m, const T* v, T* u, T* m_out, T* v_out) {
  for_each_vector(n, [&](auto at) {
    const F32 grad = k.scale * at.get(g);
    const F32 m1 = fma(set(k.beta1), at.get(m), k.one_minus_beta1 * grad);
    const F32 v1 = fma(set(k.beta2), at.get(v), k.one_minus_beta2 * grad * grad);
    const F32 direction = k.first * m1 / fma(sqrt(v1), set(k.root), set(k.eps));
    at.put(u, fma(set(k.weight_decay), at.get(p), direction));
    at.put(m_out, m1);
    at.put(v_out, v1);
  });
}

template <class T>
constexpr cpu::UpdateLoops<T> update_loops() {
  return {.adam = adam<T>, .sgd = sgd<T>, .lamb = lamb<T>};
}

}  // namespace trireme::TRIREME_ISA_NAMESPACE
#endif
