// Made-up samples, functions of a seed and their number: the sources (source.h) and their spec for jobs.
#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/base/rng.h"
#include "trireme/data/data_spec.h"

namespace trireme::data {
namespace {

// What an id means in the streams below, so that no two uses draw the same numbers.
constexpr uint64_t kTokens = 1;
constexpr uint64_t kPatterns = 2;
constexpr uint64_t kNoise = 3;
constexpr uint64_t kLabels = 4;
constexpr uint64_t kIds = 5;

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

class SyntheticFieldSource final : public Source {
 public:
  explicit SyntheticFieldSource(SyntheticFields options) : options_(std::move(options)) {
    const FieldNeed& last = options_.fields.back();
    const bool by_class = last.dtype == DType::kI32 && last.sizes.rank() == 0 && options_.fields.size() > 1;
    classes_ = by_class ? last.below : 1;
  }

  int64_t size() const override { return options_.samples; }
  std::vector<FieldSpec> fields() const override {
    std::vector<FieldSpec> out;
    for (const FieldNeed& field : options_.fields) out.push_back({field.name, {field.dtype, field.sizes}});
    return out;
  }

  void read(int64_t sample, std::span<const View> out) const override {
    require(sample >= 0 && sample < size(), "sample {} of {} synthetic ones", sample, size());
    const size_t count = options_.fields.size();
    require(out.size() == count, "{} views for {} synthetic fields", out.size(), count);
    const auto number = static_cast<uint64_t>(sample);
    const uint64_t kind = random_bits({options_.seed, kLabels}, number, 0) % static_cast<uint64_t>(classes_);
    for (size_t i = 0; i < count; ++i) {
      if (out[i].data == nullptr) continue;
      const bool is_label = classes_ > 1 && i + 1 == count;
      if (is_label) {
        out[i].as<int32_t>()[0] = static_cast<int32_t>(kind);
      } else if (options_.fields[i].dtype == DType::kF32) {
        fill_numbers(number, kind, i, out[i].as<float>());
      } else {
        fill_ids(number, kind, i, out[i].as<int32_t>());
      }
    }
  }

 private:
  // Streams of their own for each field: ids of streams are told apart by the seed.
  Stream stream_of(uint64_t what, size_t field) const {
    return {options_.seed + 0x9E3779B97F4A7C15ULL * (field + 1), what};
  }

  void fill_numbers(uint64_t number, uint64_t kind, size_t field, std::span<float> to) const {
    std::vector<float> pattern(to.size());
    fill_normal(stream_of(kPatterns, field), 0, kind, pattern);
    fill_normal(stream_of(kNoise, field), 0, number, to);
    for (size_t i = 0; i < to.size(); ++i) to[i] += pattern[i];
  }

  void fill_ids(uint64_t number, uint64_t kind, size_t field, std::span<int32_t> to) const {
    const auto below = static_cast<uint64_t>(options_.fields[field].below);
    for (size_t i = 0; i < to.size(); ++i) {
      const uint64_t drawn = random_bits(stream_of(kIds, field), i, number);
      const uint64_t usual = random_bits(stream_of(kPatterns, field), i, kind);
      to[i] = static_cast<int32_t>((drawn % 4 == 0 ? drawn / 4 : usual) % below);
    }
  }

  SyntheticFields options_;
  int64_t classes_ = 1;  // 1: fields have nothing to do with one another
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

SourcePtr synthetic_fields(const SyntheticFields& options) {
  require(options.samples > 0, "synthetic fields: {} samples; it must be positive", options.samples);
  require(!options.fields.empty(), "synthetic fields: none is asked for");
  for (const FieldNeed& field : options.fields) {
    const bool known = field.dtype == DType::kF32 || (field.dtype == DType::kI32 && field.below > 0);
    require(known, "synthetic field '{}' is {}; numbers are f32, and i32 from 0 to below a bound", field.name,
            to_string(field.dtype));
    require(field.sizes.elements() > 0, "synthetic field '{}' has the shape {}; all sizes must be positive", field.name,
            to_string(field.sizes));
  }
  return std::make_shared<SyntheticFieldSource>(options);
}

namespace {

// A row of tokens of any length, to be told apart from what has a shape.
bool is_row(const FieldNeed& need) {
  return need.sizes == Shape{0};
}
bool is_image(const FieldNeed& need) {
  return need.sizes == Shape{0, 0, 0};
}

class SyntheticSpec final : public DataSpecOf<SyntheticSpec> {
 public:
  std::string_view kind() const override { return "synthetic"; }
  std::string_view doc() const override { return "made up for the model, and easy to learn"; }

  std::vector<Key> keys() override {
    return {{"samples", &samples_, "number of samples", check_size},
            {.name = "seq",
             .target = &seq_,
             .doc = "for models that take rows of any length: tokens in a sample, or numbers in a row",
             .check = check_size,
             .on_resume = OnResume::kRefused},
            {.name = "image",
             .target = &image_,
             .doc = "for models that take images of any size: height, width and channels",
             .check = check_size,
             .on_resume = OnResume::kRefused}};
  }
  void check(std::span<const FieldNeed>) const override { image_shape(image_); }
  std::vector<KeyWithoutEffect> without_effect(std::string_view model,
                                               std::span<const FieldNeed> needs) const override {
    std::vector<KeyWithoutEffect> out;
    const std::string reason = fmt::format("model.kind = '{}'", model);
    if (std::ranges::none_of(needs, is_row)) out.push_back({"seq", reason});
    if (std::ranges::none_of(needs, is_image)) out.push_back({"image", reason});
    return out;
  }

  std::vector<FieldSpec> fields(std::span<const FieldNeed> needs) const override {
    std::vector<FieldSpec> out;
    for (const FieldNeed& need : settled(needs)) out.push_back({need.name, {need.dtype, need.sizes}});
    return out;
  }
  SourcePtr open(std::span<const FieldNeed> needs) const override {
    std::vector<FieldNeed> all = settled(needs);
    const auto are = [&](std::string_view first, std::string_view second) {
      return needs.size() == 2 && needs[0].name == first && needs[1].name == second && needs[1].dtype == DType::kI32;
    };
    if (are("tokens", "targets") && is_row(needs[0]) && is_row(needs[1]) && needs[0].dtype == DType::kI32) {
      return synthetic_tokens({.samples = samples_, .seq = seq_, .vocabulary = needs[0].below});
    }
    if (are("image", "label") && needs[0].dtype == DType::kF32 && all[0].sizes.rank() == 3 &&
        all[1].sizes.rank() == 0) {
      return synthetic_images({.samples = samples_, .image = all[0].sizes, .classes = needs[1].below});
    }
    return synthetic_fields({.samples = samples_, .fields = std::move(all)});
  }

  std::optional<bool> hides_tokens() const override { return std::nullopt; }
  std::string describe() const override { return fmt::format("synthetic, {} samples", samples_); }

 private:
  // With sizes where the model takes any.
  std::vector<FieldNeed> settled(std::span<const FieldNeed> needs) const {
    std::vector<FieldNeed> out(needs.begin(), needs.end());
    for (FieldNeed& need : out) {
      if (is_image(need)) need.sizes = image_shape(image_);
      for (int dim = 0; dim < need.sizes.rank(); ++dim) {
        if (need.sizes[dim] == 0) need.sizes[dim] = seq_;
      }
    }
    return out;
  }

  int64_t samples_ = 4096;
  int64_t seq_ = 256;
  std::vector<int64_t> image_ = {28, 28, 1};
};

}  // namespace

std::unique_ptr<DataSpec> synthetic_spec() {
  return std::make_unique<SyntheticSpec>();
}

}  // namespace trireme::data
