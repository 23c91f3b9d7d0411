#include "trireme/nn/layers.h"

#include <cmath>

#include "trireme/base/error.h"

namespace trireme::nn {
namespace {

Init uniform_by(int64_t fan_in) {
  const double bound = 1 / std::sqrt(static_cast<double>(fan_in));
  return {Init::Kind::kUniform, -bound, bound};
}

Tensor in_compute_type(const Tensor& x) {
  return Trace::current().in_compute_type(x);
}

}  // namespace

Linear::Linear(int64_t in, int64_t out, LinearOptions options)
    : Module(options.name), in_(in), out_(out), options_(std::move(options)) {
  require(in > 0 && out > 0, "Linear({}, {}): sizes must be 1 or more", in, out);
}

Tensor Linear::weight() const {
  const Init init = options_.init_std > 0 ? Init{Init::Kind::kNormal, 0, options_.init_std} : uniform_by(in_);
  return operand("weight", options_.in_out ? Shape{in_, out_} : Shape{out_, in_}, init);
}

Tensor Linear::forward(const Tensor& x) {
  require(x.rank() >= 1 && x.size(-1) == in_, "Linear({}, {}) got {}; the last dimension must be {}", in_, out_,
          to_string(x.type()), in_);
  const Tensor in = in_compute_type(x);
  const Tensor y = matmul(in, weight(), false, !options_.in_out);
  if (!options_.bias) return y;
  return add(y, operand("bias", {out_}, options_.init_std > 0 ? Init{} : uniform_by(in_)));
}

MultiLinear::MultiLinear(int64_t in, int64_t parts, int64_t out, std::string name, double init_std)
    : Module(std::move(name)), in_(in), parts_(parts), out_(out), init_std_(init_std) {
  require(in > 0 && parts > 0 && out > 0, "MultiLinear({}, {}, {}): sizes must be 1 or more", in, parts, out);
}

Tensor MultiLinear::forward(const Tensor& x) {
  require(x.rank() >= 1 && x.size(-1) == in_, "MultiLinear({}, {}, {}) got {}; the last dimension must be {}", in_,
          parts_, out_, to_string(x.type()), in_);
  const Tensor in = in_compute_type(x);
  const Tensor weight =
      operand("weight", {in_, parts_, out_}, {Init::Kind::kNormal, 0, init_std_}, {in_, parts_ * out_});
  const Tensor y = multi_linear(in, weight);
  return add(y, operand("bias", {parts_, out_}, {}, {parts_ * out_}));
}

Embedding::Embedding(int64_t vocabulary, int64_t width, EmbeddingOptions options)
    : Module(options.name), vocabulary_(vocabulary), width_(width), options_(std::move(options)) {
  require(vocabulary > 0 && width > 0, "Embedding({}, {}): sizes must be 1 or more", vocabulary, width);
}

Tensor Embedding::weight() const {
  return operand_parameter("weight", {vocabulary_, width_}, {Init::Kind::kNormal, 0, options_.init_std});
}

// Rows are cast, not the table, of which a step may read few.
Tensor Embedding::forward(const Tensor& ids) {
  return in_compute_type(embedding(weight(), ids));
}

LayerNorm::LayerNorm(int64_t width, std::string name, double eps) : Module(std::move(name)), width_(width), eps_(eps) {}

Tensor LayerNorm::forward(const Tensor& x) {
  const TensorType type{DType::kF32, {width_}};
  const Tensor weight = parameter("weight", type, {Init::Kind::kConstant, 1, 0});  // in order, whatever the compiler
  const Tensor bias = parameter("bias", type, {});
  return layer_norm(x, weight, bias, eps_).y;
}

RmsNorm::RmsNorm(int64_t width, std::string name, double eps) : Module(std::move(name)), width_(width), eps_(eps) {}

Tensor RmsNorm::forward(const Tensor& x) {
  return rms_norm(x, parameter("weight", {DType::kF32, {width_}}, {Init::Kind::kConstant, 1, 0}), eps_).y;
}

Dropout::Dropout(double p, std::string name) : Module(std::move(name)), p_(p) {
  require(p >= 0 && p < 1, "Dropout({}): the probability must be in [0, 1)", p);
}

Tensor Dropout::forward(const Tensor& x) {
  Trace& trace = Trace::current();
  if (p_ == 0 || !trace.options().training) return x;
  const auto stream = static_cast<int64_t>(trace.next_stream());
  return dropout(x, trace.step(), p_, static_cast<int64_t>(trace.options().seed), stream);
}

Conv2d::Conv2d(int64_t in, int64_t out, int64_t kernel, Conv2dOptions options)
    : Module(options.name), in_(in), out_(out), kernel_(kernel), options_(std::move(options)) {}

Tensor Conv2d::forward(const Tensor& x) {
  const Init init =
      options_.init_std > 0 ? Init{Init::Kind::kNormal, 0, options_.init_std} : uniform_by(in_ * kernel_ * kernel_);
  const Tensor in = in_compute_type(x);
  const Tensor weight = operand("weight", {out_, kernel_, kernel_, in_}, init);
  const Tensor y = conv2d(
      in, weight, {.stride = {options_.stride, options_.stride}, .padding = {options_.padding, options_.padding}});
  return options_.bias ? add(y, operand("bias", {out_}, options_.init_std > 0 ? Init{} : init)) : y;
}

BatchNorm::BatchNorm(int64_t channels, BatchNormLayerOptions options)
    : Module(options.name), channels_(channels), options_(std::move(options)) {
  require(channels > 0, "BatchNorm({}): channels must be 1 or more", channels);
}

Tensor BatchNorm::forward(const Tensor& x) {
  return normalise(x, {});
}

Tensor BatchNorm::add_to(const Tensor& residual, const Tensor& x) {
  const Scope scope(*this);
  return normalise(x, residual);
}

Tensor BatchNorm::normalise(const Tensor& x, const Tensor& residual) {
  require(x.rank() >= 2 && x.size(-1) == channels_, "BatchNorm({}) got {}; the last dimension must be {}", channels_,
          to_string(x.type()), channels_);
  const TensorType type{DType::kF32, {channels_}};
  const Init one{Init::Kind::kConstant, 1, 0};
  const Tensor weight = parameter("weight", type, {Init::Kind::kConstant, options_.init_weight, 0});
  const Tensor bias = parameter("bias", type, {});
  const Tensor mean = buffer("running_mean", type, {});
  const Tensor var = buffer("running_var", type, one);
  const BatchNormOptions options{.eps = options_.eps, .relu = options_.relu, .residual = residual};
  Trace& trace = Trace::current();
  if (!trace.options().training) return batch_norm(x, weight, bias, mean, var, options);
  const BatchNormTraining out = batch_norm_training(x, weight, bias, mean, var, options_.momentum, options);
  trace.set_buffer(mean, out.running_mean);
  trace.set_buffer(var, out.running_var);
  return out.y;
}

}  // namespace trireme::nn
