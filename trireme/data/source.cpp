#include "trireme/data/source.h"

#include <cmath>

#include "trireme/base/error.h"
#include "trireme/data/permutation.h"

namespace trireme::data {
namespace {

// Samples first..first + count - 1 of a source, or of a permutation of it.
class Part final : public Source {
 public:
  Part(SourcePtr whole, int64_t first, int64_t count, std::shared_ptr<const Permutation> order)
      : whole_(std::move(whole)), first_(first), count_(count), order_(std::move(order)) {}

  std::vector<FieldSpec> fields() const override { return whole_->fields(); }
  int64_t size() const override { return count_; }
  int64_t overlap() const override { return whole_->overlap(); }
  void read(int64_t sample, std::span<const View> out) const override {
    require(sample >= 0 && sample < count_, "sample {} of a source of {}", sample, count_);
    whole_->read(order_ ? (*order_)(first_ + sample) : first_ + sample, out);
  }

 private:
  SourcePtr whole_;
  int64_t first_;
  int64_t count_;
  std::shared_ptr<const Permutation> order_;
};

}  // namespace

SourcePtr slice(SourcePtr source, int64_t first, int64_t count) {
  require(first >= 0 && count >= 0 && first <= source->size() - count,
          "samples [{}, {}) of a source of {}", first, first + count, source->size());
  return std::make_shared<Part>(std::move(source), first, count, nullptr);
}

Split split(const SourcePtr& source, int64_t validation_samples, uint64_t seed) {
  const int64_t size = source->size();
  const int64_t border = validation_samples > 0 ? source->overlap() : 0;
  require(validation_samples >= 0 && validation_samples + border < size,
          "cannot hold out {} of {} samples ({} more lie on the border); hold out at most {}",
          validation_samples, size, border, std::max<int64_t>(size - border - 1, 0));
  std::shared_ptr<const Permutation> order;
  if (source->overlap() == 0) order = std::make_shared<Permutation>(size, seed, 0);
  const int64_t train = size - validation_samples - border;
  return {std::make_shared<Part>(source, 0, train, order),
          std::make_shared<Part>(source, train + border, validation_samples, order)};
}

Split split_fraction(const SourcePtr& source, double validation_fraction, uint64_t seed) {
  require(validation_fraction >= 0 && validation_fraction < 1,
          "validation fraction {}; it must be at least 0 and below 1", validation_fraction);
  const double count = std::round(validation_fraction * static_cast<double>(source->size()));
  return split(source, static_cast<int64_t>(count), seed);
}

std::vector<int32_t> encode(std::string_view text) {
  std::vector<int32_t> out;
  out.reserve(text.size());
  for (const char c : text) out.push_back(static_cast<unsigned char>(c));
  return out;
}

std::string decode(std::span<const int32_t> tokens) {
  std::string out;
  out.reserve(tokens.size());
  for (const int32_t token : tokens) {
    require(token >= 0 && token < kByteVocabulary, "token {} is not a byte; bytes are 0 to 255",
            token);
    out.push_back(static_cast<char>(token));
  }
  return out;
}

}  // namespace trireme::data
