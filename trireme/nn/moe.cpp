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

Moe::Moe(int64_t width, int64_t hidden, MoeOptions options)
    : Module(options.name),
      width_(width),
      hidden_(hidden),
      options_(std::move(options)),
      router_(width, options_.experts, options_.top_k, options_.aux_loss_factor, options_.init_std, options_.routing),
      gate_("gate", width, hidden, options_),
      up_("up", width, hidden, options_),
      down_("down", hidden, width, options_) {
  require(options_.groups >= 1, "Moe: {} groups; it must be 1 or more", options_.groups);
  require(options_.capacity_factor > 0, "Moe: a capacity factor of {}; it must be above 0", options_.capacity_factor);
}

// A token's choices are different experts, so none is sent more than there are tokens.
int64_t Moe::capacity(int64_t tokens) const {
  const double share = static_cast<double>(options_.top_k * tokens) / static_cast<double>(options_.experts);
  const double places = std::ceil(share * options_.capacity_factor);
  if (!(places < static_cast<double>(tokens))) return std::max<int64_t>(1, tokens);
  return std::max<int64_t>(1, static_cast<int64_t>(places));
}

// A token's place in its expert is the number of those before it, in the order of its group, and of `before`, f32
// [*,1,experts], that were placed already.
Moe::Place Moe::place(const Router::Choice& choice, const Tensor& before, int64_t capacity) const {
  Tensor ahead = sub(cumsum(choice.mask, choice.mask.rank() - 2), choice.mask);
  if (before) ahead = add(ahead, before);
  const Tensor position = reduce_sum(mul(ahead, choice.mask), {-1});
  const Tensor limit = constant(position.graph(), {DType::kF32, {}}, static_cast<double>(capacity));
  const Tensor kept = cast(less(position, broadcast_to(limit, position.shape())), DType::kF32);
  const Tensor row = mul(add(scale(choice.expert, static_cast<double>(capacity)), position), kept);
  return {cast(row, DType::kI32), kept};
}

// Every place is taken once, so adding up rows puts each token in its own; dropped ones add zeros to row 0. The tokens
// of a group are on one rank, so that all choices go to their places at once.
Tensor Moe::dispatch(const Tensor& rows, const std::vector<Place>& places, int64_t capacity) const {
  const int64_t table = options_.experts * capacity;
  std::vector<Tensor> to, kept;
  for (const Place& place : places) {
    to.push_back(place.row);
    kept.push_back(mul(rows, cast(unsqueeze(place.kept, place.kept.rank()), rows.dtype())));
  }
  if (rows.rank() == 2) {
    Tensor taken;
    for (size_t k = 0; k < places.size(); ++k) {
      const Tensor part = embedding_grad(to[k], kept[k], table);
      taken = taken ? add(taken, part) : part;
    }
    return reshape(taken, {options_.experts, capacity, width_});
  }
  const bool one = places.size() == 1;
  const Tensor taken = scatter_rows(one ? to[0] : concat(to, 1), one ? kept[0] : concat(kept, 1), table);
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
  const std::vector<Router::Choice> choices = router_.choices_of(rows);
  std::vector<Place> places;
  Tensor placed;
  for (const Router::Choice& choice : choices) {
    places.push_back(place(choice, placed, room));
    if (places.size() == choices.size()) break;
    const Tensor more = reduce_sum(choice.mask, {choice.mask.rank() - 2}, true);
    placed = placed ? add(placed, more) : more;
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
