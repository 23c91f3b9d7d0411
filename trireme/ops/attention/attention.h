// What attention and its gradient share: the sizes b s t h g d, the checks, and how heads lie in
// memory.
#pragma once

#include <cmath>

#include "trireme/op/build.h"
#include "trireme/op/keys_seen.h"
#include "trireme/op/registry.h"
#include "trireme/ops/reference.h"

namespace trireme::detail {

struct AttentionSizes {
  int64_t b, s, t, h, g, d;
};

inline AttentionSizes sizes_of(const TensorType& q, const TensorType& k) {
  return {q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2], q.shape[3]};
}

inline double scale_of(const AttentionAttrs& attrs, int64_t d) {
  return attrs.scale != 0 ? attrs.scale : 1 / std::sqrt(static_cast<double>(d));
}

inline TensorType lse_type(const TensorType& q) {
  return {statistic_type(q.dtype), {q.shape[0], q.shape[2], q.shape[1]}};
}

// Raises the mistakes in q, k, v and the attributes, which both ops share.
void check_attention(const char* op, const InferArgs& args);

// Heads are cut by groups: a key head stays with the query heads that it serves. Queries and keys are
// cut together, in a ring; under a causal mask only where there are as many of both, so that each
// piece of the keys is all before, all beside or all after a rank's queries.
inline RuleOptions attention_rule(const TypeArgs& args) {
  RuleOptions options;
  options.sizes = {{'r', args.in[0].shape[2] / args.in[1].shape[2]}};
  const AttentionSizes n = sizes_of(args.in[0], args.in[1]);
  const bool causal = args.attrs.as<AttentionAttrs>().causal;
  if (n.s == n.t || !causal) options.ring = "st";
  options.ring_is_causal = causal && n.s == n.t;
  return options;
}

// The next rank's view of the ring: what arrives while this rank computes.
inline std::vector<Tensor> pass_on(std::span<const Tensor> pieces, const Attrs& group) {
  std::vector<Tensor> out;
  for (const Tensor& piece : pieces) out.push_back(apply1(op("ring_shift"), {piece}, group));
  return out;
}

// Pairs of a query and a key that meet, over all batches and heads, times the head size; in a later
// step of a ring as many as on the last rank, which sees all keys of the others.
inline double pair_elements(const TypeArgs& args) {
  const AttentionSizes n = sizes_of(args.in[0], args.in[1]);
  const auto s = static_cast<double>(n.s);
  const auto t = static_cast<double>(n.t);
  const auto& attrs = args.attrs.as<AttentionAttrs>();
  const bool masked = attrs.causal && attrs.ring_step == 0;
  const double pairs = masked ? s * t - s * (s - 1) / 2 : s * t;
  return static_cast<double>(n.b * n.h * n.d) * pairs;
}

// One call's operands: element offsets of heads, and the scores of one query.
template <class T>
class Heads {
 public:
  explicit Heads(const KernelArgs& args)
      : n_(sizes_of(args.in[0].type, args.in[1].type)),
        seen_(keys_seen(args)),
        scale_(scale_of(args.attrs.as<AttentionAttrs>(), n_.d)),
        q_(args.in[0].as<T>()),
        k_(args.in[1].as<T>()) {}

  const AttentionSizes& sizes() const { return n_; }
  double scale() const { return scale_; }
  size_t query(int64_t b, int64_t i, int64_t h) const {
    return static_cast<size_t>(((b * n_.s + i) * n_.h + h) * n_.d);
  }
  size_t key(int64_t b, int64_t j, int64_t h) const {
    return static_cast<size_t>(((b * n_.t + j) * n_.g + h / (n_.h / n_.g)) * n_.d);
  }
  size_t line(int64_t b, int64_t i, int64_t h) const { return static_cast<size_t>((b * n_.h + h) * n_.s + i); }
  int64_t keys(int64_t i) const {
    if (seen_ == KeysSeen::kUpToOwn) return i + n_.t - n_.s + 1;
    return seen_ == KeysSeen::kAll ? n_.t : 0;
  }
  size_t d() const { return static_cast<size_t>(n_.d); }

  double score(int64_t b, int64_t i, int64_t j, int64_t h) const {
    return scale_ * dot(q_.subspan(query(b, i, h)), k_.subspan(key(b, j, h)));
  }
  double dot(std::span<const T> a, std::span<const T> c) const {
    double sum = 0;
    for (size_t x = 0; x < d(); ++x) sum += load(a[x]) * load(c[x]);
    return sum;
  }
  // Calls fn(b, i, h) for each query.
  template <class Fn>
  void each_query(Fn&& fn) const {
    for (int64_t b = 0; b < n_.b; ++b) {
      for (int64_t i = 0; i < n_.s; ++i) {
        for (int64_t h = 0; h < n_.h; ++h) fn(b, i, h);
      }
    }
  }

 private:
  AttentionSizes n_;
  KeysSeen seen_;
  double scale_;
  std::span<const T> q_;
  std::span<const T> k_;
};

inline Example attention_example(std::initializer_list<int64_t> q, std::initializer_list<int64_t> k,
                                 AttentionAttrs attrs) {
  return {.in = {f32(q), f32(k), f32(k)}, .attrs = Attrs::of(attrs)};
}

inline std::vector<Example> attention_examples() {
  return {attention_example({2, 4, 6, 2}, {2, 4, 6, 2}, {.causal = true}),
          attention_example({2, 3, 12, 2}, {2, 5, 6, 2}, {.causal = true, .scale = 0.3}),
          attention_example({6, 3, 1, 3}, {6, 2, 1, 3}, {})};
}

}  // namespace trireme::detail
