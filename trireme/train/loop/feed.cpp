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

void fill_fields(Executor& executor, std::span<const BatchField> fields,
                 const std::function<void(std::span<const View>)>& fill) {
  std::vector<std::string> names;
  for (const BatchField& field : fields) {
    if (executor.has_input(field.name)) names.push_back(field.name);
  }
  executor.fill_inputs(names, [&](std::span<const View> found) {
    std::vector<View> views;
    for (const BatchField& field : fields) {
      const bool is_read = executor.has_input(field.name);
      views.push_back(is_read ? found.front() : input_of(executor, field));
      if (is_read) found = found.subspan(1);
    }
    fill(views);
  });
}

Feed::Feed(const data::SourcePtr& source, const data::BatchOptions& options, Executor& executor,
           const std::vector<BatchField>& fields, int64_t first, int64_t end)
    : batches_(source, options), executor_(executor), end_(end), next_(first) {
  for (const BatchField& field : fields) {
    names_.push_back(field.name);
    for (auto& stage : stages_) stage.emplace_back(input_of(executor, field).type);
  }
  for (size_t i = 0; i < stages_.size(); ++i) ask();
}

void Feed::take() {
  batches_.wait();
  const std::vector<HostTensor>& stage = stages_[static_cast<size_t>(taken_++ % 2)];
  for (size_t i = 0; i < names_.size(); ++i) {
    if (executor_.has_input(names_[i])) executor_.write_input(names_[i], stage[i].view());
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
