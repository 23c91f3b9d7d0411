#include "trireme/nn/router.h"

#include <cmath>

#include "trireme/base/counted.h"
#include "trireme/base/error.h"
#include "trireme/ops/ops.h"

namespace trireme::nn {
namespace {

constexpr double kOutOfReach = 1e30;  // more than scores and biases

// The same for all tokens.
Tensor for_each_token(const Tensor& of_experts, const Tensor& like) {
  return broadcast_to(of_experts, like.shape());
}

Tensor sum_of_masks(const std::vector<Router::Choice>& choices) {
  Tensor out = choices[0].mask;
  for (size_t k = 1; k < choices.size(); ++k) out = add(out, choices[k].mask);
  return out;
}

std::vector<int64_t> token_dims(const Tensor& mask) {
  return mask.rank() == 3 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0};
}

// One where an element is among the `count` largest of the last dimension.
Tensor largest(const Tensor& of, int64_t count) {
  Tensor out, left = of;
  for (int64_t i = 0; i < count; ++i) {
    const Tensor mask = one_hot(argmax(left, -1), of.size(-1), DType::kF32);
    out = out ? add(out, mask) : mask;
    if (i + 1 < count) left = sub(of, scale(out, kOutOfReach));
  }
  return out;
}

}  // namespace

Router::Router(int64_t width, int64_t experts, int64_t top_k, double aux_loss_factor, double init_std, Routing routing)
    : Module("router"),
      width_(width),
      experts_(experts),
      top_k_(top_k),
      aux_loss_factor_(aux_loss_factor),
      init_std_(init_std),
      routing_(routing) {
  require(experts >= 1, "Moe: {} experts; it must be 1 or more", experts);
  require(top_k >= 1, "Moe: top_k is {}; it must be 1 or more", top_k);
  require(top_k <= experts, "Moe: top_k is {}; it must be at most the {}", top_k, counted(experts, "expert"));
  require(aux_loss_factor >= 0 && std::isfinite(aux_loss_factor), "Moe: an aux_loss_factor of {}; it must be 0 or more",
          aux_loss_factor);
  const Routing& r = routing_;
  require(r.gate_scale > 0 && std::isfinite(r.gate_scale), "Moe: a gate_scale of {}; it must be above 0", r.gate_scale);
  require(r.bias_rate >= 0 && r.bias_rate <= 1, "Moe: a bias_rate of {}; it must be from 0 to 1", r.bias_rate);
  require(r.expert_nodes >= 1 && experts % r.expert_nodes == 0,
          "Moe: {} experts cannot lie in {} equal parts; use expert_nodes that divide the experts", experts,
          r.expert_nodes);
  require(r.top_nodes >= 1 && r.top_nodes <= r.expert_nodes,
          "Moe: top_nodes is {}; it must be from 1 to expert_nodes = {}", r.top_nodes, r.expert_nodes);
  require(top_k <= experts / r.expert_nodes * r.top_nodes,
          "Moe: top_k is {}, and {} of {} parts have {} experts; use more top_nodes", top_k, r.top_nodes,
          r.expert_nodes, experts / r.expert_nodes * r.top_nodes);
}

Router::Choice Router::choose(const Tensor& by, const Tensor& scores) const {
  const Tensor expert = argmax(by, -1);
  return {cast(expert, DType::kF32), one_hot(expert, experts_, DType::kF32), pick(scores, expert)};
}

// `by`, out of reach where an expert's part is not among the best.
Tensor Router::of_top_nodes(const Tensor& by) const {
  const int64_t nodes = routing_.expert_nodes, each = experts_ / nodes;
  if (routing_.top_nodes == nodes) return by;
  std::vector<int64_t> sizes(by.shape().begin(), by.shape().end());
  sizes.back() = nodes;
  sizes.push_back(each);
  const Shape apart(sizes);
  const Tensor parts = reshape(by, apart);
  const Tensor best = reduce_max(parts, {-1});
  const Tensor without = sub(parts, scale(one_hot(argmax(parts, -1), each, DType::kF32), kOutOfReach));
  const Tensor score = each > 1 ? add(best, reduce_max(without, {-1})) : best;
  const Tensor kept = largest(score, routing_.top_nodes);
  const Tensor of_each = reshape(broadcast_to(unsqueeze(kept, kept.rank()), apart), by.shape());
  return add(by, scale(add_scalar(of_each, -1), kOutOfReach));
}

void Router::balance(const Tensor& scores, const std::vector<Choice>& choices) const {
  if (aux_loss_factor_ == 0) return;
  const Scope scope(balance_);
  const std::vector<int64_t> tokens = token_dims(scores);
  Tensor chosen = choices[0].mask, probabilities = scores;
  if (routing_.sigmoid) {
    chosen = scale(sum_of_masks(choices), 1 / static_cast<double>(top_k_));
    probabilities = div(scores, broadcast_to(reduce_sum(scores, {-1}, true), scores.shape()));
  }
  const Tensor share = mean(chosen, tokens);
  const Tensor probability = mean(probabilities, tokens);
  const double factor = aux_loss_factor_ * static_cast<double>(experts_);
  Trace::current().add_loss(scale(reduce_sum(mul(share, probability)), factor));
}

void Router::even_out(const Tensor& bias, const std::vector<Choice>& choices) const {
  Trace& trace = Trace::current();
  if (!trace.options().training) return;
  const Scope scope(load_);
  const Tensor& mask = choices[0].mask;
  const Tensor load = reduce_sum(sum_of_masks(choices), token_dims(mask));  // whole numbers
  const int64_t tokens = mask.shape().elements() / experts_;
  const double even = static_cast<double>(tokens * top_k_) / static_cast<double>(experts_);
  trace.set_buffer(bias, sub(bias, scale(sign(add_scalar(load, -even)), routing_.bias_rate)));
}

std::vector<Router::Choice> Router::choices_of(const Tensor& rows) {
  Tensor scores, bias, by;
  {
    const Scope scope(*this);
    const Tensor weight = parameter("weight", {DType::kF32, {width_, experts_}}, {Init::Kind::kNormal, 0, init_std_});
    const Tensor logits = matmul(cast(rows, DType::kF32), weight);
    scores = routing_.sigmoid ? sigmoid(logits) : softmax(logits);
    if (routing_.bias_rate > 0) bias = buffer("bias", {DType::kF32, {experts_}}, {});
  }
  by = of_top_nodes(bias ? add(scores, for_each_token(bias, scores)) : scores);
  std::vector<Choice> choices{choose(by, scores)};
  Tensor taken = choices[0].mask;
  while (static_cast<int64_t>(choices.size()) < top_k_) {
    choices.push_back(choose(sub(by, scale(taken, kOutOfReach)), scores));
    if (static_cast<int64_t>(choices.size()) < top_k_) taken = add(taken, choices.back().mask);
  }
  balance(scores, choices);
  if (bias) even_out(bias, choices);
  if (routing_.normalised && top_k_ > 1) {
    Tensor sum = choices[0].gate;
    for (size_t k = 1; k < choices.size(); ++k) sum = add(sum, choices[k].gate);
    for (Choice& choice : choices) choice.gate = div(choice.gate, sum);
  }
  if (routing_.gate_scale != 1) {
    for (Choice& choice : choices) choice.gate = scale(choice.gate, routing_.gate_scale);
  }
  return choices;
}

}  // namespace trireme::nn
