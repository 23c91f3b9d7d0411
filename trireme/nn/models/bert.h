// BERT (Devlin et al., 2018): post-norm blocks of attention over all positions and a GELU MLP. Parameter names and
// shapes are Hugging Face's ("bert.encoder.layer.0.attention.self.query.weight" [out,in]).
//   Bert            BertForMaskedLM: tokens that are hidden are told from those around them; the head's weight is the
//                   embedding's table, and all positions of a sample are tokens of one segment
//   BertClassifier  BertForSequenceClassification: the class of two texts, of any length up to the context
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

// A post-norm block. `bias`, of the scores of attention, broadcasts to [b,h,s,s]; a null tensor: none.
class BertBlock : public Module {
 public:
  BertBlock(const BertConfig& config, std::string name);
  Tensor run(const Tensor& x, const Tensor& bias);  // [b,s,width]

 private:
  Tensor attend(const Tensor& x, const Tensor& bias);

  int64_t width_, heads_;
  Group attention_, self_, self_output_, intermediate_, output_;
  Linear query_, key_, value_, attention_dense_, intermediate_dense_, output_dense_;
  LayerNorm attention_norm_, output_norm_;
  Dropout attention_drop_, output_drop_;
};

// What both models have: embeddings and blocks, in the scope "bert".
class BertBody : public Module {
 public:
  explicit BertBody(const BertConfig& config);
  // i32[b,s] -> [b,s,width]. `segments` i32[b,s] are 0 or 1; a null tensor: all 0.
  Tensor run(const Tensor& tokens, const Tensor& segments, const Tensor& bias);
  Tensor pool(const Tensor& x);  // [b,s,width] -> [b,width], of the first position
  Tensor table() const { return word_embeddings_.weight(); }

 private:
  Tensor embed(const Tensor& tokens, const Tensor& segments);

  int64_t context_;
  Group embeddings_, encoder_, pooler_;
  Embedding word_embeddings_, position_embeddings_, token_type_embeddings_;
  LayerNorm embeddings_norm_;
  Dropout drop_;
  std::vector<std::unique_ptr<BertBlock>> blocks_;
  Linear pooler_dense_;
};

// The masked language model.
class Bert : public Module {
 public:
  explicit Bert(const BertConfig& config);
  Tensor forward(const Tensor& tokens) override;  // i32[b,s] -> [b,s,vocabulary]
  const BertConfig& config() const { return config_; }

 private:
  Tensor predict(const Tensor& x);

  const BertConfig config_;
  BertBody body_;
  Group cls_, transform_;
  std::unique_ptr<Module> bias_;
  Linear transform_dense_;
  LayerNorm transform_norm_;
};

// The class of a pair of texts, from the first position.
class BertClassifier : public Module {
 public:
  BertClassifier(const BertConfig& config, int64_t classes);
  // tokens, segments and mask i32[b,s] (1 where there is a token, 0 where nothing is) -> [b,classes]
  Fields forward_batch(const Fields& batch) override;

 private:
  BertBody body_;
  Dropout drop_;
  Linear classifier_;
};

}  // namespace trireme::nn
