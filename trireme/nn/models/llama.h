// Llama: token embedding, pre-norm blocks of causal grouped-query attention with rotary positions
// and a SwiGLU MLP, a final norm and a head. Norms are RMSNorm and nothing has a bias. Parameter
// names and shapes are Hugging Face's LlamaForCausalLM's ("model.layers.0.self_attn.q_proj.weight"
// [out,in]).
#pragma once

#include <memory>
#include <vector>

#include "trireme/nn/layers.h"
#include "trireme/nn/moe.h"

namespace trireme::nn {

struct LlamaConfig {
  int64_t vocabulary = 256;
  int64_t context = 256;  // positions, at most
  int64_t layers = 4;
  int64_t width = 256;
  int64_t heads = 4;     // of queries; width / heads is a head's size and must be even
  int64_t kv_heads = 0;  // of keys and values, a divisor of heads; 0: as many as heads
  int64_t hidden = 0;    // of the MLP; 0: 8/3 of the width, rounded up to a multiple of 64
  double rope_theta = 10000;
  double eps = 1e-5;       // of the norms
  double init_std = 0.02;  // of all weights but the norms'
  bool tied = false;       // the head is the embedding's table
  int64_t experts = 0;     // of every block's MLP, which is a mixture of SwiGLU ones (nn/moe.h); 0: one plain MLP
  int64_t top_k = 2;
  double capacity_factor = 1.25;
  double aux_loss_factor = 0.01;
  int64_t expert_groups = 1;
};

class LlamaBlock : public Module {
 public:
  LlamaBlock(const LlamaConfig& config, std::string name);
  Tensor forward(const Tensor& x) override;  // [b,s,width]

 private:
  Tensor attend(const Tensor& x);
  Tensor mix(const Tensor& x);

  const LlamaConfig config_;
  RmsNorm input_layernorm_, post_attention_layernorm_;
  Group self_attn_, mlp_;
  Linear q_proj_, k_proj_, v_proj_, o_proj_;
  Linear gate_proj_, up_proj_, down_proj_;
  std::unique_ptr<Moe> moe_;  // instead of mlp_
};

class Llama : public Module {
 public:
  explicit Llama(const LlamaConfig& config);
  Tensor forward(const Tensor& tokens) override;         // i32[b,s] -> f32[b,s,vocabulary]
  const LlamaConfig& config() const { return config_; }  // kv_heads and hidden as they follow

 private:
  const LlamaConfig config_;
  Group model_;
  Embedding embed_tokens_;
  std::vector<std::unique_ptr<LlamaBlock>> blocks_;
  RmsNorm norm_;
  Linear lm_head_;
};

}  // namespace trireme::nn
