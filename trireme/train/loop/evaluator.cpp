#include "trireme/train/loop/evaluator.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/train/loop/feed.h"

namespace trireme {

Evaluator::Evaluator(Executor& executor, data::SourcePtr source, int64_t batch, bool accuracy)
    : executor_(executor), source_(std::move(source)), batch_(batch), accuracy_(accuracy) {
  counts_ = std::ranges::any_of(executor.plan().outputs, [](const PlanOutput& out) { return out.name == "counted"; });
  fields_ = batch_fields(*source_, batch);
  for (const BatchField& field : fields_) {
    if (!executor.has_input(field.name)) continue;
    const ExecutionPlan& plan = executor.plan();
    const Shape& whole = plan.values[static_cast<size_t>(plan.input(field.name).value)].whole;
    require(whole[0] == batch, "evaluation: a batch of {} samples is asked for, and '{}' is {} in the graph", batch,
            field.name, to_string(whole));
  }
  slices_ = slices_of(executor, fields_);
}

EvaluationResult Evaluator::run(int64_t most_batches) const {
  std::vector<data::SampleRange> parts = data::one_pass(source_->size(), batch_);
  if (most_batches > 0 && most_batches <= source_->size() / batch_) parts.resize(static_cast<size_t>(most_batches));
  EvaluationResult out;
  double counted = 0;  // losses, of each sample once
  double correct = 0;
  const auto output = [&](const char* name) { return static_cast<double>(executor_.read_number<float>(name)); };
  for (const data::SampleRange& part : parts) {
    fill_fields(executor_, fields_, [&](std::span<const View> views) {
      data::read_rows(
          *source_, slices_, [&](int64_t row) { return part.first + row % part.count; }, views);
    });
    executor_.run();
    // Fewer samples fill the batch by turns.
    const double share = static_cast<double>(part.count) / static_cast<double>(batch_);
    const double weight = counts_ ? share * output("counted") : static_cast<double>(part.count);
    if (weight > 0) out.loss += weight * output("loss");
    counted += weight;
    if (accuracy_) correct += share * output("correct");
    out.samples += part.count;
  }
  require(
      counted > 0,
      "evaluation: none of the targets of the {} held-out samples counts in the loss (are all labels ignored?); hold "
      "out others, or more of them",
      out.samples);
  out.loss /= counted;
  const int64_t targets = source_->fields().back().sample.shape.elements();
  out.accuracy = correct / (counts_ ? counted : counted * static_cast<double>(targets));
  return out;
}

}  // namespace trireme
