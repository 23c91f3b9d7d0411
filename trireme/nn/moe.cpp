#include "trireme/nn/moe.h"

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/ops/ops.h"

namespace trireme::nn {

Moe::Part::Part(std::string name, int64_t experts, int64_t in, int64_t out, double init_std)
    : Module(std::move(name)), experts_(experts), in_(in), out_(out), init_std_(init_std) {}

Tensor Moe::Part::forward(const Tensor& x) {
  const Tensor in = Trace::current().in_compute_type(x);
  const Tensor weight = operand("weight", {experts_, in_, out_}, {Init::Kind::kNormal, 0, init_std_});
  const Tensor y = matmul(in, weight);
  return add(y, operand("bias", {experts_, 1, out_}, {}));
}

Tensor Moe::Router::weight(int64_t width, int64_t experts, double init_std) const {
  return parameter("weight", {DType::kF32, {width, experts}}, {Init::Kind::kNormal, 0, init_std});
}

Moe::Moe(int64_t width, int64_t hidden, MoeOptions options)
    : Module(options.name), width_(width), hidden_(hidden), options_(std::move(options)), router_("router"),
      up_("up", options_.experts, width, hidden, options_.init_std),
      down_("down", options_.experts, hidden, width, options_.init_std) {
  require(options_.experts >= 1, "Moe: {} experts; it must be 1 or more", options_.experts);
  require(options_.top_k == 1 || options_.top_k == 2, "Moe: top_k is {}; it must be 1 or 2", options_.top_k);
  require(options_.top_k <= options_.experts, "Moe: top_k is {} of {} experts", options_.top_k, options_.experts);
  require(options_.capacity_factor > 0, "Moe: a capacity factor of {}; it must be above 0", options_.capacity_factor);
}

int64_t Moe::capacity(int64_t tokens) const {
  const double share = static_cast<double>(options_.top_k * tokens) / static_cast<double>(options_.experts);
  return std::max<int64_t>(1, static_cast<int64_t>(std::ceil(share * options_.capacity_factor)));
}

Moe::Choice Moe::choose(const Tensor& scores, const Tensor& probabilities) const {
  const Tensor expert = argmax(scores, -1);
  return {cast(expert, DType::kF32), one_hot(expert, options_.experts, DType::kF32), pick(probabilities, expert)};
}

// A token's place in its expert is the number of those before it, in the order of the whole batch, and of `before`, f32
// [experts], that were placed already.
Moe::Place Moe::place(const Choice& choice, const Tensor& before, int64_t capacity) const {
  Tensor ahead = sub(cumsum(choice.mask, 0), choice.mask);
  if (before) ahead = add(ahead, before);
  const Tensor position = reduce_sum(mul(ahead, choice.mask), {-1});
  const Tensor limit = constant(position.graph(), {DType::kF32, {}}, static_cast<double>(capacity));
  const Tensor kept = cast(less(position, broadcast_to(limit, position.shape())), DType::kF32);
  const Tensor row = mul(add(scale(choice.expert, static_cast<double>(capacity)), position), kept);
  return {cast(row, DType::kI32), kept};
}

// experts sum_e f_e p_e: the share of tokens whose first choice is e, and the mean probability of e; 1 when even.
void Moe::balance(const Tensor& probabilities, const Tensor& mask) const {
  if (options_.balance == 0) return;
  const Tensor share = mean(mask, {0});
  const Tensor probability = mean(probabilities, {0});
  const double factor = options_.balance * static_cast<double>(options_.experts);
  Trace::current().add_loss(scale(reduce_sum(mul(share, probability)), factor));
}

Tensor Moe::forward(const Tensor& x) {
  require(x.rank() >= 2 && x.size(-1) == width_, "Moe of width {} got {}; the last dimension must be {}", width_,
          to_string(x.type()), width_);
  const int64_t tokens = x.shape().elements() / width_;
  const int64_t room = capacity(tokens);
  const Tensor rows = reshape(x, {tokens, width_});
  Tensor probabilities;
  {
    const Scope scope(router_);
    const Tensor weight = router_.weight(width_, options_.experts, options_.init_std);
    probabilities = softmax(matmul(cast(rows, DType::kF32), weight));
  }
  std::vector<Choice> choices{choose(probabilities, probabilities)};
  balance(probabilities, choices[0].mask);
  std::vector<Place> places{place(choices[0], {}, room)};
  if (options_.top_k == 2) {
    choices.push_back(choose(sub(probabilities, scale(choices[0].mask, 2)), probabilities));
    places.push_back(place(choices[1], reduce_sum(choices[0].mask, {0}), room));
    const Tensor both = add(choices[0].gate, choices[1].gate);
    for (Choice& choice : choices) choice.gate = div(choice.gate, both);
  }
  // Every place is taken once, so adding up rows puts each token in its own; dropped ones add zeros to row 0.
  Tensor taken;
  for (const Place& to : places) {
    const Tensor kept = mul(rows, cast(unsqueeze(to.kept, 1), x.dtype()));
    const Tensor part = embedding_grad(to.row, kept, options_.experts * room);
    taken = taken ? add(taken, part) : part;
  }
  const Tensor out = down_(gelu(up_(reshape(taken, {options_.experts, room, width_})), true));
  const Tensor table = reshape(out, {options_.experts * room, width_});
  Tensor y;
  for (size_t k = 0; k < places.size(); ++k) {
    const Tensor weight = mul(choices[k].gate, places[k].kept);
    const Tensor part = mul(embedding(table, places[k].row), cast(unsqueeze(weight, 1), x.dtype()));
    y = y ? add(y, part) : part;
  }
  return reshape(y, x.shape());
}

}  // namespace trireme::nn
