#include "trireme/nn/decoding.h"

#include "trireme/ops/ops.h"

namespace trireme::nn {

Tensor positions(const Tensor& tokens) {
  const Tensor from_0 = iota(tokens.graph(), {DType::kI32, {tokens.size(1)}}, 0);
  Trace& trace = Trace::current();
  return trace.options().kept_tokens == 0 ? from_0 : add(from_0, trace.position());
}

Tensor turned_by_position(const Tensor& x, double theta) {
  Trace& trace = Trace::current();
  return trace.options().kept_tokens == 0 ? rotary(x, theta) : rotary_at(x, trace.position(), theta);
}

Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  Trace& trace = Trace::current();
  const int64_t tokens = trace.options().kept_tokens;
  if (tokens == 0) return attention(q, k, v, {.causal = true});
  const TensorType type{k.dtype(), {k.size(0), tokens, k.size(2), k.size(3)}};
  const Tensor keys = trace.kept("keys", type);
  const Tensor values = trace.kept("values", type);
  const CachedAttention now = cached_attention(q, k, v, keys, values, trace.position());
  trace.set_buffer(keys, now.keys);
  trace.set_buffer(values, now.values);
  return now.out;
}

}  // namespace trireme::nn
