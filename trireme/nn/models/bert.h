// BERT (Devlin et al., 2018) with its masked language model: tokens that are hidden are told from those around them.
// Post-norm blocks of attention over all positions and a GELU MLP; the head's weight is the embedding's table.
// Parameter names and shapes are Hugging Face's BertForMaskedLM's ("bert.encoder.layer.0.attention.self.query.weight"
// [out,in]). All positions of a sample are tokens of one segment.
#pragma once

#include <memory>
#include <vector>

#include "trireme/nn/layers.h"

namespace trireme::nn {

struct BertConfig {
  int64_t vocabulary = 257;  // one of them stands for a hidden token
  int64_t context = 512;     // positions, at most
  int64_t layers = 4;
  int64_t width = 256;
  int64_t heads = 4;
  int64_t hidden = 0;  // of the MLP; 0: four times the width
  double dropout = 0;
};

class BertBlock : public Module {
 public:
  BertBlock(const BertConfig& config, std::string name);
  Tensor forward(const Tensor& x) override;  // [b,s,width]

 private:
  Tensor attend(const Tensor& x);

  int64_t width_, heads_;
  Group attention_, self_, self_output_, intermediate_, output_;
  Linear query_, key_, value_, attention_dense_, intermediate_dense_, output_dense_;
  LayerNorm attention_norm_, output_norm_;
  Dropout attention_drop_, output_drop_;
};

class Bert : public Module {
 public:
  explicit Bert(const BertConfig& config);
  Tensor forward(const Tensor& tokens) override;  // i32[b,s] -> [b,s,vocabulary]
  const BertConfig& config() const { return config_; }

 private:
  Tensor embed(const Tensor& tokens);
  Tensor predict(const Tensor& x);

  const BertConfig config_;
  Group bert_, embeddings_, encoder_, cls_, transform_;
  Embedding word_embeddings_, position_embeddings_, token_type_embeddings_;
  LayerNorm embeddings_norm_;
  Dropout drop_;
  std::vector<std::unique_ptr<BertBlock>> blocks_;
  std::unique_ptr<Module> bias_;
  Linear transform_dense_;
  LayerNorm transform_norm_;
};

}  // namespace trireme::nn
