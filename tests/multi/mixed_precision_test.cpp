// Training in bf16: it follows training in f32, ranks agree, and gradients cross between ranks in f32.
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "tests/multi/training_support.h"
#include "trireme/train/job/parallel_settings.h"

namespace trireme::mixed_precision_test {
namespace {

using namespace testing_support;

constexpr int64_t kVocabulary = 24;
constexpr int64_t kPositions = 16;

Graph gpt_step(DType compute) {
  nn::Gpt gpt({.vocabulary = kVocabulary, .context = kPositions, .layers = 2, .width = 32, .heads = 2});
  const std::vector<BatchField> batch{{"x", {DType::kI32, {kBatch, kPositions}}},
                                      {"y", {DType::kI32, {kBatch, kPositions}}}};
  return training_step([&](const Tensor& x) { return gpt(x); }, class_loss(), batch, AdamW{},
                       {.name = "gpt", .seed = 3, .clip_norm = 1, .compute = compute});
}

// A token and the next one: they count up from a random start, and one in four next ones is any token.
void fill_counting(Session& session, int64_t step) {
  Executor& executor = session.step();
  const Box box = executor.input_box("x");
  const auto x = executor.input("x").as<int32_t>();
  const auto y = executor.input("y").as<int32_t>();
  const Stream stream{static_cast<uint64_t>(step), 1};
  for (int64_t row = 0; row < box.size[0]; ++row) {
    const auto sample = static_cast<uint64_t>(box.start[0] + row);
    const auto start = static_cast<int64_t>(random_bits(stream, sample, 0) % kVocabulary);
    for (int64_t i = box.start[1]; i < box.start[1] + box.size[1]; ++i) {
      const auto at = static_cast<size_t>(row * box.size[1] + i - box.start[1]);
      const uint32_t noise = random_bits(stream, 1000 + sample * kPositions + static_cast<uint64_t>(i), 0);
      x[at] = static_cast<int32_t>((start + i) % kVocabulary);
      y[at] = static_cast<int32_t>(noise % 4 == 0 ? noise / 4 % kVocabulary : (start + i + 1) % kVocabulary);
    }
  }
}

std::vector<double> losses(DType compute, int64_t steps, const Parallel& parallel = {}, comm::World* world = nullptr) {
  Session session(gpt_step(compute), std::nullopt, {.world = world, .seed = 5, .compile = {.parallel = parallel}});
  session.initialise();
  std::vector<double> out;
  for (int64_t step = 1; step <= steps; ++step) {
    fill_counting(session, step);
    session.step().input("lr").as<float>()[0] = 3e-3F;
    session.step().input("step").as<int64_t>()[0] = step;
    session.step().run();
    out.push_back(session.step().output("loss").as<float>()[0]);
  }
  return out;
}

TEST(MixedPrecision, losses_of_300_steps_are_within_1_percent_of_those_in_f32) {
  const std::vector<double> f32 = losses(DType::kF32, 300);
  const std::vector<double> bf16 = losses(DType::kBF16, 300);
  EXPECT_LT(f32.back(), 0.6 * f32.front()) << "nothing was learnt";
  EXPECT_NE(f32, bf16);
  for (size_t i = 0; i < f32.size(); ++i) EXPECT_NEAR(bf16[i], f32[i], 0.01 * f32[i]) << "step " << i + 1;
}

// Over ranks the terms of sums are added in another order. That differs by f32's rounding, but where a value lies in
// the middle between two of bf16 it comes to differ by 2^-8 of itself, and where a sum over a cut dimension is itself a
// value of bf16, each part of it is rounded. A loss whose logits are all off by that much is off by no more than 2^-8
// of the largest logit times the probability that goes wrong; the loss itself stands for both.
struct Case {
  std::string name;
  int ranks;
  int64_t tp;
  bool sp;
  int64_t zero;
  int64_t ring = 1;
};

Parallel parallel_of(const Case& c) {
  JobConfig config;
  set_keys(config, {"model.heads=2"});
  config.parallel.mode = Mode::kSemiAuto;
  config.parallel.tp = c.tp;
  config.parallel.sp = c.sp;
  config.parallel.zero.level = c.zero;
  config.parallel.cp = c.ring;
  config.parallel.cp_algorithm = ContextAlgorithm::kRing;
  config.parallel.zero.threshold_kb = 0;
  return trireme::parallel_of(config, c.ranks);
}

class MixedPrecisionOverRanks : public testing::TestWithParam<Case> {};

TEST_P(MixedPrecisionOverRanks, trains_as_one_device_does) {
  constexpr int64_t kSteps = 30;
  const std::vector<double> whole = losses(DType::kBF16, kSteps);
  EXPECT_LT(whole.back(), 0.9 * whole.front());
  const Parallel parallel = parallel_of(GetParam());
  std::mutex mutex;
  std::vector<std::vector<double>> ranks;
  comm::spawn_ranks(GetParam().ranks, "threads", [&](comm::World& world) {
    std::vector<double> mine = losses(DType::kBF16, kSteps, parallel, &world);
    const std::lock_guard lock(mutex);
    ranks.push_back(std::move(mine));
  });
  for (const std::vector<double>& rank : ranks) {
    EXPECT_EQ(rank, ranks[0]) << "ranks tell different losses";
    for (size_t i = 0; i < whole.size(); ++i) EXPECT_NEAR(rank[i], whole[i], 0x1p-8 * whole[i]) << "step " << i + 1;
  }
}

TEST_P(MixedPrecisionOverRanks, parameters_and_their_gradients_are_f32_and_cut_as_without_casts) {
  const Parallel parallel = parallel_of(GetParam());
  const CompileOptions options{.ranks = GetParam().ranks, .parallel = parallel};
  const Compiled wide = compile(gpt_step(DType::kF32), options);
  const Compiled narrow = compile(gpt_step(DType::kBF16), options);
  EXPECT_EQ(narrow.plan().arena().persistent, wide.plan().arena().persistent);
  ASSERT_EQ(narrow.plan().inputs.size(), wide.plan().inputs.size());
  for (size_t i = 0; i < wide.plan().inputs.size(); ++i) {
    const PlanValue& a = wide.plan().values[static_cast<size_t>(wide.plan().inputs[i].value)];
    const PlanValue& b = narrow.plan().values[static_cast<size_t>(narrow.plan().inputs[i].value)];
    EXPECT_EQ(to_string(a.type), to_string(b.type)) << wide.plan().inputs[i].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Cuts, MixedPrecisionOverRanks,
                         testing::Values(Case{"dp2", 2, 1, false, 0}, Case{"tp2", 2, 2, false, 0},
                                         Case{"tp2_sp", 2, 2, true, 0}, Case{"zero1", 2, 1, false, 1},
                                         Case{"zero2", 2, 1, false, 2}, Case{"zero3", 2, 1, false, 3},
                                         Case{"dp2_tp2_sp_zero3", 4, 2, true, 3}, Case{"ring4", 4, 1, false, 0, 4}),
                         [](const auto& about) { return about.param.name; });

TEST(MixedPrecision, gradients_are_reduced_in_f32) {
  const Compiled compiled = compile(gpt_step(DType::kBF16), {.ranks = 2});
  int64_t elements = 0;
  for (const Node& node : compiled.partitioned.graph.nodes()) {
    if (node.op->name != "all_reduce") continue;
    for (const ValueId id : node.inputs) {
      const TensorType& type = compiled.partitioned.graph.type(id);
      EXPECT_EQ(type.dtype, DType::kF32) << compiled.partitioned.graph.scope_of(node);
      elements += type.elements();
    }
  }
  EXPECT_GT(elements, 2 * (4 + 8) * 32 * 32);  // the weights' at least
}

}  // namespace
}  // namespace trireme::mixed_precision_test
