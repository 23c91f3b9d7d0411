// DeepSeek-V2 and V3 (DeepSeek-AI, 2024): token embedding, pre-norm blocks, a final norm and a head. Nothing has a
// bias.
//
// Attention is multi-head latent attention: keys and values of all heads are maps of one small latent vector for each
// position, and so are queries where `query_rank` says so. A head's queries and keys are a part without positions
// beside one that is turned by them; the turned part of the keys is one for all heads.
//
// The first blocks have an MLP; in the others each token goes to some of many experts (nn/router.h) and to the shared
// ones, which are one MLP. Parameter names and shapes are Hugging Face's DeepseekV3ForCausalLM's
// ("model.layers.0.self_attn.kv_b_proj.weight" [out,in]) but for the experts and their router, which are nn/moe.h's.
#pragma once

#include <memory>
#include <vector>

#include "trireme/nn/layers.h"
#include "trireme/nn/moe.h"

namespace trireme::nn {

struct DeepSeekConfig {
  int64_t vocabulary = 256;
  int64_t context = 256;  // positions, at most
  int64_t layers = 4;
  int64_t width = 256;
  int64_t heads = 4;
  int64_t query_rank = 0;    // of the latent vector of queries; 0: queries are maps of the stream itself
  int64_t key_rank = 64;     // of that of keys and values
  int64_t head_size = 32;    // of queries and keys, without positions
  int64_t rotary_size = 16;  // of queries and keys, turned by positions; even
  int64_t value_size = 32;   // of values; at most head_size + rotary_size
  int64_t hidden = 704;      // of the MLP of the first blocks
  int64_t dense_layers = 1;  // blocks with an MLP
  int64_t experts = 8;       // of the other blocks; 0: all blocks have an MLP
  int64_t shared_experts = 1;
  int64_t expert_hidden = 96;  // of each expert
  int64_t top_k = 2;
  Routing routing = {.sigmoid = true, .gate_scale = 1, .bias_rate = 0.001};
  double capacity_factor = 1.25;
  double aux_loss_factor = 0.0001;
  int64_t expert_groups = 1;
  double rope_theta = 10000;
  double eps = 1e-6;  // of the norms
  double init_std = 0.02;
};

class LatentAttention : public Module {
 public:
  explicit LatentAttention(const DeepSeekConfig& config);
  Tensor forward(const Tensor& x) override;  // [b,s,width]

 private:
  Tensor queries(const Tensor& x);
  Tensor turned(const Tensor& x) const;

  const DeepSeekConfig config_;
  Linear q_proj_;  // instead of the three after it
  Linear q_a_proj_;
  RmsNorm q_a_layernorm_;
  Linear q_b_proj_;
  Linear kv_a_proj_with_mqa_;
  RmsNorm kv_a_layernorm_;
  Linear kv_b_proj_;
  Linear o_proj_;
};

class SwiGlu : public Module {
 public:
  SwiGlu(int64_t width, int64_t hidden, double init_std, std::string name);
  Tensor forward(const Tensor& x) override;

 private:
  Linear gate_proj_, up_proj_, down_proj_;
};

class DeepSeekBlock : public Module {
 public:
  DeepSeekBlock(const DeepSeekConfig& config, int64_t number);
  Tensor forward(const Tensor& x) override;  // [b,s,width]

 private:
  RmsNorm input_layernorm_, post_attention_layernorm_;
  LatentAttention self_attn_;
  Group mlp_;
  std::unique_ptr<SwiGlu> dense_, shared_;
  std::unique_ptr<Moe> moe_;
};

class DeepSeek : public Module {
 public:
  explicit DeepSeek(const DeepSeekConfig& config);
  Tensor forward(const Tensor& tokens) override;  // i32[b,s] -> f32[b,s,vocabulary]

 private:
  const DeepSeekConfig config_;
  Group model_;
  Embedding embed_tokens_;
  std::vector<std::unique_ptr<DeepSeekBlock>> blocks_;
  RmsNorm norm_;
  Linear lm_head_;
};

}  // namespace trireme::nn
