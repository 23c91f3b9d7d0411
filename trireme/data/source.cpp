#include "trireme/data/source.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/data/permutation.h"
#include "trireme/tensor/host_tensor.h"

namespace trireme::data {
namespace {

struct Run {
  int64_t first = 0;
  int64_t count = 0;
};

// Some runs of samples of a source, or of a permutation of it, one after the other.
class Part final : public Source {
 public:
  Part(SourcePtr whole, std::vector<Run> runs, std::shared_ptr<const Permutation> order)
      : whole_(std::move(whole)), runs_(std::move(runs)), order_(std::move(order)) {
    for (const Run& run : runs_) ends_.push_back((ends_.empty() ? 0 : ends_.back()) + run.count);
  }

  std::vector<FieldSpec> fields() const override { return whole_->fields(); }
  int64_t size() const override { return ends_.empty() ? 0 : ends_.back(); }
  int64_t overlap() const override { return whole_->overlap(); }
  void read(int64_t sample, std::span<const View> out) const override { whole_->read(number(sample), out); }
  void read_parts(int64_t sample, std::span<const FieldPart> parts) const override {
    whole_->read_parts(number(sample), parts);
  }

 private:
  // In the whole source.
  int64_t number(int64_t sample) const {
    require(sample >= 0 && sample < size(), "sample {} of a source of {}", sample, size());
    const auto end = std::upper_bound(ends_.begin(), ends_.end(), sample);
    const auto run = static_cast<size_t>(end - ends_.begin());
    const int64_t at = runs_[run].first + runs_[run].count - (*end - sample);
    return order_ ? (*order_)(at) : at;
  }

  SourcePtr whole_;
  std::vector<Run> runs_;
  std::vector<int64_t> ends_;  // of each run, counted in this source's samples
  std::shared_ptr<const Permutation> order_;
};

}  // namespace

void Source::read_parts(int64_t sample, std::span<const FieldPart> parts) const {
  const std::vector<FieldSpec> all = fields();
  require(parts.size() == all.size(), "{} parts for {} fields", parts.size(), all.size());
  std::vector<HostTensor> whole(all.size());
  std::vector<View> views;
  for (size_t i = 0; i < all.size(); ++i) {
    const bool is_part = parts[i].to.data != nullptr && parts[i].to.type != all[i].sample;
    if (is_part) whole[i] = HostTensor(all[i].sample);
    views.push_back(is_part ? whole[i].view() : View{parts[i].to.data, all[i].sample});
  }
  read(sample, views);
  for (size_t i = 0; i < all.size(); ++i) {
    if (whole[i].view().data == nullptr) continue;
    const int64_t item = size_of(all[i].sample.dtype);
    each_run(all[i].sample.shape, parts[i], [&](int64_t from, int64_t to, int64_t elements) {
      std::memcpy(parts[i].to.data + to * item, views[i].data + from * item, static_cast<size_t>(elements * item));
    });
  }
}

SourcePtr slice(SourcePtr source, int64_t first, int64_t count) {
  require(first >= 0 && count >= 0 && first <= source->size() - count, "samples [{}, {}) of a source of {}", first,
          first + count, source->size());
  return std::make_shared<Part>(std::move(source), std::vector<Run>{{first, count}}, nullptr);
}

Split split(const SourcePtr& source, int64_t validation_samples, uint64_t seed, int64_t blocks) {
  const int64_t size = source->size();
  require(blocks >= 1, "{} blocks to hold out; it must be 1 or more", blocks);
  const int64_t border = validation_samples > 0 ? source->overlap() : 0;
  blocks = border == 0 ? 1 : std::clamp<int64_t>(validation_samples, 1, blocks);
  const int64_t lost = border * (2 * blocks - 1);  // before each block, and after all but the last
  require(validation_samples >= 0 && validation_samples + lost < size,
          "cannot hold out {} of {} samples ({} more lie on the border); hold out at most {}", validation_samples, size,
          lost, std::max<int64_t>(size - lost - 1, 0));
  std::shared_ptr<const Permutation> order;
  if (source->overlap() == 0) order = std::make_shared<Permutation>(size, seed, 0);
  std::vector<Run> train;
  std::vector<Run> held_out;
  const int64_t train_samples = size - validation_samples - lost;
  int64_t at = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    const auto share = [&](int64_t samples) { return samples * (block + 1) / blocks - samples * block / blocks; };
    train.push_back({at, share(train_samples)});
    at += train.back().count + border;
    held_out.push_back({at, share(validation_samples)});
    at += held_out.back().count + border;
  }
  return {std::make_shared<Part>(source, std::move(train), order),
          std::make_shared<Part>(source, std::move(held_out), order)};
}

Split split_fraction(const SourcePtr& source, double validation_fraction, uint64_t seed, int64_t blocks) {
  require(validation_fraction >= 0 && validation_fraction < 1,
          "validation fraction {}; it must be at least 0 and below 1", validation_fraction);
  const double count = std::round(validation_fraction * static_cast<double>(source->size()));
  return split(source, static_cast<int64_t>(count), seed, blocks);
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
    require(token >= 0 && token < kByteVocabulary, "token {} is not a byte; bytes are 0 to 255", token);
    out.push_back(static_cast<char>(token));
  }
  return out;
}

}  // namespace trireme::data
