#include "trireme/train/loop/evaluate.h"

#include <algorithm>

#include "trireme/train/loop/feed.h"

namespace trireme {

Evaluator::Evaluator(Executor& executor, data::SourcePtr source, int64_t batch, bool accuracy)
    : executor_(executor), source_(std::move(source)), batch_(batch), accuracy_(accuracy) {
  fields_ = batch_fields(*source_, batch);
  slices_ = slices_of(executor, fields_);
}

EvaluationResult Evaluator::run(int64_t most_batches) const {
  std::vector<data::SampleRange> parts = data::one_pass(source_->size(), batch_);
  if (most_batches > 0 && most_batches <= source_->size() / batch_) parts.resize(static_cast<size_t>(most_batches));
  EvaluationResult out;
  double correct = 0;
  for (const data::SampleRange& part : parts) {
    fill_fields(executor_, fields_, [&](std::span<const View> views) {
      data::read_rows(
          *source_, slices_, [&](int64_t row) { return part.first + row % part.count; }, views);
    });
    executor_.run();
    const auto count = static_cast<double>(part.count);
    out.loss += count * static_cast<double>(executor_.read_number<float>("loss"));
    if (accuracy_)
      correct += count / static_cast<double>(batch_) * static_cast<double>(executor_.read_number<float>("correct"));
    out.samples += part.count;
  }
  const auto samples = static_cast<double>(out.samples);
  out.loss /= samples;
  out.accuracy = correct / (samples * static_cast<double>(source_->fields().back().sample.shape.elements()));
  return out;
}

}  // namespace trireme
