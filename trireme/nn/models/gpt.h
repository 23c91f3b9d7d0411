// GPT-2: token and position embeddings, pre-norm blocks of causal attention and a GELU MLP, a final norm, and a head
// tied to the token embedding. Parameter names and shapes are Hugging Face's GPT2Model's ("h.0.attn.c_attn.weight").
#pragma once

#include <memory>
#include <vector>

#include "trireme/nn/layers.h"
#include "trireme/nn/moe.h"

namespace trireme::nn {

struct GptConfig {
  int64_t vocabulary = 256;
  int64_t context = 256;  // positions
  int64_t layers = 4;
  int64_t width = 256;
  int64_t heads = 4;
  double dropout = 0;
  int64_t experts = 0;  // of every block's MLP, which is a mixture of them (nn/moe.h); 0: one plain MLP
  int64_t top_k = 2;
  double capacity_factor = 1.25;
  double aux_loss_factor = 0.01;
  int64_t expert_groups = 1;
};

class GptBlock : public Module {
 public:
  GptBlock(const GptConfig& config, std::string name);
  Tensor forward(const Tensor& x) override;  // [b,s,d]

 private:
  Tensor attend(const Tensor& x);

  int64_t width_, heads_;
  LayerNorm ln_1_, ln_2_;
  Group attn_, mlp_;
  std::unique_ptr<Moe> moe_;
  MultiLinear c_attn_;
  Linear attn_proj_, c_fc_, mlp_proj_;
  Dropout attn_drop_, mlp_drop_;
};

class Gpt : public Module {
 public:
  explicit Gpt(const GptConfig& config);
  Tensor forward(const Tensor& tokens) override;  // i32[b,s] -> [b,s,vocabulary]
  const GptConfig& config() const { return config_; }

 private:
  GptConfig config_;
  Embedding wte_, wpe_;
  Dropout drop_;
  std::vector<std::unique_ptr<GptBlock>> blocks_;
  LayerNorm ln_f_;
};

}  // namespace trireme::nn
