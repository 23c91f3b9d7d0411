// How the tokens of a mixture choose their experts: by a softmax over all experts (Switch Transformer, Fedus et al.,
// 2021; GShard, Lepikhin et al., 2020), or by a sigmoid for each expert, with a bias that evens out their load, and
// experts from only a few nodes (DeepSeek-V3, DeepSeek-AI, 2024, section 2.1.2).
#pragma once

#include <vector>

#include "trireme/nn/layers.h"

namespace trireme::nn {

struct Routing {
  bool sigmoid = false;      // an expert's score is the sigmoid of its logit; else softmax over the experts
  bool normalised = true;    // with two choices or more, a token's gates are divided by their sum
  double gate_scale = 1;     // gates are multiplied by it
  int64_t expert_nodes = 1;  // the experts lie in so many equal parts, one after the other,
  int64_t top_nodes = 1;     // and a token's choices are of the so many parts whose best two scores add up to the most
  // Above 0, choices go by score + bias, gates by the score alone. After a step the bias of an expert that had fewer
  // tokens than the mean is larger by so much, that of one with more is smaller. It is a buffer, router.bias [experts].
  double bias_rate = 0;
};

class Router : public Module {
 public:
  // Throws kInvalidArgument for numbers that do not go together.
  Router(int64_t width, int64_t experts, int64_t top_k, double aux_loss_factor, double init_std, Routing routing);

  // Tokens below are [t], or [groups,t].
  struct Choice {
    Tensor expert;  // f32[*t], a whole number
    Tensor mask;    // f32[*t,experts], one where chosen
    Tensor gate;    // f32[*t], what its result is multiplied by
  };
  // The choices of rows [*t,width], best first; each of another expert. The load-balancing loss is added to what is
  // trained: aux_loss_factor experts sum_e f_e p_e, where p_e is the mean probability of e (of its share of all scores,
  // with sigmoids) and f_e the share of tokens whose first choice is e (with sigmoids, of all choices); 1 when even.
  std::vector<Choice> choices_of(const Tensor& rows);

 private:
  Choice choose(const Tensor& by, const Tensor& scores) const;
  Tensor of_top_nodes(const Tensor& by) const;
  void balance(const Tensor& scores, const std::vector<Choice>& choices) const;
  void even_out(const Tensor& bias, const std::vector<Choice>& choices) const;

  int64_t width_, experts_, top_k_;
  double aux_loss_factor_, init_std_;
  Routing routing_;
  // Scopes of what training alone computes: without it, ops elsewhere have the names they have with it.
  Group balance_{"balance"}, load_{"load"};
};

}  // namespace trireme::nn
