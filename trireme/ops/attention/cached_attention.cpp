// cached_attention: attention of the next s tokens of a sequence, whose keys and values are kept beside those of the
// tokens before:
//
// keys'[b,at+i,g,:] = k[b,i,g,:], values' likewise; all other rows stay as they are
// y[b,i,h,:] = sum_j p[b,h,i,j] values'[b,j,h/r,:], p[b,h,i,:] = softmax_j(q[b,i,h,:] . keys'[b,j,h/r,:] / sqrt(d)),
// j <= at + i
//
// q is [b,s,h,d], k and v [b,s,g,d], keys and values [b,t,g,d] with h = g r. Only the rows that are seen are read, so
// that a token costs what has been kept, not what there is room for; and the results of keys and values are written
// over the operands. A cut of the batch is not offered: rows of it would be computed in blocks, away from where they
// are kept.
#include <algorithm>
#include <cmath>

#include "trireme/base/said.h"
#include "trireme/ops/ops.h"
#include "trireme/ops/reference.h"

namespace trireme {
namespace ops {
extern const OpDef cached_attention;
}  // namespace ops

namespace cached_attention_op {

std::vector<TensorType> infer(const InferArgs& args) {
  const TensorType &q = args.in[0], &k = args.in[1], &keys = args.in[3], &at = args.in[5];
  const auto what = [&] {
    return fmt::format("q {}, k {}, v {}, keys {}, values {}, at {}", to_string(q), to_string(k), to_string(args.in[2]),
                       to_string(keys), to_string(args.in[4]), to_string(at));
  };
  require(is_floating(q.dtype) && q.shape.rank() == 4 && k.shape.rank() == 4 && keys.shape.rank() == 4 &&
              k.dtype == q.dtype && keys.dtype == q.dtype && k == args.in[2] && keys == args.in[4],
          "cached_attention: q must be [b,s,h,d], k and v alike [b,s,g,d], keys and values alike [b,t,g,d], of one "
          "floating type ({})",
          said_by(what));
  require(k.shape[0] == q.shape[0] && k.shape[1] == q.shape[1] && k.shape[3] == q.shape[3] &&
              keys.shape[0] == k.shape[0] && keys.shape[2] == k.shape[2] && keys.shape[3] == k.shape[3],
          "cached_attention: batches, tokens, key heads or head sizes differ; they must be equal ({})", said_by(what));
  require(k.shape[2] > 0 && q.shape[2] > 0 && q.shape[2] % k.shape[2] == 0,
          "cached_attention: {} query heads are not a multiple of {} key heads ({})", q.shape[2], k.shape[2],
          said_by(what));
  require(q.shape[3] > 0 && q.shape[1] <= keys.shape[1],
          "cached_attention: {} tokens where there is room for {}, or no head size ({})", q.shape[1], keys.shape[1],
          said_by(what));
  require(is_index(at.dtype) && at.shape.rank() == 0, "cached_attention: at must be one number, i32 or i64 ({})",
          said_by(what));
  return {q, keys, keys};
}

ShardingRule shard(const TypeArgs& args) {
  return parse_rule("b!s!(gr!)d!,b!s!gd!,b!s!gd!,b!t!gd!,b!t!gd!,->b!s!(gr!)d!,b!t!gd!,b!t!gd!", args.in, args.out,
                    {.sizes = {{'r', args.in[0].shape[2] / args.in[1].shape[2]}}});
}

// As if all that there is room for were seen; keys and values are read, and few rows of them written.
Cost cost(const TypeArgs& args) {
  const auto pairs = static_cast<double>(args.in[0].elements()) * static_cast<double>(args.in[3].shape[1]);
  double bytes = static_cast<double>(args.out[0].bytes() + args.in[1].bytes() + args.in[2].bytes());
  for (const TensorType& type : args.in) bytes += static_cast<double>(type.bytes());
  return {.flops = 4 * pairs, .bytes = bytes};
}

int64_t first_token(const View& at) {
  int64_t first = 0;
  with_index("cached_attention", at.type.dtype, [&]<class I>(I) { first = static_cast<int64_t>(at.as<I>()[0]); });
  return first;
}

template <class T>
void keep(const View& before, const View& rows, int64_t first, const View& after) {
  const auto from = before.as<T>();
  const auto now = rows.as<T>();
  const auto to = after.as<T>();
  if (to.data() != from.data()) std::ranges::copy(from, to.begin());
  const int64_t batches = rows.type.shape[0];
  const auto row = static_cast<int64_t>(now.size()) / batches;  // of a batch
  const auto room = static_cast<int64_t>(to.size()) / batches;
  const int64_t skipped = first * rows.type.shape[2] * rows.type.shape[3];
  for (int64_t b = 0; b < batches; ++b) std::copy_n(now.begin() + b * row, row, to.begin() + b * room + skipped);
}

template <class T>
void attend(const KernelArgs& args, int64_t first) {
  const Shape& shape = args.in[0].type.shape;
  const int64_t h = shape[2], d = shape[3], g = args.in[1].type.shape[2], t = args.in[3].type.shape[1];
  const auto q = args.in[0].as<T>();
  const auto keys = args.out[1].as<T>();
  const auto values = args.out[2].as<T>();
  const auto y = args.out[0].as<T>();
  for (int64_t line = 0; line < args.in[0].elements() / d; ++line) {  // b, i and h
    const int64_t b = line / h / shape[1];
    const int64_t seen = first + line / h % shape[1] + 1;
    const auto key = [&](int64_t j) { return static_cast<size_t>(((b * t + j) * g + line % h / (h / g)) * d); };
    std::vector<double> p(static_cast<size_t>(seen), 0.0);
    for (int64_t j = 0; j < seen; ++j) {
      for (int64_t x = 0; x < d; ++x)
        p[static_cast<size_t>(j)] +=
            load(q[static_cast<size_t>(line * d + x)]) * load(keys[key(j) + static_cast<size_t>(x)]);
      p[static_cast<size_t>(j)] /= std::sqrt(static_cast<double>(d));
    }
    const double most = *std::ranges::max_element(p);
    double total = 0;
    for (double& each : p) total += each = std::exp(each - most);
    for (int64_t x = 0; x < d; ++x) {
      double sum = 0;
      for (int64_t j = 0; j < seen; ++j)
        sum += p[static_cast<size_t>(j)] / total * load(values[key(j) + static_cast<size_t>(x)]);
      y[static_cast<size_t>(line * d + x)] = store<T>(sum);
    }
  }
}

void kernel(const KernelArgs& args) {
  const int64_t first = first_token(args.in[5]);
  const int64_t tokens = args.in[1].type.shape[1], room = args.in[3].type.shape[1];
  require(first >= 0 && first + tokens <= room, "cached_attention: {} tokens at {} of {}; use 0 to {}", tokens, first,
          room, room - tokens);
  with_floating("cached_attention", args.in[0].type.dtype, [&]<class T>(T) {
    keep<T>(args.in[3], args.in[1], first, args.out[1]);
    keep<T>(args.in[4], args.in[2], first, args.out[2]);
    attend<T>(args, first);
  });
}

std::vector<Example> examples() {
  const auto of = [](int64_t b, int64_t s, int64_t h, int64_t g, int64_t d, int64_t t, TensorType at) {
    Example out{.in = {f32({b, s, h, d}), f32({b, s, g, d}), f32({b, s, g, d}), f32({b, t, g, d}), f32({b, t, g, d}),
                       std::move(at)}};
    out.fill = {{}, {}, {}, {}, {}, integers(0, static_cast<double>(t - s + 1))};
    return out;
  };
  return {of(1, 1, 12, 6, 2, 5, i32({})), of(2, 3, 6, 6, 4, 6, i64({})), of(1, 2, 4, 2, 3, 2, i32({}))};
}

}  // namespace cached_attention_op

namespace ops {
extern const OpDef cached_attention{
    {"cached_attention", &Attrs::parse<NoAttrs>},
    {
        .doc =
            "keys[b,at+i,g,:] = k[b,i,g,:], values likewise; y[b,i,h,:] = sum_j softmax_j(q[b,i,h,:] . keys[b,j,g,:] "
            "/ sqrt(d)) values[b,j,g,:], j <= at + i, g = h/r",
        .inputs = "q, k, v, keys, values, at",
        .infer = cached_attention_op::infer,
        .grad = Facet<GradFn>::none("what is kept of the tokens before was computed in other calls"),
        .shard = cached_attention_op::shard,
        .cost = cached_attention_op::cost,
        .kernel = cached_attention_op::kernel,
        .may_overwrite = {{1, 3}, {2, 4}},
        .examples = cached_attention_op::examples,
    },
};
}  // namespace ops

CachedAttention cached_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& keys,
                                 const Tensor& values, const Tensor& at) {
  const std::vector<Tensor> out = apply(ops::cached_attention, {q, k, v, keys, values, at});
  return {out[0], out[1], out[2]};
}

}  // namespace trireme
