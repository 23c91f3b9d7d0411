// Text of which spans are missing, for models that write what is missing (Raffel et al., 2020, section 3.1.4).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/base/joined_text.h"
#include "trireme/base/rng.h"
#include "trireme/data/data_spec.h"

namespace trireme::data {
namespace {

constexpr int32_t kStart = kByteVocabulary;  // before what the decoder writes
constexpr int32_t kEnd = kStart + 1;         // after the last token, on both sides
constexpr int32_t kFirstSpan = kEnd + 1;     // stands for the first missing span; the next for the second, and so on

// How many tokens and spans of a sample are missing: at least one of each, and one token before each span.
struct Missing {
  int64_t tokens, spans;
};

Missing missing_of(int64_t seq, const SpanOptions& options) {
  const auto tokens = std::clamp<int64_t>(std::llround(static_cast<double>(seq) * options.share), 1, seq - 1);
  const auto spans = std::llround(static_cast<double>(tokens) / options.mean_span);
  return {tokens, std::clamp<int64_t>(spans, 1, std::min(tokens, seq - tokens))};
}

std::vector<FieldSpec> fields_of_spans(int64_t seq, const Missing& missing) {
  const TensorType shown{DType::kI32, {seq - missing.tokens + missing.spans + 1}};
  const TensorType told{DType::kI32, {missing.tokens + missing.spans + 1}};
  return {{"tokens", shown}, {"decoder_tokens", told}, {"targets", told}};
}

class CorruptedText final : public Source {
 public:
  CorruptedText(SourcePtr text, const SpanOptions& options)
      : text_(std::move(text)),
        options_(options),
        seq_(text_->fields()[0].sample.shape[0]),
        missing_(missing_of(seq_, options)) {}

  int64_t size() const override { return text_->size(); }
  int64_t overlap() const override { return text_->overlap(); }
  std::vector<FieldSpec> fields() const override { return fields_of_spans(seq_, missing_); }

  void read(int64_t sample, std::span<const View> out) const override {
    require(out.size() == 3, "{} views for the 3 fields of a text with missing spans", out.size());
    std::vector<int32_t> whole(static_cast<size_t>(seq_));
    const FieldPart parts[] = {{{0}, View{std::as_writable_bytes(std::span(whole)).data(), {DType::kI32, {seq_}}}}, {}};
    text_->read_parts(sample, parts);

    std::vector<int32_t> shown, told{kStart};
    auto next = whole.begin();
    const std::vector<int64_t> kept = lengths(seq_ - missing_.tokens, sample, 0);
    const std::vector<int64_t> gone = lengths(missing_.tokens, sample, 1);
    for (size_t span = 0; span < kept.size(); ++span) {
      const auto stands_for = kFirstSpan + static_cast<int32_t>(span);
      shown.insert(shown.end(), next, next + kept[span]);
      next += kept[span];
      shown.push_back(stands_for);
      told.push_back(stands_for);
      told.insert(told.end(), next, next + gone[span]);
      next += gone[span];
    }
    shown.push_back(kEnd);
    told.push_back(kEnd);
    const auto put = [&](const View& view, std::span<const int32_t> from) {
      if (view.data != nullptr) std::ranges::copy(from, view.as<int32_t>().begin());
    };
    put(out[0], shown);
    put(out[1], std::span(told).first(told.size() - 1));
    put(out[2], std::span(told).subspan(1));
  }

 private:
  // As many as there are spans, 1 or more each, that add up to `total`: every such division is as likely.
  std::vector<int64_t> lengths(int64_t total, int64_t sample, uint64_t stream) const {
    std::vector<int64_t> out;
    int64_t left = missing_.spans - 1, begin = 0;  // borders that are still to be drawn, between two tokens each
    for (int64_t at = 1; at < total; ++at) {
      const auto places = static_cast<double>(total - at);
      const float drawn = uniform01({options_.seed, stream}, static_cast<uint64_t>(at), static_cast<uint64_t>(sample));
      if (static_cast<double>(drawn) * places >= static_cast<double>(left)) continue;
      out.push_back(at - begin);
      begin = at;
      --left;
    }
    out.push_back(total - begin);
    return out;
  }

  SourcePtr text_;
  SpanOptions options_;
  int64_t seq_;
  Missing missing_;
};

void check_spans(int64_t seq, const SpanOptions& options) {
  require(seq >= 2, "text with missing spans: {} tokens in a sample; it takes 2 or more", seq);
  require(options.share > 0 && options.share < 1 && options.mean_span >= 1,
          "text with missing spans: the share {} must be above 0 and below 1, and the mean span {} 1 or more",
          options.share, options.mean_span);
}

}  // namespace

SourcePtr corrupted_text(SourcePtr text, const SpanOptions& options) {
  check_spans(text->fields()[0].sample.shape[0], options);
  return std::make_shared<CorruptedText>(std::move(text), options);
}

namespace {

class CorruptedTextSpec final : public DataSpecOf<CorruptedTextSpec> {
 public:
  std::string_view kind() const override { return "corrupted_text"; }
  std::string_view doc() const override {
    return "bytes of text files as tokens, of which spans are missing, to be predicted";
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
            {.name = "missing",
             .target = &spans_.share,
             .doc = "share of the tokens that are missing",
             .check =
                 [](const std::string& name, const KeyTarget& target) {
                   const double share = *std::get<double*>(target);
                   require(share > 0 && share < 1, "{} = {}; it must be above 0 and below 1", name, share);
                 },
             .on_resume = OnResume::kRefused},
            {.name = "mean_span",
             .target = &spans_.mean_span,
             .doc = "mean length of a missing span, in tokens",
             .check =
                 [](const std::string& name, const KeyTarget& target) {
                   const double mean = *std::get<double*>(target);
                   require(mean >= 1, "{} = {}; it must be 1 or more", name, mean);
                 },
             .on_resume = OnResume::kRefused}};
  }
  void check(std::span<const FieldNeed> needs) const override {
    check_spans(options_.seq, spans_);
    const int64_t spans = missing_of(options_.seq, spans_).spans;
    require(needs.empty() || needs[0].below == 0 || needs[0].below >= kFirstSpan + spans,
            "configuration: model.vocabulary = {}; text with missing spans needs {}: 256 bytes, start and end, and one "
            "for each of {} spans",
            needs.empty() ? 0 : needs[0].below, kFirstSpan + spans, spans);
    require(!paths_.empty(), "configuration: data.paths is empty; name the files or folders with the text");
  }

  std::vector<FieldSpec> fields(std::span<const FieldNeed>) const override {
    return fields_of_spans(options_.seq, missing_of(options_.seq, spans_));
  }
  SourcePtr open(std::span<const FieldNeed>) const override {
    for (const std::string& path : paths_) require_path("data.paths", path);
    return corrupted_text(text(paths_, options_), spans_);
  }
  std::string reads() const override { return "data.paths"; }

  std::string describe() const override {
    return fmt::format("text of {}, {} bytes a sample, {} of them missing", joined_text(paths_, " "), options_.seq,
                       missing_of(options_.seq, spans_).tokens);
  }

 private:
  std::vector<std::string> paths_;
  TextOptions options_{.seq = 256};
  SpanOptions spans_;
};

}  // namespace

std::unique_ptr<DataSpec> corrupted_text_spec() {
  return std::make_unique<CorruptedTextSpec>();
}

}  // namespace trireme::data
