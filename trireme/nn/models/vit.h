// ViT (Dosovitskiy et al., "An image is worth 16x16 words", 2020): an image is cut into patches, each of which is a
// position of pre-norm blocks of attention and a GELU MLP; a position of its own, before them, gives the class.
// Parameter names are Hugging Face's ViTForImageClassification's
// ("vit.encoder.layer.0.attention.attention.query.weight" [out,in]); the patches' convolution is stored [out,kh,kw,in].
#pragma once

#include <memory>
#include <vector>

#include "trireme/nn/layers.h"

namespace trireme::nn {

struct VitConfig {
  int64_t height = 224, width_of_image = 224;  // pixels, multiples of the patch
  int64_t channels = 3;
  int64_t patch = 16;  // pixels along each side
  int64_t layers = 12;
  int64_t width = 768;
  int64_t heads = 12;
  int64_t hidden = 0;  // of the MLP; 0: four times the width
  int64_t classes = 1000;
  double dropout = 0;
};

class VitBlock : public Module {
 public:
  VitBlock(const VitConfig& config, std::string name);
  Tensor forward(const Tensor& x) override;  // [b,s,width]

 private:
  Tensor attend(const Tensor& x);

  int64_t width_, heads_;
  LayerNorm layernorm_before_, layernorm_after_;
  Group attention_, self_, self_output_, intermediate_, output_;
  Linear query_, key_, value_, attention_dense_, intermediate_dense_, output_dense_;
  Dropout attention_drop_, output_drop_;
};

// Images f32[b,height,width,channels] -> logits [b,classes].
class Vit : public Module {
 public:
  explicit Vit(const VitConfig& config);
  Tensor forward(const Tensor& images) override;
  const VitConfig& config() const { return config_; }

 private:
  class Embeddings;

  const VitConfig config_;
  Group vit_, encoder_;
  std::unique_ptr<Module> embeddings_;
  std::vector<std::unique_ptr<VitBlock>> blocks_;
  LayerNorm layernorm_;
  Linear classifier_;
};

}  // namespace trireme::nn
