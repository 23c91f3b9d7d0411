// Mixture of experts: each token goes to its best few of several MLPs (Switch Transformer, Fedus et al., 2021; GShard,
// Lepikhin et al., 2020), which nn/router.h chooses.
//
// Every expert takes at most C = ceil(top_k tokens capacity_factor / experts) tokens, or all there are, first come
// first served in the order of the batch: which tokens are dropped does not depend on how the batch is cut. Second
// choices come after all first ones, and so on. A dropped token contributes zero here and goes on by the residual
// connection.
//
// With `groups` (GShard) the batch is divided into that many equal runs of tokens, each with its own C places at every
// expert. That is part of the model, whatever the ranks; but when ranks share the groups evenly, all tokens of a group
// are on one rank, so that its places are filled there and go to the experts' ranks, and back, by all-to-all. With one
// group all ranks fill its places together, by a sum over ranks, and every rank gets all results back.
#pragma once

#include "trireme/nn/router.h"

namespace trireme::nn {

struct MoeOptions {
  std::string name = {};
  int64_t experts = 4;
  int64_t top_k = 2;              // experts of a token
  double capacity_factor = 1.25;  // above 0; infinity: no token is dropped
  int64_t groups = 1;             // a divisor of the tokens
  bool gated = false;             // experts are SwiGLU MLPs without biases (Mixtral), else gelu and biases (Switch)
  double aux_loss_factor =
      0.01;  // of the load-balancing loss, experts sum_e f_e p_e, which is added to what is trained; 0: none
  double init_std = 0.02;
  Routing routing = {};
};

// x[*,width] -> [*,width]. Parameters: router.weight [width,experts], up.weight [experts,width,hidden], up.bias
// [experts,1,hidden], down.weight [experts,hidden,width], down.bias [experts,1,width]; if gated gate.weight
// [experts,width,hidden] and no biases. Cut over a mesh axis by experts
// ("up.weight" as [ep, -, -], the same of "down"), each rank computes its own.
class Moe : public Module {
 public:
  Moe(int64_t width, int64_t hidden, MoeOptions options);
  Tensor forward(const Tensor& x) override;
  std::string_view kind() const override { return "moe"; }
  // Tokens that an expert takes of a group with this many.
  int64_t capacity(int64_t tokens) const;

 private:
  class Part : public Module {  // a name scope of its own, with a map for each expert
   public:
    Part(std::string name, int64_t in, int64_t out, const MoeOptions& options);
    Tensor forward(const Tensor& x) override;  // [experts,c,in] -> [experts,c,out]

   private:
    int64_t experts_, in_, out_;
    double init_std_;
    bool bias_;
  };
  // Where each token's copy goes: a row of its group's [experts * capacity], and 0 instead of 1 if it is dropped.
  struct Place {
    Tensor row;   // i32[*t]
    Tensor kept;  // f32[*t]
  };
  Place place(const Router::Choice& choice, const Tensor& before, int64_t capacity) const;
  // Rows to the places of [experts, places, width], and the experts' results back to the rows.
  Tensor dispatch(const Tensor& rows, const std::vector<Place>& places, int64_t capacity) const;
  std::vector<Tensor> combine(const Tensor& out, const std::vector<Place>& places, int64_t capacity) const;
  Tensor run_experts(const Tensor& taken);

  int64_t width_, hidden_;
  MoeOptions options_;
  Router router_;
  Part gate_, up_, down_;
};

}  // namespace trireme::nn
