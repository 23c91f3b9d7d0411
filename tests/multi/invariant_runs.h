// Jobs of numerics = "invariant" that are trained for a few steps, and whether they have the bits of one rank.
#pragma once

#include <fmt/core.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tests/multi/loss_curve.h"
#include "tests/multi/training_support.h"
#include "trireme/base/thread_pool.h"
#include "trireme/comm/comm.h"
#include "trireme/nn/models/deepseek.h"
#include "trireme/nn/models/t5.h"
#include "trireme/ops/ops.h"
#include "trireme/tensor/host_tensor.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme::invariant_runs {

using testing_support::class_loss;
using testing_support::have_equal_bytes;
using testing_support::mlp_batch;
using testing_support::mlp_model;
using testing_support::train_step;

inline constexpr int kSteps = 4;
inline constexpr int64_t kSamples = 32;  // in leaves of 2

struct RankPiece {
  Box box;
  HostTensor values;
};
struct Trained {
  std::vector<float> losses, norms;
  std::map<std::string, RankPiece> pieces;  // of parameters and optimizer state
};

inline nn::DeepSeekConfig deepseek_config() {
  return {.vocabulary = 20,
          .context = 8,
          .layers = 2,
          .width = 16,
          .heads = 4,
          .query_rank = 8,
          .key_rank = 8,
          .head_size = 4,
          .rotary_size = 2,
          .value_size = 4,
          .hidden = 24,
          .expert_hidden = 8,
          .top_k = 3,
          .routing = {.sigmoid = true, .expert_nodes = 4, .top_nodes = 2, .bias_rate = 0.01},
          .aux_loss_factor = 0,
          .expert_groups = kSamples,
          .init_std = 0.2};
}

inline Graph step_of(const std::string& model, Numerics numerics) {
  const auto train = [&](const ModelFn& forward, const std::vector<BatchField>& batch) {
    const Optimizer optimizer = model == "lamb" ? Optimizer(Lamb{.weight_decay = 0.1}) : AdamW{.weight_decay = 0.1};
    return training_step(forward, class_loss(), batch, optimizer,
                         {.name = model, .seed = 3, .clip_norm = 0.5, .numerics = numerics});
  };
  const std::vector<BatchField> text = {{"x", {DType::kI32, {kSamples, 8}}}, {"y", {DType::kI32, {kSamples, 8}}}};
  if (model == "gpt") {
    nn::Gpt gpt({.vocabulary = 20, .context = 8, .layers = 2, .width = 16, .heads = 4, .dropout = 0.1});
    return train([&](const Tensor& x) { return gpt(x); }, text);
  }
  if (model == "llama") {
    nn::Llama llama({.vocabulary = 20,
                     .context = 8,
                     .layers = 2,
                     .width = 16,
                     .heads = 4,
                     .kv_heads = 2,
                     .hidden = 24,
                     .init_std = 0.2});
    return train([&](const Tensor& x) { return llama(x); }, text);
  }
  if (model == "experts") {
    nn::Gpt gpt({.vocabulary = 20,
                 .context = 8,
                 .layers = 2,
                 .width = 16,
                 .heads = 4,
                 .dropout = 0.1,
                 .experts = 4,
                 .top_k = 2,
                 .capacity_factor = 0.75,
                 .aux_loss_factor = 0,
                 .expert_groups = kSamples / 2});
    return train([&](const Tensor& x) { return gpt(x); }, text);
  }
  if (model == "deepseek") {
    nn::DeepSeek deepseek(deepseek_config());
    return train([&](const Tensor& x) { return deepseek(x); }, text);
  }
  if (model == "t5") {
    nn::T5 t5({.vocabulary = 20, .layers = 2, .width = 16, .heads = 4, .dropout = 0.1});
    const auto loss = [](const nn::Fields& predicted, const nn::Fields& batch) {
      return cross_entropy(predicted[nn::kPrediction], batch["targets"]);
    };
    const TensorType ids{DType::kI32, {kSamples, 8}}, written{DType::kI32, {kSamples, 6}};
    return training_step([&](const nn::Fields& batch) { return t5(batch); }, loss,
                         {{"tokens", ids}, {"decoder_tokens", written}, {"targets", written}},
                         AdamW{.weight_decay = 0.1},
                         {.name = model, .seed = 3, .clip_norm = 0.5, .numerics = numerics});
  }
  nn::Mlp mlp(model == "odd" ? std::vector<int64_t>{12, 11, 15, 10} : std::vector<int64_t>{12, 16, 10});
  return train(mlp_model(mlp), mlp_batch(kSamples));
}

struct How {
  Numerics numerics = Numerics::kInvariant;
  int steps = kSteps;
  PassOptions passes = {};
};

inline Trained train(const std::string& model, Parallel parallel, comm::World* world, int threads,
                     const How& how = {}) {
  ThreadPool pool(threads);
  Session session(step_of(model, how.numerics), std::nullopt,
                  {.world = world,
                   .pool = &pool,
                   .seed = 5,
                   .compile = {.parallel = parallel, .numerics = how.numerics, .passes = how.passes}});
  session.initialise();
  Trained out;
  for (int step = 1; step <= how.steps; ++step) {
    out.losses.push_back(train_step(session, step, 0.01F));
    out.norms.push_back(session.step().output("grad_norm").as<float>()[0]);
  }
  for (const PlanInput& input : session.persistent()) {
    const View view = session.step().input(input.name);
    HostTensor copy(view.type);
    std::memcpy(copy.view().data, view.data, static_cast<size_t>(view.bytes()));
    out.pieces.emplace(input.name, RankPiece{session.step().input_box(input.name), std::move(copy)});
  }
  return out;
}

// "" when the rank's losses, norms and pieces are those of the whole, to the bit.
inline std::string difference_of(const Trained& rank, const Trained& whole) {
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
  };
  if (!same(rank.losses, whole.losses)) return "other losses";
  if (!same(rank.norms, whole.norms)) return "other gradient norms";
  for (const auto& [name, piece] : rank.pieces) {
    const HostTensor& all = whole.pieces.at(name).values;
    HostTensor expected(piece.values.type());
    copy_region(all.view(), Box::whole(all.shape()), expected.view(), piece.box, held(piece.box, all.shape()));
    if (!have_equal_bytes(expected.view(), piece.values.view())) return "other bits of " + name;
  }
  return "";
}

struct Case {
  std::string name;
  int64_t ranks = 1, tp = 1, zero = 0;
  int threads = 1;
  int64_t micro_batches = 1;
  int64_t pp = 1;
  std::string schedule = "1f1b";
  int64_t interleave = 1, ep = 1;
};

inline Parallel parallel_for(const Case& c, const std::string& model) {
  JobConfig config;
  const bool is_mlp = model == "mlp" || model == "odd" || model == "lamb";
  const std::string kind = model == "experts" ? "gpt" : model;
  set_keys(config, is_mlp ? std::vector<std::string>{"model.kind=mlp"}
                          : std::vector{"model.kind=" + kind, std::string("model.heads=4")});
  if (model == "experts") set_keys(config, {"model.experts=4", fmt::format("model.expert_groups={}", kSamples / 2)});
  if (model == "llama") set_keys(config, {"model.kv_heads=2"});
  if (model == "deepseek") set_keys(config, {"model.query_rank=8", fmt::format("model.expert_groups={}", kSamples)});
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.tp = c.tp;
  config.parallel.ep = c.ep;
  config.parallel.zero.level = c.zero;
  config.parallel.zero.threshold_kb = 0;
  config.parallel.gradient_accumulation_steps = c.micro_batches;
  config.parallel.interleave = c.interleave;
  config.parallel.pp = c.pp;
  config.parallel.schedule = c.schedule;
  config.train.step.numerics = Numerics::kInvariant;
  return parallel_of(config, c.ranks);
}

}  // namespace trireme::invariant_runs
