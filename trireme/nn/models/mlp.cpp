#include "trireme/nn/models/mlp.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/nn/model_spec.h"

namespace trireme::nn {
namespace {

Tensor flatten(const Tensor& x) {
  return x.rank() == 2 ? x : reshape(x, std::vector<int64_t>{x.size(0), -1});
}

}  // namespace

Mlp::Mlp(const std::vector<int64_t>& sizes, std::string name) : Module(std::move(name)) {
  require(sizes.size() >= 2, "mlp: {} sizes are given; it needs at least an input and an output size", sizes.size());
  for (const int64_t size : sizes) check_sizes("mlp", static_cast<int64_t>(sizes.size()), {{"layer's size", size}});
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    layers_.push_back(
        std::make_unique<Linear>(sizes[i], sizes[i + 1], LinearOptions{.name = fmt::format("layers.{}", i)}));
  }
}

Tensor Mlp::forward(const Tensor& x) {
  Tensor h = flatten(x);
  for (size_t i = 0; i < layers_.size(); ++i) {
    h = (*layers_[i])(h);
    if (i + 1 < layers_.size()) h = relu(h);
  }
  return h;
}

LeNet::LeNet(int64_t classes)
    : conv1_(1, 6, 5, {.name = "conv1", .padding = 2}),
      conv2_(6, 16, 5, {.name = "conv2"}),
      fc1_(16 * 5 * 5, 120, {.name = "fc1"}),
      fc2_(120, 84, {.name = "fc2"}),
      fc3_(84, classes, {.name = "fc3"}) {}

Tensor LeNet::forward(const Tensor& x) {
  require(x.rank() == 4 && x.size(1) == 28 && x.size(2) == 28 && x.size(3) == 1,
          "lenet: images are {}; they must be [batch,28,28,1]", to_string(x.type()));
  const PoolOptions halve{.kernel = {2, 2}, .stride = {2, 2}};
  Tensor h = max_pool2d(relu(conv1_(x)), halve);
  h = max_pool2d(relu(conv2_(h)), halve);
  h = relu(fc1_(flatten(h)));
  return fc3_(relu(fc2_(h)));
}

std::vector<Cut> mlp_cuts(const std::string& scope, size_t layers) {
  std::vector<Cut> rules;
  for (size_t i = 0; i + 1 < layers; i += 2) {
    rules.push_back({fmt::format("{}{}", scope, i), "[dp, -], [tp, -]"});
    rules.push_back({fmt::format("{}{}", scope, i + 1), "[dp, tp], [-, tp]"});
  }
  return rules;
}

std::vector<FieldNeed> needs_of_classifier(FieldNeed input, int64_t classes) {
  return {std::move(input), {"label", DType::kI32, {}, classes}};
}

namespace {

class MlpSpec final : public ModelSpecOf<MlpSpec> {
 public:
  std::string_view kind() const override { return "mlp"; }
  std::string_view doc() const override { return "layers with ReLU between them, on numbers of any shape"; }
  Task task() const override { return Task::kClasses; }

  std::vector<Key> keys() override {
    return {{"hidden", &hidden_, "sizes of the hidden layers", check_size},
            {"classes", &classes_, "number of classes", check_size}};
  }
  std::vector<FieldNeed> needs() const override {
    return needs_of_classifier({.name = "image", .sizes = {0, 0, 0}, .any_shape = true}, classes_);
  }
  std::unique_ptr<Module> make(std::span<const FieldSpec> fields) const override {
    std::vector<int64_t> sizes{fields[0].sample.shape.elements()};
    sizes.insert(sizes.end(), hidden_.begin(), hidden_.end());
    sizes.push_back(classes_);
    return std::make_unique<Mlp>(sizes);
  }
  double least_parameters(std::span<const FieldSpec> fields) const override {
    auto in = static_cast<double>(fields[0].sample.shape.elements());
    double out = 0;
    for (const int64_t size : hidden_) {
      out += in * static_cast<double>(size);
      in = static_cast<double>(size);
    }
    return out + in * static_cast<double>(classes_);
  }

  Cuttable cuttable() const override { return {.weights = true}; }
  std::vector<Cut> cuts(const CutRequest&) const override { return mlp_cuts("layers.", hidden_.size() + 1); }

  std::string describe() const override {
    return fmt::format("mlp, hidden layers of {}", joined_text(hidden_, " and "));
  }

 private:
  std::vector<int64_t> hidden_ = {512, 512};
  int64_t classes_ = 10;
};

class LeNetSpec final : public ModelSpecOf<LeNetSpec> {
 public:
  std::string_view kind() const override { return "lenet"; }
  std::string_view doc() const override { return "LeNet-5, on images of 28 x 28 with one channel"; }
  Task task() const override { return Task::kClasses; }

  std::vector<Key> keys() override { return {{"classes", &classes_, "number of classes", check_size}}; }
  std::vector<FieldNeed> needs() const override {
    return needs_of_classifier({.name = "image", .sizes = {28, 28, 1}}, classes_);
  }
  std::unique_ptr<Module> make(std::span<const FieldSpec>) const override { return std::make_unique<LeNet>(classes_); }
  double least_parameters(std::span<const FieldSpec>) const override { return 16 * 5 * 5 * 120; }
  std::string describe() const override { return "lenet"; }

 private:
  int64_t classes_ = 10;
};

}  // namespace

std::unique_ptr<ModelSpec> mlp_spec() {
  return std::make_unique<MlpSpec>();
}
std::unique_ptr<ModelSpec> lenet_spec() {
  return std::make_unique<LeNetSpec>();
}

}  // namespace trireme::nn
