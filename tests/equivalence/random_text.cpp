#include "tests/equivalence/random_text.h"

#include <fmt/core.h>

#include <algorithm>

#include "tests/equivalence/random_updates.h"
#include "trireme/grad/gradients.h"
#include "trireme/ops/ops.h"

namespace trireme::equivalence {
namespace {

class RandomText {
 public:
  RandomText(Draw& draw, const TextSizes& sizes)
      : draw_(draw),
        sizes_(sizes),
        real_(draw.of(std::vector<DType>{sizes.narrow, sizes.narrow, DType::kF64, DType::kBF16})),
        stored_(real_ == DType::kBF16 ? DType::kF32 : real_),
        batch_(sizes.samples * draw.of({1, 2})),
        positions_(sizes.chunks * draw.of({1, 2, 3})),
        heads_(draw.of({1, 2, 4})),
        width_(heads_ * draw.of({2, 4})) {}

  Graph build() {
    graph_.set_scope("part0");
    int64_t vocabulary = draw_.of({5, 6, 8});
    if (sizes_.shares_table) vocabulary = std::max(vocabulary, positions_);
    const Tensor table = parameter({vocabulary, width_});
    made_.push_back(embedding(table, ids("x", vocabulary)));
    Tensor places;  // whose gradients of chunks are put together, so that no others may be added to them
    if (sizes_.places) {
      const Tensor numbers = iota(graph_, {DType::kI32, {positions_}}, 0);
      if (!sizes_.shares_table)
        places = {graph_, graph_.add_input("places", {stored_, {positions_, width_}}, Role::kParameter)};
      made_.back() = add(made_.back(), embedding(sizes_.shares_table ? table : cast(places, real_), numbers));
    }
    const int64_t most = std::min<int64_t>(sizes_.most_parts, real_ == DType::kBF16 ? 2 : 4);
    const int64_t length = std::max(1 + draw_.below(most), sizes_.least_parts);
    for (int64_t i = 1; i <= length; ++i) {
      graph_.set_scope(fmt::format("part{}", i));
      const Tensor x = draw_.chance(80) ? made_.back() : draw_.of(made_);
      made_.push_back(draw_.chance(60) ? attended(x) : mapped(x));
      if (sizes_.dropout && draw_.chance(30)) {
        const Tensor step = schedule(graph_, "step", DType::kI64);
        made_.push_back(dropout(made_.back(), step, 0.25, 11, i));
      }
    }
    graph_.set_scope("loss");
    Tensor logits = normed(made_.back());
    logits = draw_.chance(50) ? matmul(logits, table, false, true) : matmul(logits, parameter({width_, vocabulary}));
    const Tensor loss = mean(cross_entropy(cast(logits, stored_), ids("y", vocabulary)));
    graph_.add_output("loss", loss.id());
    if (places) stored_parameters_.push_back(places);
    const std::vector<Tensor> grads = gradients_of_trained(loss, stored_parameters_, stored_parameters_.size(), draw_);
    if (draw_.chance(80)) add_random_updates(graph_, stored_parameters_, grads, Numerics::kFast, nullptr, draw_);
    if (draw_.chance(30) && grads[0]) graph_.add_output("grad.w0", grads[0].id());
    graph_.set_scope("");
    return without_dead_nodes(graph_);
  }

 private:
  Tensor ids(const std::string& name, int64_t vocabulary) {
    return {graph_, graph_.add_input(fmt::format("{}.below{}", name, vocabulary), {DType::kI32, {batch_, positions_}},
                                     Role::kData)};
  }

  Tensor parameter(const Shape& shape) {
    for (const Tensor& known : stored_parameters_) {
      if (known.shape() == shape && draw_.chance(30)) return cast(known, real_);
    }
    const std::string name = fmt::format("w{}", stored_parameters_.size());
    stored_parameters_.emplace_back(graph_, graph_.add_input(name, {stored_, shape}, Role::kParameter));
    return cast(stored_parameters_.back(), real_);
  }

  Tensor normed(const Tensor& x) { return draw_.chance(50) ? x : rms_norm(x, parameter({width_})).y; }

  Tensor product(const Tensor& x, int64_t out) { return matmul(x, parameter({x.size(-1), out})); }
  Tensor linear(const Tensor& x, int64_t out) {
    const Tensor y = product(x, out);
    return draw_.chance(50) ? add(y, parameter({out})) : y;
  }

  Tensor mapped(const Tensor& x) {
    const Tensor y = linear(normed(x), 2 * width_);
    return add(x, linear(draw_.chance(50) ? gelu(y) : silu(y), width_));
  }

  Tensor attended(const Tensor& x) {
    const int64_t groups = draw_.chance(50) ? heads_ : 1;
    const int64_t of_head = width_ / heads_;
    const Tensor in = normed(x);
    Tensor q = reshape(linear(in, width_), {batch_, positions_, heads_, of_head});
    // Keys have no bias: softmax does not see what all of them share, so its gradient would be rounding alone.
    Tensor k = reshape(product(in, groups * of_head), {batch_, positions_, groups, of_head});
    const Tensor v = reshape(linear(in, groups * of_head), {batch_, positions_, groups, of_head});
    if (draw_.chance(50)) q = rotary(q), k = rotary(k);
    const Tensor y = reshape(attention(q, k, v, {.causal = true}), {batch_, positions_, width_});
    return add(x, draw_.chance(50) ? linear(y, width_) : y);
  }

  Draw& draw_;
  TextSizes sizes_;
  DType real_, stored_;  // computed in, and of inputs
  int64_t batch_, positions_, heads_, width_;
  Graph graph_{"text"};
  std::vector<Tensor> stored_parameters_;
  std::vector<Tensor> made_;
};

}  // namespace

Graph random_text_graph(Draw& draw, const TextSizes& sizes) {
  return RandomText(draw, sizes).build();
}

}  // namespace trireme::equivalence
