// Feed: the batches of a run, read ahead by a thread into staging memory while the step computes.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "trireme/data/batches.h"
#include "trireme/exec/run/executor.h"
#include "trireme/tensor/host_tensor.h"
#include "trireme/train/step/graphs/step.h"

namespace trireme {

// The fields of a batch with this many samples.
std::vector<BatchField> batch_fields(const data::Source& source, int64_t batch);

// The executor's input of a field; one without elements where its crew does not read the field.
View input_of(const Executor& executor, const BatchField& field);
// Executor::fill_inputs of all fields, in their order; of those that its crew does not read, as input_of has them.
void fill_fields(Executor& executor, std::span<const BatchField> fields,
                 const std::function<void(std::span<const View>)>& fill);
// This rank's part of each field, as the plan cuts it.
std::vector<data::FieldSlice> slices_of(const Executor& executor, const std::vector<BatchField>& fields);

class Feed {
 public:
  Feed(const data::SourcePtr& source, const data::BatchOptions& options, Executor& executor,
       const std::vector<BatchField>& fields, int64_t first, int64_t end);

  void take();  // puts the next batch in place
  const data::Batches& batches() const { return batches_; }

 private:
  void ask();

  std::array<std::vector<HostTensor>, 2> stages_;  // outlive the reading thread in batches_
  data::Batches batches_;
  Executor& executor_;
  std::vector<std::string> names_;  // of the fields
  int64_t end_;
  int64_t next_;
  int64_t asked_ = 0;
  int64_t taken_ = 0;
};

}  // namespace trireme
