// Layers: the modules that models are made of. Names and shapes of parameters are PyTorch's unless noted. Layers with
// products take x of any floating type and return TraceOptions::compute; the others return the type they take.
#pragma once

#include "trireme/nn/module.h"
#include "trireme/ops/ops.h"

namespace trireme::nn {

// y[*,out] = x[*,in] W^T + bias, with weight [out,in]; with `in_out` the weight is stored [in,out] (GPT-2's Conv1D).
struct LinearOptions {
  std::string name = {};
  bool bias = true;
  bool in_out = false;
  double init_std = 0;  // weight normal(0, init_std) and bias zero; 0: both uniform(+-1/sqrt(in)), as PyTorch's
};

class Linear : public Module {
 public:
  Linear(int64_t in, int64_t out, LinearOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::string_view kind() const override { return "linear"; }
  Tensor weight() const;  // in the type that layers compute in

 private:
  int64_t in_, out_;
  LinearOptions options_;
};

// Several linear maps of one x: x[*,in] -> y[*,parts,out], weight [in,parts,out] and bias [parts,out]. In checkpoints
// they are one map side by side, [in, parts out] and [parts out] (GPT-2's c_attn).
class MultiLinear : public Module {
 public:
  MultiLinear(int64_t in, int64_t parts, int64_t out, std::string name, double init_std);
  Tensor forward(const Tensor& x) override;
  std::string_view kind() const override { return "multi_linear"; }

 private:
  int64_t in_, parts_, out_;
  double init_std_;
};

// rows of weight [vocabulary,width], for ids [*] -> [*,width].
struct EmbeddingOptions {
  std::string name = {};
  double init_std = 1;
};

class Embedding : public Module {
 public:
  Embedding(int64_t vocabulary, int64_t width, EmbeddingOptions options = {});
  Tensor forward(const Tensor& ids) override;
  std::string_view kind() const override { return "embedding"; }
  Tensor weight() const;  // [vocabulary,width], for a tied head

 private:
  int64_t vocabulary_, width_;
  EmbeddingOptions options_;
};

// Over the last dimension, with weight and bias [width].
class LayerNorm : public Module {
 public:
  explicit LayerNorm(int64_t width, std::string name = "", double eps = 1e-5);
  Tensor forward(const Tensor& x) override;
  std::string_view kind() const override { return "layer_norm"; }

 private:
  int64_t width_;
  double eps_;
};

// x / sqrt(mean of squares + eps) over the last dimension, times weight [width].
class RmsNorm : public Module {
 public:
  explicit RmsNorm(int64_t width, std::string name = "", double eps = 1e-6);
  Tensor forward(const Tensor& x) override;
  std::string_view kind() const override { return "rms_norm"; }

 private:
  int64_t width_;
  double eps_;
};

// A name scope and nothing else.
class Group : public Module {
 public:
  using Module::Module;
};

// Zeroes each element with probability p while training; nothing otherwise. Its mask is a function of the trace's
// seed, the module's name, the element's global index and the step.
class Dropout : public Module {
 public:
  explicit Dropout(double p, std::string name = "");
  Tensor forward(const Tensor& x) override;
  std::string_view kind() const override { return "dropout"; }

 private:
  double p_;
};

// x [b,h,w,in] -> [b,h',w',out], weight [out,kh,kw,in], bias [out].
struct Conv2dOptions {
  std::string name = {};
  int64_t stride = 1;
  int64_t padding = 0;
  bool bias = true;
  double init_std = 0;  // weight normal(0, init_std); 0: uniform, as PyTorch's
};

class Conv2d : public Module {
 public:
  Conv2d(int64_t in, int64_t out, int64_t kernel, Conv2dOptions options = {});
  Tensor forward(const Tensor& x) override;
  std::string_view kind() const override { return "conv2d"; }

 private:
  int64_t in_, out_, kernel_;
  Conv2dOptions options_;
};

// Over all positions of x[*,channels], with weight and bias [channels]. While training by the statistics of the whole
// batch, which also go into the buffers running_mean and running_var; afterwards by those.
struct BatchNormLayerOptions {
  std::string name = {};
  double eps = 1e-5;
  double momentum = 0.1;
  bool relu = false;       // of the result
  double init_weight = 1;  // of the weight's elements
};

class BatchNorm : public Module {
 public:
  explicit BatchNorm(int64_t channels, BatchNormLayerOptions options = {});
  Tensor forward(const Tensor& x) override;
  // With a residual of x's type added before relu.
  Tensor add_to(const Tensor& residual, const Tensor& x);
  std::string_view kind() const override { return "batch_norm"; }

 private:
  Tensor normalise(const Tensor& x, const Tensor& residual);

  int64_t channels_;
  BatchNormLayerOptions options_;
};

}  // namespace trireme::nn
