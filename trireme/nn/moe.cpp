#include "trireme/nn/moe.h"

#include <algorithm>
#include <cmath>

#include "trireme/base/error.h"
#include "trireme/ops/ops.h"

namespace trireme::nn {
namespace {

constexpr int64_t kMostRows = int64_t{1} << 24;  // places are counted in f32

}  // namespace

Moe::Part::Part(std::string name, int64_t in, int64_t out, const MoeOptions& options)
    : Module(std::move(name)),
      experts_(options.experts),
      in_(in),
      out_(out),
      init_std_(options.init_std),
      bias_(!options.gated) {}

Tensor Moe::Part::forward(const Tensor& x) {
  const Tensor in = Trace::current().in_compute_type(x);
  const Tensor weight = operand("weight", {experts_, in_, out_}, {Init::Kind::kNormal, 0, init_std_});
  const Tensor y = matmul(in, weight);
  return bias_ ? add(y, operand("bias", {experts_, 1, out_}, {})) : y;
}

Tensor Moe::Router::weight(int64_t width, int64_t experts, double init_std) const {
  return parameter("weight", {DType::kF32, {width, experts}}, {Init::Kind::kNormal, 0, init_std});
}

Moe::Moe(int64_t width, int64_t hidden, MoeOptions options)
    : Module(options.name),
      width_(width),
      hidden_(hidden),
      options_(std::move(options)),
      router_("router"),
      gate_("gate", width, hidden, options_),
      up_("up", width, hidden, options_),
      down_("down", hidden, width, options_) {
  require(options_.experts >= 1, "Moe: {} experts; it must be 1 or more", options_.experts);
  require(options_.top_k == 1 || options_.top_k == 2, "Moe: top_k is {}; it must be 1 or 2", options_.top_k);
  require(options_.top_k <= options_.experts, "Moe: top_k is {} of {} experts", options_.top_k, options_.experts);
  require(options_.groups >= 1, "Moe: {} groups; it must be 1 or more", options_.groups);
  require(options_.aux_loss_factor >= 0 && std::isfinite(options_.aux_loss_factor),
          "Moe: an aux_loss_factor of {}; it must be 0 or more", options_.aux_loss_factor);
  require(options_.capacity_factor > 0, "Moe: a capacity factor of {}; it must be above 0", options_.capacity_factor);
}

// A token's choices are different experts, so none is sent more than there are tokens.
int64_t Moe::capacity(int64_t tokens) const {
  const double share = static_cast<double>(options_.top_k * tokens) / static_cast<double>(options_.experts);
  const double places = std::ceil(share * options_.capacity_factor);
  if (!(places < static_cast<double>(tokens))) return std::max<int64_t>(1, tokens);
  return std::max<int64_t>(1, static_cast<int64_t>(places));
}

Moe::Choice Moe::choose(const Tensor& scores, const Tensor& probabilities) const {
  const Tensor expert = argmax(scores, -1);
  return {cast(expert, DType::kF32), one_hot(expert, options_.experts, DType::kF32), pick(probabilities, expert)};
}

// A token's place in its expert is the number of those before it, in the order of its group, and of `before`, f32
// [*,1,experts], that were placed already.
Moe::Place Moe::place(const Choice& choice, const Tensor& before, int64_t capacity) const {
  Tensor ahead = sub(cumsum(choice.mask, choice.mask.rank() - 2), choice.mask);
  if (before) ahead = add(ahead, before);
  const Tensor position = reduce_sum(mul(ahead, choice.mask), {-1});
  const Tensor limit = constant(position.graph(), {DType::kF32, {}}, static_cast<double>(capacity));
  const Tensor kept = cast(less(position, broadcast_to(limit, position.shape())), DType::kF32);
  const Tensor row = mul(add(scale(choice.expert, static_cast<double>(capacity)), position), kept);
  return {cast(row, DType::kI32), kept};
}

// experts sum_e f_e p_e: the share of tokens whose first choice is e, and the mean probability of e; 1 when even.
void Moe::balance(const Tensor& probabilities, const Tensor& mask) const {
  if (options_.aux_loss_factor == 0) return;
  std::vector<int64_t> tokens{0};
  if (mask.rank() == 3) tokens.push_back(1);
  const Tensor share = mean(mask, tokens);
  const Tensor probability = mean(probabilities, tokens);
  const double factor = options_.aux_loss_factor * static_cast<double>(options_.experts);
  Trace::current().add_loss(scale(reduce_sum(mul(share, probability)), factor));
}

std::vector<Moe::Choice> Moe::choices_of(const Tensor& rows) {
  Tensor probabilities;
  {
    const Scope scope(router_);
    const Tensor weight = router_.weight(width_, options_.experts, options_.init_std);
    probabilities = softmax(matmul(cast(rows, DType::kF32), weight));
  }
  std::vector<Choice> choices{choose(probabilities, probabilities)};
  balance(probabilities, choices[0].mask);
  if (options_.top_k == 1) return choices;
  choices.push_back(choose(sub(probabilities, scale(choices[0].mask, 2)), probabilities));
  const Tensor both = add(choices[0].gate, choices[1].gate);
  for (Choice& choice : choices) choice.gate = div(choice.gate, both);
  return choices;
}

// Every place is taken once, so adding up rows puts each token in its own; dropped ones add zeros to row 0.
Tensor Moe::dispatch(const Tensor& rows, const std::vector<Place>& places, int64_t capacity) const {
  const bool grouped = rows.rank() == 3;
  const int64_t table = options_.experts * capacity;
  Tensor taken;
  for (const Place& to : places) {
    const Tensor kept = mul(rows, cast(unsqueeze(to.kept, to.kept.rank()), rows.dtype()));
    const Tensor part = grouped ? scatter_rows(to.row, kept, table) : embedding_grad(to.row, kept, table);
    taken = taken ? add(taken, part) : part;
  }
  if (!grouped) return reshape(taken, {options_.experts, capacity, width_});
  const Tensor by_expert = swap_dims(reshape(taken, {rows.size(0), options_.experts, capacity, width_}), 0, 1);
  return reshape(by_expert, {options_.experts, rows.size(0) * capacity, width_});
}

// One look-up for all choices, so that what comes back comes once.
std::vector<Tensor> Moe::combine(const Tensor& out, const std::vector<Place>& places, int64_t capacity) const {
  std::vector<Tensor> parts;
  if (options_.groups == 1) {
    const Tensor table = reshape(out, {options_.experts * capacity, width_});
    for (const Place& from : places) parts.push_back(embedding(table, from.row));
    return parts;
  }
  const Tensor by_group = swap_dims(reshape(out, {options_.experts, options_.groups, capacity, width_}), 0, 1);
  const Tensor table = reshape(by_group, {options_.groups, options_.experts * capacity, width_});
  std::vector<Tensor> rows;
  for (const Place& from : places) rows.push_back(from.row);
  const auto choices = static_cast<int>(places.size());
  const Tensor all = gather_rows(table, choices == 1 ? rows[0] : concat(rows, 1));
  return choices == 1 ? std::vector<Tensor>{all} : split(all, 1, choices);
}

Tensor Moe::run_experts(const Tensor& taken) {
  if (!options_.gated) return down_(gelu(up_(taken), true));
  const Tensor gate = silu(gate_(taken));
  return down_(mul(gate, up_(taken)));
}

Tensor Moe::forward(const Tensor& x) {
  require(x.rank() >= 2 && x.size(-1) == width_, "Moe of width {} got {}; the last dimension must be {}", width_,
          to_string(x.type()), width_);
  const int64_t groups = options_.groups;
  const int64_t tokens = x.shape().elements() / width_;
  require(tokens % groups == 0, "Moe: {} tokens cannot be divided into {} groups; use a divisor", tokens, groups);
  const int64_t room = capacity(tokens / groups);
  require(std::max(tokens / groups, options_.experts * room) <= kMostRows,
          "Moe: {} experts with {} places each are more than the {} rows that are counted exactly; use a smaller "
          "capacity factor, or "
          "more groups than {}",
          options_.experts, room, kMostRows, groups);
  const Tensor rows = groups == 1 ? reshape(x, {tokens, width_}) : reshape(x, {groups, tokens / groups, width_});
  const std::vector<Choice> choices = choices_of(rows);
  std::vector<Place> places{place(choices[0], {}, room)};
  if (choices.size() == 2) {
    const Tensor placed = reduce_sum(choices[0].mask, {choices[0].mask.rank() - 2}, true);
    places.push_back(place(choices[1], placed, room));
  }
  const std::vector<Tensor> parts = combine(run_experts(dispatch(rows, places, room)), places, room);
  Tensor y;
  for (size_t k = 0; k < parts.size(); ++k) {
    const Tensor weight = mul(choices[k].gate, places[k].kept);
    const Tensor part = mul(parts[k], cast(unsqueeze(weight, weight.rank()), x.dtype()));
    y = y ? add(y, part) : part;
  }
  return reshape(y, x.shape());
}

}  // namespace trireme::nn
