#include "trireme/train/run_impl.h"

#include <algorithm>

namespace trireme {

void Run::evaluate(Recorder& recorder) {
  Executor& executor = session_.evaluation();
  const std::vector<BatchField> fields = batch_fields(*fit_.validation, fit_.batch);
  const int64_t all = fit_.validation->size() / fit_.batch;
  const int64_t count = fit_.eval_batches > 0 ? std::min(all, fit_.eval_batches) : all;
  const data::Batches batches(fit_.validation, {.global_batch = fit_.batch, .shuffle = false,
                                                .slices = slices_of(executor, fields)});
  std::vector<View> views;
  for (const BatchField& field : fields) views.push_back(executor.input(field.name));
  double loss = 0;
  double correct = 0;
  for (int64_t i = 0; i < count; ++i) {
    batches.read(i, views);
    executor.run();
    loss += executor.output("loss").as<float>()[0];
    if (options_.accuracy) correct += executor.output("correct").as<float>()[0];
  }
  result_.validation_loss = loss / static_cast<double>(count);
  result_.accuracy = correct / static_cast<double>(count * fit_.batch);
  recorder.validation(result_.step, result_.validation_loss, options_.accuracy ? result_.accuracy : -1);
}

}  // namespace trireme
