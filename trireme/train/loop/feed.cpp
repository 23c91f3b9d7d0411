#include "trireme/train/loop/feed.h"

#include <algorithm>

namespace trireme {

std::vector<BatchField> batch_fields(const data::Source& source, int64_t batch) {
  std::vector<BatchField> out;
  for (const data::FieldSpec& field : source.fields()) {
    TensorType type{field.sample.dtype, {batch}};
    for (const int64_t size : field.sample.shape) type.shape.push_back(size);
    out.push_back({field.name, type});
  }
  return out;
}

View input_of(const Executor& executor, const BatchField& field) {
  if (executor.has_input(field.name)) return executor.input(field.name);
  TensorType none{field.type.dtype, {}};
  for (int dim = 0; dim < field.type.shape.rank(); ++dim) none.shape.push_back(0);
  return {nullptr, none};
}

std::vector<data::FieldSlice> slices_of(const Executor& executor, const std::vector<BatchField>& fields) {
  std::vector<data::FieldSlice> out;
  for (const BatchField& field : fields) {
    if (executor.has_input(field.name)) {
      const Box box = executor.input_box(field.name);
      out.push_back({box.start, box.size});
    } else {
      const Shape none = input_of(executor, field).type.shape;
      out.push_back({none, none});
    }
  }
  return out;
}

Feed::Feed(const data::SourcePtr& source, const data::BatchOptions& options, Executor& executor,
           const std::vector<BatchField>& fields, int64_t first, int64_t end)
    : batches_(source, options), end_(end), next_(first) {
  for (const BatchField& field : fields) targets_.push_back(input_of(executor, field));
  for (auto& stage : stages_) {
    for (const View& target : targets_) stage.emplace_back(target.type);
  }
  for (size_t i = 0; i < stages_.size(); ++i) ask();
}

void Feed::take() {
  batches_.wait();
  const std::vector<HostTensor>& stage = stages_[static_cast<size_t>(taken_++ % 2)];
  for (size_t i = 0; i < targets_.size(); ++i) {
    std::copy(stage[i].view().raw().begin(), stage[i].view().raw().end(), targets_[i].raw().begin());
  }
  ask();
}

void Feed::ask() {
  if (next_ >= end_) return;
  std::vector<View> views;
  for (const HostTensor& tensor : stages_[static_cast<size_t>(asked_++ % 2)]) views.push_back(tensor.view());
  batches_.request(next_++, std::move(views));
}

}  // namespace trireme
