// Text of which some tokens are hidden, for masked language models.
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/base/rng.h"
#include "trireme/data/data_spec.h"

namespace trireme::data {
namespace {

constexpr int32_t kHidden = kByteVocabulary;  // the token that stands for one
constexpr int32_t kNotCounted = -100;         // the target of a token that is not to be told (ops/loss)
// What an id means in the streams below.
constexpr uint64_t kWhich = 1;
constexpr uint64_t kHow = 2;
constexpr uint64_t kAlways = 3;

class MaskedText final : public Source {
 public:
  MaskedText(SourcePtr text, const MaskOptions& options) : text_(std::move(text)), options_(options) {}

  int64_t size() const override { return text_->size(); }
  int64_t overlap() const override { return text_->overlap(); }
  std::vector<FieldSpec> fields() const override { return text_->fields(); }

  void read(int64_t sample, std::span<const View> out) const override {
    require(out.size() == 2, "{} views for the 2 fields of a text", out.size());
    const FieldPart parts[] = {{{0}, out[0]}, {{0}, out[1]}};
    read_parts(sample, parts);
  }

  void read_parts(int64_t sample, std::span<const FieldPart> parts) const override {
    require(parts.size() == 2, "{} parts for the 2 fields of a text", parts.size());
    for (size_t field = 0; field < 2; ++field) {
      if (parts[field].to.data == nullptr) continue;
      const FieldPart own[] = {parts[field], {}};  // the tokens themselves, of both fields
      text_->read_parts(sample, own);
      int64_t position = parts[field].start[0];
      for (int32_t& token : parts[field].to.as<int32_t>()) {
        const bool is_told = is_to_be_told(sample, position);
        token = field == 1 ? (is_told ? token : kNotCounted) : (is_told ? shown(token, sample, position) : token);
        ++position;
      }
    }
  }

 private:
  // One token of every sample at least.
  bool is_to_be_told(int64_t sample, int64_t position) const {
    const auto step = static_cast<uint64_t>(sample);
    const auto seq = static_cast<uint64_t>(text_->fields()[0].sample.shape[0]);
    const bool always = random_bits({options_.seed, kAlways}, 0, step) % seq == static_cast<uint64_t>(position);
    return always || static_cast<double>(uniform01({options_.seed, kWhich}, static_cast<uint64_t>(position), step)) <
                         options_.share;
  }

  // Eight of ten hidden, one another token, one as it is.
  int32_t shown(int32_t token, int64_t sample, int64_t position) const {
    const uint32_t bits =
        random_bits({options_.seed, kHow}, static_cast<uint64_t>(position), static_cast<uint64_t>(sample));
    const uint32_t of_ten = bits % 10;
    if (of_ten < 8) return kHidden;
    return of_ten == 8 ? static_cast<int32_t>(bits / 10 % kByteVocabulary) : token;
  }

  SourcePtr text_;
  MaskOptions options_;
};

}  // namespace

SourcePtr masked_text(SourcePtr text, const MaskOptions& options) {
  require(options.share > 0 && options.share <= 1, "masked text: the share {} must be above 0 and at most 1",
          options.share);
  return std::make_shared<MaskedText>(std::move(text), options);
}

namespace {

class MaskedTextSpec final : public DataSpecOf<MaskedTextSpec> {
 public:
  std::string_view kind() const override { return "masked_text"; }
  std::string_view doc() const override {
    return "bytes of text files as tokens, some of which are masked, to be predicted";
  }

  std::vector<Key> keys() override {
    return {{"paths", &paths_, "files and folders"},
            {"extensions", &options_.extensions,
             "extensions of the files to take from folders, like \".txt\"; an empty list takes all"},
            {.name = "seq",
             .target = &options_.seq,
             .doc = "tokens in a sample",
             .check = check_size,
             .on_resume = OnResume::kRefused},
            {.name = "mask",
             .target = &mask_.share,
             .doc = "share of the tokens that are to be predicted: of ten of them eight are masked, one is replaced by "
                    "another, one is left; the same ones in every epoch",
             .check =
                 [](const std::string& name, const KeyTarget& target) {
                   const double share = *std::get<double*>(target);
                   require(share > 0 && share <= 1, "{} = {}; it must be above 0 and at most 1", name, share);
                 },
             .on_resume = OnResume::kTold}};
  }
  void check(std::span<const FieldNeed> needs) const override {
    require(needs.empty() || needs[0].below == 0 || needs[0].below > kHidden,
            "configuration: model.vocabulary = {}; masked text needs {}: 256 bytes and the mask token",
            needs.empty() ? 0 : needs[0].below, kHidden + 1);
    require(!paths_.empty(), "configuration: data.paths is empty; name the files or folders with the text");
  }

  std::vector<FieldSpec> fields(std::span<const FieldNeed>) const override {
    const TensorType type{DType::kI32, {options_.seq}};
    return {{"tokens", type}, {"targets", type}};
  }
  SourcePtr open(std::span<const FieldNeed>) const override {
    for (const std::string& path : paths_) require_path("data.paths", path);
    return masked_text(text(paths_, options_), mask_);
  }
  std::optional<bool> hides_tokens() const override { return true; }
  std::string reads() const override { return "data.paths"; }

  std::string describe() const override {
    return fmt::format("text of {}, {} bytes a sample, {} of them hidden", joined_text(paths_, " "), options_.seq,
                       mask_.share);
  }

 private:
  std::vector<std::string> paths_;
  TextOptions options_{.seq = 256};
  MaskOptions mask_;
};

}  // namespace

std::unique_ptr<DataSpec> masked_text_spec() {
  return std::make_unique<MaskedTextSpec>();
}

}  // namespace trireme::data
