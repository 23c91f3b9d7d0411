// T5 (Raffel et al., 2020): an encoder that sees all of its tokens, and a decoder that tells the next token from those
// before it and from what the encoder made. Pre-norm blocks; RMSNorm, no biases; positions enter by a bias of the
// scores, one table for each of the two stacks; scores are not scaled. `gated`: the MLP of version 1.1, GELU times a
// second map. Parameter names and shapes are Hugging Face's T5ForConditionalGeneration's
// ("encoder.block.0.layer.0.SelfAttention.q.weight" [out,in]). Dropout is that of blocks and MLPs; probabilities of
// attention are not dropped.
#pragma once

#include <memory>
#include <vector>

#include "trireme/nn/layers.h"

namespace trireme::nn {

struct T5Config {
  int64_t vocabulary = 384;
  int64_t layers = 4;          // of the encoder
  int64_t decoder_layers = 0;  // 0: as many
  int64_t width = 256;
  int64_t heads = 4;
  int64_t head_size = 0;  // 0: width / heads
  int64_t hidden = 0;     // of the MLP; 0: four times the width
  bool gated = false;
  bool tied = false;  // the head is the embedding's table, and reads what the decoder made by 1/sqrt(width)
  int64_t distance_classes = 32;
  int64_t most_distance = 128;  // from which on all are one class
  double dropout = 0;
};

// Queries of x, keys and values of `of`; the bias broadcasts to [b,h,s,t].
class T5Attention : public Module {
 public:
  T5Attention(const T5Config& config, std::string name, bool has_table);
  Tensor attend(const Tensor& x, const Tensor& of, const Tensor& bias);
  // The bias of the scores of x with its own positions, f32[h,s,s], from the table of distances.
  Tensor relative_bias(const Tensor& x, bool causal);

 private:
  int64_t heads_, head_size_;
  const T5Config config_;
  Linear q_, k_, v_, o_;
  std::unique_ptr<Embedding> relative_attention_bias_;
};

class T5Mlp : public Module {
 public:
  explicit T5Mlp(const T5Config& config);
  Tensor forward(const Tensor& x) override;

 private:
  bool gated_;
  Linear wi_, wi_0_, wi_1_, wo_;
  Dropout drop_;
};

class T5Block : public Module {
 public:
  T5Block(const T5Config& config, int64_t number, bool decodes);
  // The bias of this stack, from its first block's table.
  Tensor relative_bias(const Tensor& x);
  // `encoded` is what the encoder made, which a decoder's block reads.
  Tensor run(const Tensor& x, const Tensor& bias, const Tensor& encoded);

 private:
  bool decodes_;
  Group self_, cross_, mlp_;
  T5Attention self_attention_, cross_attention_;
  T5Mlp dense_;
  RmsNorm self_norm_, cross_norm_, mlp_norm_;
  Dropout drop_;
};

class T5Stack : public Module {
 public:
  T5Stack(const T5Config& config, bool decodes);
  Tensor run(const Tensor& embedded, const Tensor& encoded);

 private:
  std::vector<std::unique_ptr<T5Block>> blocks_;
  RmsNorm final_layer_norm_;
  Dropout drop_, last_drop_;
};

class T5 : public Module {
 public:
  explicit T5(const T5Config& config);
  // tokens i32[b,s] and decoder_tokens i32[b,t] -> the logits of each next token, [b,t,vocabulary]
  Fields forward_batch(const Fields& batch) override;
  const T5Config& config() const { return config_; }  // decoder_layers, head_size and hidden as they follow

 private:
  const T5Config config_;
  Embedding shared_;
  T5Stack encoder_, decoder_;
  Linear lm_head_;
};

}  // namespace trireme::nn
