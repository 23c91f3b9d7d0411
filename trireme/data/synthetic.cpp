#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/data/source.h"

namespace trireme::data {
namespace {

// What an id means in the streams below, so that no two uses draw the same numbers.
constexpr uint64_t kTokens = 1;
constexpr uint64_t kPatterns = 2;
constexpr uint64_t kNoise = 3;
constexpr uint64_t kLabels = 4;

class SyntheticTokenSource final : public Source {
 public:
  explicit SyntheticTokenSource(const SyntheticTokens& options) : options_(options) {}

  int64_t size() const override { return options_.samples; }
  std::vector<FieldSpec> fields() const override {
    const TensorType type{DType::kI32, {options_.seq}};
    return {{"tokens", type}, {"targets", type}};
  }

  void read(int64_t sample, std::span<const View> out) const override {
    require(sample >= 0 && sample < size(), "sample {} of {} synthetic ones", sample, size());
    require(out.size() == 2, "{} views for the 2 fields of a text", out.size());
    std::vector<uint32_t> bits(static_cast<size_t>(options_.seq) + 1);
    fill_random_bits({options_.seed, kTokens}, 0, static_cast<uint64_t>(sample), bits);
    const auto vocabulary = static_cast<uint64_t>(options_.vocabulary);
    uint64_t token = 0;
    for (size_t i = 0; i < bits.size(); ++i) {
      const bool is_drawn = i == 0 || bits[i] % 4 == 0;
      token = (is_drawn ? bits[i] / 4 : 5 * token + 3) % vocabulary;
      if (i + 1 < bits.size() && out[0].data != nullptr) {
        out[0].as<int32_t>()[i] = static_cast<int32_t>(token);
      }
      if (i > 0 && out[1].data != nullptr) out[1].as<int32_t>()[i - 1] = static_cast<int32_t>(token);
    }
  }

 private:
  SyntheticTokens options_;
};

class SyntheticImageSource final : public Source {
 public:
  explicit SyntheticImageSource(const SyntheticImages& options)
      : options_(options), patterns_(static_cast<size_t>(options.classes * options.image.elements())) {
    fill_normal({options.seed, kPatterns}, 0, 0, patterns_);
  }

  int64_t size() const override { return options_.samples; }
  std::vector<FieldSpec> fields() const override {
    return {{"image", {DType::kF32, options_.image}}, {"label", {DType::kI32, {}}}};
  }

  void read(int64_t sample, std::span<const View> out) const override {
    require(sample >= 0 && sample < size(), "sample {} of {} synthetic ones", sample, size());
    require(out.size() == 2, "{} views for the 2 fields of an image", out.size());
    const auto number = static_cast<uint64_t>(sample);
    const auto label = random_bits({options_.seed, kLabels}, number, 0) % static_cast<uint64_t>(options_.classes);
    if (out[0].data != nullptr) {
      const auto to = out[0].as<float>();
      fill_normal({options_.seed, kNoise}, 0, number, to);
      const float* pattern = patterns_.data() + label * to.size();
      for (size_t i = 0; i < to.size(); ++i) to[i] += pattern[i];
    }
    if (out[1].data != nullptr) out[1].as<int32_t>()[0] = static_cast<int32_t>(label);
  }

 private:
  SyntheticImages options_;
  std::vector<float> patterns_;
};

}  // namespace

SourcePtr synthetic_tokens(const SyntheticTokens& options) {
  require(options.samples > 0 && options.seq > 0 && options.vocabulary > 0,
          "synthetic tokens: {} samples of {} tokens from a vocabulary of {}; all must be positive", options.samples,
          options.seq, options.vocabulary);
  return std::make_shared<SyntheticTokenSource>(options);
}

SourcePtr synthetic_images(const SyntheticImages& options) {
  require(options.samples > 0 && options.classes > 0 && options.image.elements() > 0,
          "synthetic images: {} samples of shape {} in {} classes; all must be positive", options.samples,
          to_string(options.image), options.classes);
  return std::make_shared<SyntheticImageSource>(options);
}

}  // namespace trireme::data
