// Small models and batches for tests that train over ranks: what a rank is given depends on the
// global index of each element only, so every number of ranks sees the same batch.
#pragma once

#include <optional>

#include "trireme/base/hash.h"
#include "trireme/base/rng.h"
#include "trireme/nn/models/gpt.h"
#include "trireme/nn/models/llama.h"
#include "trireme/nn/models/mlp.h"
#include "trireme/ops/ops.h"
#include "trireme/train/step/graphs/step.h"
#include "trireme/train/step/session/session.h"

namespace trireme::testing_support {

inline constexpr int64_t kBatch = 24;  // divides over 1, 2, 3, 4 and 8 ranks

inline LossFn class_loss() {
  return [](const Tensor& y, const Tensor& t) { return cross_entropy(y, t); };
}

inline std::vector<BatchField> mlp_batch(int64_t batch = kBatch) {
  return {{"x", {DType::kF32, {batch, 12}}}, {"y", {DType::kI32, {batch}}}};
}
inline std::vector<BatchField> gpt_batch() {
  return {{"x", {DType::kI32, {kBatch, 8}}}, {"y", {DType::kI32, {kBatch, 8}}}};
}

inline ModelFn mlp_model(nn::Mlp& mlp) {
  return [&mlp](const Tensor& x) { return mlp(x); };
}

inline Graph mlp_step(const Optimizer& optimizer, int64_t batch = kBatch) {
  nn::Mlp mlp({12, 16, 10});
  return training_step(mlp_model(mlp), class_loss(), mlp_batch(batch), optimizer, {.name = "mlp", .clip_norm = 1});
}
inline Graph mlp_evaluation(int64_t batch = kBatch) {
  nn::Mlp mlp({12, 16, 10});
  return evaluation(mlp_model(mlp), class_loss(), mlp_batch(batch), {.name = "mlp", .accuracy = true});
}
inline Graph language_step(nn::Module& model, const Optimizer& optimizer, bool loss_in_parts, double clip_norm) {
  const LossFn in_parts = [](const Tensor& y, const Tensor& t) { return cross_entropy_in_parts(y, t); };
  return training_step([&](const Tensor& x) { return model(x); }, loss_in_parts ? in_parts : class_loss(), gpt_batch(),
                       optimizer, {.name = "text", .seed = 3, .clip_norm = clip_norm});
}
inline Graph gpt_step(const Optimizer& optimizer, bool loss_in_parts = false, int64_t experts = 0,
                      int64_t expert_groups = 1, int64_t vocabulary = 20) {
  nn::Gpt gpt({.vocabulary = vocabulary,
               .context = 8,
               .layers = 2,
               .width = 16,
               .heads = 2,
               .dropout = 0.1,
               .experts = experts,
               .expert_groups = expert_groups});
  return language_step(gpt, optimizer, loss_in_parts, 1);
}
// Weights are large enough for positions to tell in the loss.
inline Graph llama_step(const Optimizer& optimizer, bool loss_in_parts = false, double clip_norm = 1,
                        int64_t experts = 0, int64_t expert_groups = 1, int64_t vocabulary = 20) {
  nn::Llama llama({.vocabulary = vocabulary,
                   .context = 8,
                   .layers = 2,
                   .width = 16,
                   .heads = 4,
                   .kv_heads = 2,
                   .hidden = 24,
                   .init_std = 0.2,
                   .experts = experts,
                   .expert_groups = expert_groups});
  return language_step(llama, optimizer, loss_in_parts, clip_norm);
}

// The batch of a step: normal numbers and ids below 10. A crew of a pipeline need not read a field.
inline void fill_batch(Executor& executor, std::string_view name, int64_t step) {
  if (!executor.has_input(name)) return;
  const View view = executor.input(name);
  const Box box = executor.input_box(name);
  const ExecutionPlan& plan = executor.plan();
  const Shape& whole = plan.values[static_cast<size_t>(plan.input(name).value)].whole;
  const Stream stream{static_cast<uint64_t>(step), hash64(name)};
  for (int64_t i = 0; i < view.elements(); ++i) {
    int64_t rest = i;
    int64_t at = 0;
    int64_t stride = 1;
    for (int dim = whole.rank(); dim-- > 0; stride *= whole[dim]) {
      at += (box.start[dim] + rest % box.size[dim]) * stride;
      rest /= box.size[dim];
    }
    const auto index = static_cast<uint64_t>(at);
    if (view.type.dtype == DType::kF32) {
      view.as<float>()[static_cast<size_t>(i)] = normal(stream, index, 0);
    } else {
      view.as<int32_t>()[static_cast<size_t>(i)] = static_cast<int32_t>(random_bits(stream, index, 0) % 10);
    }
  }
}

inline float train_step(Session& session, int64_t step, float lr) {
  Executor& executor = session.step();
  for (const PlanInput& input : executor.plan().inputs) {
    if (input.role == Role::kData) fill_batch(executor, input.name, step);
  }
  if (executor.has_input("lr")) executor.input("lr").as<float>()[0] = lr;
  if (executor.has_input("step")) executor.input("step").as<int64_t>()[0] = step;
  executor.run();
  return executor.output("loss").as<float>()[0];
}

}  // namespace trireme::testing_support
